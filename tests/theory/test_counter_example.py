"""The counter-example of theorem C.1 in numbers: a CDE represents X itself easily, an ODE driven by X cannot.

The map from X to $X^1(t) - X^1(t_0)$ is the CDE with a constant f. An ODE $\\mathrm{d}z = h(z, X)\\, \\mathrm{d}t$
would need $h = \\mathrm{d}X^1/\\mathrm{d}t$, which the value of X does not determine. It can only follow X with a
delay, and its error grows as X turns faster.
"""

import pytest
import torch

import neuralcde as nc
from ragged_cases import SCHEMES
from solve_cases import some_path

TURNS = (2, 8, 32)  # number of turns in the same time, for rougher and rougher paths


def zigzag(turns, seed):
    """64 paths that go to 1 or -1 at random at every turn; time is channel 0."""
    generator = torch.Generator().manual_seed(seed)
    times = torch.linspace(0, 4, turns + 1, dtype=torch.float64)
    signs = torch.randint(0, 2, (64, turns + 1, 1), generator=generator) * 2.0 - 1.0
    return nc.linear(nc.IrregularSeries.from_list([(times, x) for x in signs]).with_channels())


def increments(path, channel=1):
    """X(t) - X(t0) of a channel at every row."""
    x = path.at_rows()[:, channel, None]
    return x - x[path.series.offsets[:-1]].repeat_interleave(path.series.lengths, dim=0)


def error_after_training(model, turns):
    """Root mean square error over all knots of test paths, after 150 steps of Adam."""
    path, other = zigzag(turns, 1), zigzag(turns, 2)
    target, optimiser = increments(path), torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(150):
        optimiser.zero_grad()
        ((model(path, at="knots") - target) ** 2).mean().backward()
        optimiser.step()
    with torch.no_grad():
        return float((model(other, at="knots") - increments(other)).square().mean().sqrt())


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_constant_field_gives_the_path(scheme, engine):
    """A constant f with which z^1 follows X^1 and z^2 is constant."""
    path = some_path(5, scheme=scheme, rows=(1, 9))
    constant = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]], dtype=torch.float64)
    z0 = torch.tensor([[0.0, 7.0]], dtype=torch.float64).expand(len(path), 2)
    start = path.coefficients[
        path.piece_offsets[:-1], 0, 0
    ]  # before the first knot's vertical piece, where there is one
    states = nc.solve_cde(path, lambda t, z: constant, z0, save="knots").at_knots
    expected = path.at_rows()[:, 0] - start.repeat_interleave(path.series.lengths)
    torch.testing.assert_close(states[:, 0], expected, rtol=1e-13, atol=1e-13)
    assert torch.equal(states[:, 1], torch.full_like(expected, 7.0))


@pytest.mark.parametrize("turns", TURNS)
def test_however_rough_the_path_is(turns):
    path = zigzag(turns, 2)
    constant = torch.tensor([[0.0, 1.0]])
    states = nc.solve_cde(path, lambda t, z: constant, torch.zeros(len(path), 1), save="knots").at_knots
    assert (states - increments(path)).abs().max() < 1e-5
    assert increments(path).abs().max() == 2


def test_an_ode_that_sees_the_path_stays_behind_the_more_the_rougher_it_is():
    """Each model is trained on paths of one roughness. A constant prediction has an error of 1."""
    slow, middle, fast = (
        error_after_training(nc.GRUODE(2, 1, hidden=16, initial="linear", steps=nc.AtKnots(32 // turns)), turns)
        for turns in TURNS
    )
    assert slow < 0.05
    assert middle > 3 * slow
    assert fast > 2 * middle
    assert fast > 0.5


def test_a_neural_cde_with_the_same_training_does_not():
    errors = [error_after_training(nc.NeuralCDE(2, 1, hidden=16, width=16, depth=1), turns) for turns in TURNS]
    assert max(errors) < 0.1
