"""Invariances of a CDE (section 6.1): the speed of X, its starting point, and excursions that X retraces."""

import dataclasses
from functools import partial

import pytest
import torch

import neuralcde as nc
from neuralcde.solve import TimeTerm, solve
from ragged_cases import random_series
from solve_cases import Autonomous, mlp, states

FINE = {"solver": "tsit5", "steps": nc.AtKnots(substeps=6)}


def series(rows=6, channels=2, seed=11):
    return random_series(seed, count=3, rows=(rows, rows), channels=channels, missing=0)


def retimed(one, times):
    return dataclasses.replace(one, times=times)


def from_values(values):
    """The rows of every series at times 0, 1, 2, ..."""
    return nc.IrregularSeries.from_list([(range(len(x)), x) for x in values], dtype=torch.float64)


def blocks(one):
    """The values of every series, (series, rows, channels)."""
    return one.values.reshape(len(one), -1, one.channels)


def end(path, field, z0, **options):
    return nc.solve_cde(path, field, z0, **{**FINE, **options}).last


def close(a, b, tolerance=1e-9):
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("build", [partial(nc.linear, fill="forward"), nc.rectilinear])
def test_speed_does_not_matter_on_straight_pieces(build, engine):
    """With other times the pieces are the same in u, so the results are bitwise equal with one step per piece."""
    one = series()
    other = retimed(one, one.times**3 + 5 * one.times - 40)
    field, z0 = mlp(build(one), 4), states(one, 4)
    assert torch.equal(*(nc.solve_cde(build(x), field, z0).last for x in (one, other)))


@pytest.mark.parametrize("build", [nc.natural_cubic, nc.hermite])
def test_the_unit_of_time_does_not_matter(build, engine):
    one = series()
    field, z0 = mlp(build(one), 4), states(one, 4)
    close(*(end(build(x), field, z0) for x in (one, retimed(one, 1000 * one.times - 7))), tolerance=1e-11)


def test_the_same_trace_at_another_speed(engine):
    """An extra row halfway in time but a third of the way along X."""
    one = series()
    x = blocks(one)
    third = x[:, :-1] + (x[:, 1:] - x[:, :-1]) / 3
    uneven = torch.cat([torch.stack([x[:, :-1], third], 2).flatten(1, 2), x[:, -1:]], 1)
    field, z0 = mlp(nc.linear(one), 4), states(one, 4)
    close(*(end(nc.linear(from_values(y)), field, z0) for y in (x, uneven)))


def test_time_is_seen_by_flows_in_time_and_through_a_time_channel(engine):
    """Shows that the tests above can fail."""
    one = series()
    other = retimed(one, 2 * one.times)
    z0 = states(one, 4)
    flow = TimeTerm(Autonomous(2, 4).double())
    a, b = (solve(nc.linear(x), z0, flow=flow).last for x in (one, other))
    assert (a - b).abs().max() > 1e-3
    paths = [nc.linear(x.with_channels()) for x in (one, other)]
    a, b = (end(path, mlp(paths[0], 4), z0) for path in paths)
    assert (a - b).abs().max() > 1e-3


@pytest.mark.parametrize("build", [nc.linear, nc.natural_cubic, nc.hermite, nc.rectilinear])
def test_where_x_starts_does_not_matter(build, engine):
    one = series()
    moved = dataclasses.replace(one, values=one.values + torch.tensor([3.0, -11.0], dtype=torch.float64))
    field, z0 = mlp(build(one), 4), states(one, 4)
    close(*(end(build(x), field, z0) for x in (one, moved)), tolerance=1e-11)


def test_there_and_back_again(engine):
    """X followed by X backwards brings z back to its initial value."""
    x = blocks(series())
    path = nc.linear(from_values(torch.cat([x, x.flip(1)[:, 1:]], 1)))
    field, z0 = mlp(path, 4), states(path, 4)
    solution = nc.solve_cde(path, field, z0, save="knots", **FINE)
    assert (solution.at_knots.reshape(3, -1, 4)[:, 5] - z0).abs().max() > 0.1
    close(solution.last, z0)


def test_an_excursion_that_is_taken_back_does_not_matter(engine):
    """A tree-like detour in the middle: out to two points and back, then out to a third point and back."""
    x = blocks(series())
    out = x[:, 2:3] + torch.tensor([[1.0, 0.5], [2.0, -1.0], [1.0, 0.5], [0.0, 0.0], [-1.0, 2.0], [0.0, 0.0]]).double()
    longer = torch.cat([x[:, :3], out, x[:, 3:]], 1)
    path = nc.linear(from_values(x))
    field, z0 = mlp(path, 4), states(path, 4)
    close(end(path, field, z0), end(nc.linear(from_values(longer)), field, z0))
    # A time channel distinguishes the two paths, which is why it is added (theorem 3.1).
    timed = [nc.linear(from_values(y).with_channels()) for y in (x, longer)]
    a, b = (end(path, mlp(timed[0], 4), z0) for path in timed)
    assert (a - b).abs().max() > 1e-3
