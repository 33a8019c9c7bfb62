"""The split of a solution among gaps and channels is exact, and along each channel the integral of f_c dX_c."""

import pytest
import torch

import neuralcde as nc
from ragged_cases import SCHEMES, random_series

DTYPE = torch.float64


def field_of(channels, hidden):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nc.MLPField(channels, hidden, width=6, depth=2).to(DTYPE)


def sums(parts, offsets):
    return torch.stack([part.sum((0, 1)) for part in torch.split(parts, offsets.diff().tolist())])


@pytest.mark.parametrize("solver", ["euler", "rk4", "dopri5"])
@pytest.mark.parametrize("scheme", ["linear-forward", "rectilinear", "natural_cubic"])
def test_contributions_add_up_to_the_solution(scheme, solver):
    path = SCHEMES[scheme](random_series(3, count=7).with_channels())
    field, z0 = field_of(path.channels, 5), torch.randn(7, 5, dtype=DTYPE)
    for steps in (nc.AtKnots(), nc.AtKnots(substeps=3)):
        parts = nc.channel_contributions(path, field, z0, solver=solver, steps=steps)
        assert parts.shape == (len(path.knots), path.channels, 5)
        assert (parts[path.series.offsets[:-1]] == 0).all()
        whole = nc.solve_cde(path, field, z0, solver=solver, steps=steps, save="knots")
        torch.testing.assert_close(z0 + sums(parts, path.series.offsets), whole.last, rtol=1e-12, atol=1e-12)
        steps_of_z = whole.at_knots[1:] - whole.at_knots[:-1]
        later = torch.ones(len(path.knots), dtype=torch.bool).index_fill(0, path.series.offsets[:-1], False)
        torch.testing.assert_close(parts.sum(1)[later], steps_of_z[later[1:]], rtol=1e-12, atol=1e-12)


def test_a_constant_field_gives_each_channel_its_own_increment():
    """In closed form: the integral of A_c dX_c is A_c (X_c(t_i) - X_c(t_{i-1}))."""
    path = SCHEMES["rectilinear"](random_series(4, count=5).with_channels())
    matrix = torch.randn(3, path.channels, dtype=DTYPE)
    parts = nc.channel_contributions(path, lambda t, z: matrix.expand(len(z), -1, -1), torch.zeros(5, 3, dtype=DTYPE))
    values = path.at_rows()
    for row in range(1, len(values)):
        if row not in path.series.offsets:
            expected = (values[row] - values[row - 1])[:, None] * matrix.T
            torch.testing.assert_close(parts[row], expected, rtol=1e-10, atol=1e-10)


def test_channels_that_stand_still_contribute_nothing():
    series = nc.IrregularSeries.from_list([([0.0, 1.0, 2.0], [[0.0, 1.0], [3.0, 1.0], [3.0, 5.0]])], dtype=DTYPE)
    parts = nc.channel_contributions(nc.linear(series), field_of(2, 4), torch.ones(1, 4, dtype=DTYPE))
    assert (parts[1, 1] == 0).all()
    assert (parts[2, 0] == 0).all()
    assert (parts[1, 0] != 0).any()


def test_outputs_of_a_plain_neural_cde_are_such_sums():
    path = nc.linear(random_series(5, count=6).with_channels(), fill="forward")
    model = nc.NeuralCDE(path.channels, 2, hidden=5, width=6, depth=2).to(DTYPE)
    start, parts = model.contributions(path)
    torch.testing.assert_close(start + sums(parts, path.series.offsets), model(path), rtol=1e-12, atol=1e-12)
    with pytest.raises(ValueError, match="pool='last'"):
        nc.NeuralCDE(path.channels, 2, pool="mean").to(DTYPE).contributions(path)
