"""Solves on parts of the paths' intervals: `path.restrict`."""

import dataclasses

import pytest
import torch

import neuralcde as nc
from neuralcde.solve import TimeTerm, solve
from ragged_cases import between, random_series
from solve_cases import Driven, identity_field, mlp, some_path, states

MODES = {
    "at knots": {"solver": "tsit5", "steps": nc.AtKnots(4)},
    "fixed": {"steps": nc.FixedSteps(0.2)},
    "adaptive": {"solver": "tsit5", "steps": nc.Adaptive(1e-8, 1e-8)},
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("scheme", ["natural_cubic", "linear", "rectilinear"])
def test_one_part_after_the_other(mode, scheme, engine):
    """z over [a, c] is z over [a, b] and then over [b, c]; over all of it, where b is a knot of every series."""
    path = some_path(4, scheme=scheme, count=3, rows=(4, 7))
    field, z0 = mlp(path, 3), states(path, 3)
    a, b = between(path, 0.2, 0.6)
    c = path.interval[:, 1]
    whole = nc.solve_cde(path.restrict(a, c), field, z0, **MODES[mode])
    half = nc.solve_cde(path.restrict(a, b), field, z0, **MODES[mode])
    both = nc.solve_cde(path.restrict(b, c), field, half.last, **MODES[mode])
    assert (half.last - whole.last).abs().max() > 1e-2
    assert (both.last - whole.last).abs().max() < (1e-4 if mode == "fixed" else 1e-6)
    assert whole.stats.engine.startswith(engine)
    knot = path.knots[path.series.offsets[:-1] + 2]
    half = nc.solve_cde(path.restrict(end=knot), field, z0, **MODES[mode])
    both = nc.solve_cde(path.restrict(start=knot), field, half.last, **MODES[mode])
    along = nc.solve_cde(path, field, z0, save="knots", **MODES[mode])
    torch.testing.assert_close(half.last, along.at_knots[path.series.offsets[:-1] + 2], rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(both.last, along.last, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("scheme", ["natural_cubic", "linear", "rectilinear"])
def test_the_identity_field_gives_the_increment(scheme, engine):
    path = some_path(5, scheme=scheme, rows=(1, 7))
    for shares in ((0.0, 0.4), (0.13, 0.77), (0.6, 1.0), (0.5, 0.5), (1.0, 1.0)):
        low, high = between(path, *shares)
        last = nc.solve_cde(path.restrict(low, high), identity_field(path.channels), torch.zeros(5, 3).double()).last
        torch.testing.assert_close(last, path.increment(low[:, None], high[:, None])[:, 0], rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("gradient", ["checkpoint", "backprop", "backsolve", "reversible"])
def test_gradients_reach_the_data_and_the_ends(gradient, engine):
    """dz = z dX, so that log z(b) = X(b) - X(a), which has the slope X'(b) in b and -X'(a) in a."""
    series = random_series(6, count=3, rows=(4, 6), channels=1, missing=0)
    values = series.values.requires_grad_()
    path = nc.natural_cubic(dataclasses.replace(series, values=values))
    low, high = (x.detach().requires_grad_() for x in between(path, 0.23, 0.71))
    field = torch.nn.Sequential(torch.nn.Linear(1, 1, bias=False), torch.nn.Unflatten(-1, (1, 1))).double()
    with torch.no_grad():
        field[0].weight.fill_(1.0)
    solver = "ees25" if gradient == "reversible" else "tsit5"
    options = {"solver": solver, "steps": nc.AtKnots(25 if gradient == "reversible" else 8), "gradient": gradient}
    last = nc.solve_cde(path.restrict(low, high), field, torch.ones(3, 1).double(), **options).last
    found = torch.autograd.grad(last.log().sum(), [values, low, high], retain_graph=True)
    rise = path.increment(low.detach()[:, None], high.detach()[:, None]).sum()
    (expected,) = torch.autograd.grad(rise, values)
    slopes = [path.derivative(at.detach()[:, None])[:, 0, 0] for at in (low, high)]
    for one, other in zip(found, (expected, -slopes[0], slopes[1]), strict=True):
        torch.testing.assert_close(one, other.detach(), rtol=1e-3, atol=1e-3)


def test_flows_in_time(engine):
    """The duration of a part counts, not only the increment of X."""
    path = some_path(8, count=3, rows=(3, 6))
    torch.manual_seed(0)
    flow, z0 = TimeTerm(Driven(path.channels, 3).double()), states(path, 3)
    a, b = between(path, 0.3, 0.8)
    options = {"flow": flow, "solver": "tsit5", "steps": nc.AtKnots(10)}
    half = solve(path.restrict(end=a), z0, **options).last
    found = solve(path.restrict(a, b), half, save=b[:, None], **options)
    expected = solve(path, z0, save=torch.stack([a, b], 1), **options).at_times
    torch.testing.assert_close(half, expected[:, 0], rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(found.last, expected[:, 1], rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(found.at_times[:, 0], found.last)
