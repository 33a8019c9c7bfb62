"""Theorem C.1: every ODE driven by the value of X can be written as a CDE."""

import dataclasses
import math

import pytest
import torch
from torch import nn

import neuralcde as nc
from neuralcde.fields import GRUODEField, ODEField
from neuralcde.series import ChannelScales
from neuralcde.solve import TimeTerm, solve
from ragged_cases import SCHEMES, random_series
from solve_cases import CUBIC, STRAIGHT

HIDDEN, CHANNELS = 3, 4


class Wave(nn.Module):
    """h(t, z, X) = sin(t) z + cos(X^1) + X^2 X^3: depends on all arguments and has no parameters."""

    def forward(self, t, z, x):
        return torch.sin(t)[:, None] * z + torch.cos(x[:, 1:2]) + (x[:, 2] * x[:, 3])[:, None]


class Squared(nn.Module):
    """h(t, z, X) = W X^2 - z: without X the state decays to 0."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(-1, 1, HIDDEN * CHANNELS).reshape(HIDDEN, CHANNELS))

    def forward(self, t, z, x):
        return (0.3 * x) ** 2 @ self.weight.T - z


KINDS = {
    "gru-ode": lambda: GRUODEField(CHANNELS, HIDDEN),
    "ode": lambda: ODEField(HIDDEN, width=5, depth=1),
    "wave": Wave,
    "squared": Squared,
}


def made(kind, scheme):
    """h in double precision, a ragged batch of paths with time as channel 0, and initial states."""
    torch.manual_seed(1)
    series = random_series(4, count=4, rows=(1, 6), channels=CHANNELS - 1, missing=0.2)
    path = SCHEMES[scheme](series.with_channels())
    return KINDS[kind]().double(), path, torch.randn(len(path), HIDDEN, dtype=torch.float64)


def with_start(z0, path):
    """[z0, X(t0)]."""
    return torch.cat([z0, path.evaluate(path.interval[:, :1], side="left")[:, 0]], dim=1)


def both(h, path, z0, **options):
    """States at the knots, of the ODE and of the CDE."""
    ode = solve(path, z0, flow=TimeTerm(h), save="knots", **options)
    cde = nc.solve_cde(path, nc.as_cde(h, HIDDEN, CHANNELS), with_start(z0, path), save="knots", **options)
    return ode.at_knots, cde.at_knots


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scheme", STRAIGHT)
def test_the_same_numbers_on_straight_pieces(kind, scheme):
    """Every stage evaluates the same X, so the two discretisations are the same."""
    ode, cde = both(*made(kind, scheme))
    torch.testing.assert_close(cde[:, :HIDDEN], ode, rtol=1e-11, atol=1e-11)
    assert ode.std() > 0.1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scheme", ["natural_cubic", "hermite"])
def test_converges_to_the_same_on_cubic_pieces(kind, scheme):
    h, path, z0 = made(kind, scheme)
    gaps = []
    for substeps in (4, 8, 64):
        with torch.no_grad():
            ode, cde = both(h, path, z0, steps=nc.AtKnots(substeps))
        gaps.append(float((cde[:, :HIDDEN] - ode).abs().max()))
    assert gaps[2] < 1e-6
    if kind == "ode":  # does not depend on X
        assert gaps[0] < 1e-12
    else:
        assert gaps[0] > 1e-8
        assert math.log2(gaps[0] / gaps[1]) > 3  # rk4


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_rest_of_the_state_is_the_path(scheme):
    h, path, z0 = made("gru-ode", scheme)
    _, cde = both(h, path, z0)
    tolerance = 1e-6 if scheme in CUBIC else 1e-12
    torch.testing.assert_close(cde[:, HIDDEN:], path.at_rows(), rtol=tolerance, atol=tolerance)


def test_gradients_are_the_same():
    h, path, z0 = made("gru-ode", "linear")
    ode, cde = both(h, path, z0)
    weights = torch.randn_like(ode)
    field = nc.as_cde(h, HIDDEN, CHANNELS)
    assert [id(p) for p in field.parameters()] == [id(p) for p in h.parameters()]
    expected, found = (
        torch.autograd.grad((states[:, :HIDDEN] * weights).sum(), list(h.parameters())) for states in (ode, cde)
    )
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-10)
        assert b.abs().max() > 0


def test_time_may_be_another_channel():
    """The paper has it last."""
    h, path, z0 = made("wave", "linear")
    series = path.series
    turned = nc.IrregularSeries.from_list(
        [(one.times, one.values.roll(-1, dims=1)) for one in series], dtype=torch.float64
    )
    last = nc.linear(turned)
    field = nc.as_cde(lambda t, z, x: h(t, z, x.roll(1, dims=1)), HIDDEN, CHANNELS, time=CHANNELS - 1)
    found = nc.solve_cde(last, field, with_start(z0, last)).last[:, :HIDDEN]
    expected = solve(path, z0, flow=TimeTerm(h)).last
    torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-11)


def test_a_scaled_time_channel():
    """A time channel of slope 1/s, like that of scaled series, needs s h."""
    h, path, z0 = made("squared", "linear")
    raw = random_series(4, count=4, rows=(1, 6), channels=CHANNELS - 1, missing=0.2)
    scaled = dataclasses.replace(nc.SeriesScaler().fit_transform(raw), scales=ChannelScales(time=3.0)).with_channels()
    path = nc.linear(scaled)
    slope = float(path.derivative(path.interval[:, :1])[:, 0, 0].max())
    assert abs(slope - 1) > 0.05
    field = nc.as_cde(lambda t, z, x: h(t, z, x) / slope, HIDDEN, CHANNELS)
    expected = solve(path, z0, flow=TimeTerm(h)).last
    found = nc.solve_cde(path, field, with_start(z0, path)).last[:, :HIDDEN]
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


def test_the_matrix_is_the_one_of_the_theorem():
    h = Squared().double()
    field = nc.as_cde(h, HIDDEN, CHANNELS, time=2)
    t, z, dx = (torch.randn(*shape, dtype=torch.float64) for shape in ((5,), (5, HIDDEN + CHANNELS), (5, CHANNELS)))
    matrix = field(t, z)
    expected = torch.zeros(5, HIDDEN + CHANNELS, CHANNELS, dtype=torch.float64)
    expected[:, :HIDDEN, 2] = h(t, z[:, :HIDDEN], z[:, HIDDEN:])
    expected[:, HIDDEN:] = torch.eye(CHANNELS)
    torch.testing.assert_close(matrix, expected)
    torch.testing.assert_close(field.prod(t, z, dx), torch.einsum("bhc,bc->bh", matrix, dx))


@pytest.mark.wrong_types
def test_invalid_arguments_raise():
    h = Squared()
    with pytest.raises(TypeError, match=r"h must be a module or function h\(t, z, X\) .* got MLPField"):
        nc.as_cde(nc.MLPField(2, 3), 3, 2)
    with pytest.raises(TypeError, match=r"h must be a module or function .* got str"):
        nc.as_cde("gru", 3, 2)
    with pytest.raises(ValueError, match="hidden must be an integer of at least 1, got 0"):
        nc.as_cde(h, 0, 2)
    for time in (4, -1, None):
        with pytest.raises(ValueError, match=f"time must be one of the 4 channels, 0 to 3, got {time!r}"):
            nc.as_cde(h, HIDDEN, CHANNELS, time=time)
    field = nc.as_cde(h, HIDDEN, CHANNELS)
    with pytest.raises(
        ValueError, match=r"states \[z, X\] of size 7 .* got states of size 3 and 4 channels; start at torch.cat"
    ):
        field(torch.zeros(2), torch.zeros(2, 3))
    with pytest.raises(ValueError, match="got states of size 7 and 3 channels"):
        field.prod(torch.zeros(2), torch.zeros(2, 7), torch.zeros(2, 3))

    def narrow(t, z, x):
        return z[:, :1]

    with pytest.raises(ValueError, match=r"narrow must return shape \(batch, hidden\) = \(2, 3\), got \(2, 1\)"):
        nc.as_cde(narrow, HIDDEN, CHANNELS)(torch.zeros(2), torch.zeros(2, 7))
