"""Outputs of a solve: last state, states at knots, at times and dense; and their independence of later data."""

import dataclasses

import numpy as np
import pytest
import torch

import neuralcde as nc
from neuralcde.fields import as_field
from neuralcde.solve import ControlTerm, Jump, TimeTerm, solve
from ragged_cases import SCHEMES, at_knots, in_every_piece, random_series
from solve_cases import (
    Case,
    identity_field,
    largest_difference,
    mlp,
    smooth_path,
    some_flow,
    some_jump,
    some_path,
    states,
)


def some_case(scheme="natural_cubic", jumps=True, rows=(1, 6)):
    path = some_path(81, scheme=scheme, rows=rows)
    return Case(path, states(path, 3), some_flow("cde", path, 3), some_jump(path, 3) if jumps else None)


def shares(path, places):
    """The times at these fractions of every interval, shape (series, k)."""
    low, high = path.interval.detach().unbind(1)
    return low[:, None] + (high - low)[:, None] * torch.tensor(places, dtype=torch.float64)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("jumps", [False, True])
def test_all_values_of_save_agree(scheme, jumps, engine):
    """States at knots, at the ends and in between are the same for every value of `save`."""
    case = some_case(scheme, jumps)
    steps = {"steps": nc.AtKnots(substeps=2)}
    knots, dense, last = (case.solve(save=save, **steps) for save in ("knots", "dense", "last"))
    ends = case.path.series.offsets[1:] - 1
    assert torch.equal(knots.last, last.last)
    assert torch.equal(dense.last, last.last)
    assert torch.equal(knots.at_knots[ends], last.last)
    assert torch.equal(dense.evaluate(case.path.interval[:, 1:])[:, 0], last.last)
    for asked in (shares(case.path, [0.5, 0.1, 1.0, 0.0, 0.1, 0.999]), at_knots(case.path.series)):
        at_times = case.solve(save=asked, **steps)
        assert torch.equal(at_times.last, last.last)
        torch.testing.assert_close(at_times.at_times, dense.evaluate(asked), rtol=1e-12, atol=1e-12)
    block = at_times.at_times
    rows = torch.cat([block[i, : len(one.times)] for i, one in enumerate(case.path.series)])
    torch.testing.assert_close(rows, knots.at_knots, rtol=1e-12, atol=1e-12)


def test_shapes_of_the_times(engine):
    case = some_case(rows=(3, 5))
    path = dataclasses.replace(case.path, series=dataclasses.replace(case.path.series))
    dense = solve(path, case.z0, flow=case.flow, save="dense")
    low, high = path.interval[:, 0].max().item(), path.interval[:, 1].min().item()
    shared = torch.tensor([high, low, (low + high) / 2, low], dtype=torch.float64)
    one, many = dense.evaluate(shared[2].item()), dense.evaluate(shared.tolist())
    assert one.shape == (5, 3)
    assert many.shape == (5, 4, 3)
    torch.testing.assert_close(many[:, 2], one, rtol=1e-12, atol=1e-12)
    assert torch.equal(many[:, 1], many[:, 3])  # repeated
    torch.testing.assert_close(dense.evaluate(shared.expand(5, 4)), many, rtol=1e-12, atol=1e-12)
    saved = solve(path, case.z0, flow=case.flow, save=shared).at_times
    torch.testing.assert_close(saved, many, rtol=1e-12, atol=1e-12)
    assert solve(path, case.z0, flow=case.flow, save=torch.zeros(0)).at_times.shape == (5, 0, 3)


@pytest.mark.parametrize("scheme", ["natural_cubic", "linear", "rectilinear"])
def test_between_the_knots_z_is_x_for_the_identity_field(scheme, engine):
    path = some_path(82, scheme=scheme, rows=(2, 6))
    field, z0 = identity_field(path.channels), torch.zeros(len(path), path.channels, dtype=torch.float64)
    asked, _ = in_every_piece(path.series)
    low = path.interval[:, :1]
    expected = path.evaluate(asked) - path.evaluate(low, side="left")
    # In a padded column the time is the start of the series, where z is z0.
    solution = nc.solve_cde(path, field, z0, save="dense", solver="ralston")
    torch.testing.assert_close(solution.evaluate(asked), expected, rtol=0, atol=1e-12)


def test_between_the_knots_against_a_fine_reference(engine):
    """One solver step from the last grid point is as accurate as the solve."""
    path = smooth_path(rows=5)
    field, z0 = mlp(path, 3), states(path, 3)
    asked = shares(path, np.linspace(0, 1, 23).tolist())
    fine = nc.solve_cde(path, field, z0, solver="tsit5", steps=nc.AtKnots(substeps=30), save=asked).at_times
    errors = [
        (nc.solve_cde(path, field, z0, steps=nc.AtKnots(substeps=k), save=asked).at_times - fine).abs().max().item()
        for k in (2, 4)
    ]
    assert errors[1] < 1e-5
    assert errors[0] / errors[1] > 2**3.5


@pytest.mark.parametrize("flow", ["cde", "driven", "autonomous"])
def test_gradients_of_states_between_knots(flow, engine):
    case = Case(
        *(lambda path: (path, states(path, 2), some_flow(flow, path, 2), some_jump(path, 2)))(some_path(83, count=3))
    )
    save = shares(case.path, [0.9, 0.0, 0.35, 0.35, 1.0])
    _, _, expected = case.gradients(gradient="backprop", save=save)
    _, _, found = case.gradients(gradient="checkpoint", save=save)
    assert largest_difference(found, expected) < 1e-11
    _, _, dense = case.gradients(gradient="checkpoint", save="dense")
    _, _, wanted = case.gradients(gradient="backprop", save="dense")
    assert largest_difference(dense, wanted) < 1e-11


def test_states_that_were_not_saved_raise_with_the_fix():
    case = some_case()
    with pytest.raises(ValueError, match='solve with save="knots"'):
        case.solve().at_knots  # noqa: B018
    with pytest.raises(ValueError, match='solve with save="dense"'):
        case.solve().evaluate(0.0)
    with pytest.raises(ValueError, match=r"t=-1.0 lies outside series 's0'"):
        case.solve(save=torch.tensor([-1.0]))
    with pytest.raises(ValueError, match="never extrapolated"):
        case.solve(save="dense").evaluate(1e9)
    assert repr(case.solve()).startswith("Solution(5 series, 3 hidden, ")


def test_times_keep_float64_precision(engine):
    """Unix seconds with float32 values: times are shifted in float64 before they are rounded to float32."""
    series = random_series(84, count=3, rows=(4, 4), dtype=torch.float32)
    late = dataclasses.replace(series, times=series.times + 1.7e9)
    field, z0 = mlp(nc.linear(series), 3), states(nc.linear(series), 3)
    asked = shares(nc.linear(series), [0.3, 0.8])
    here, there = (
        nc.solve_cde(nc.linear(one), field, z0, save=t).at_times for one, t in ((series, asked), (late, asked + 1.7e9))
    )
    torch.testing.assert_close(here, there, rtol=0, atol=2e-5)


def test_asked_times_never_leave_their_step(engine):
    """In a gap of a few units of float64 rounding, z stays between its values at the rows."""
    start, tick = 1.7e9, 2.0**-22
    times = [start, start + 5 * tick]
    path = nc.linear(nc.IrregularSeries.from_list([(times, [[0.0], [1.0]])], dtype=torch.float64))
    asked = start + tick * torch.arange(6, dtype=torch.float64)
    for substeps in range(1, 9):
        steps = nc.AtKnots(substeps=substeps)
        z = nc.solve_cde(path, identity_field(1), torch.zeros(1, 1).double(), steps=steps, save=asked).at_times[0, :, 0]
        assert z[[0, -1]].tolist() == pytest.approx([0, 1])
        assert (z.diff() >= -1e-12).all()
        torch.testing.assert_close(z, torch.arange(6).double() / 5, rtol=0, atol=0.2)


# ---- jumps ----


class Adding(torch.nn.Module):
    """z <- 2 z + x."""

    def forward(self, z, x):
        return 2 * z + x


def walk(jump_rows, flow=None, save="knots", times=(0.0, 1.0, 3.0)):
    """One series with values 1, 10, 100 at three rows, which the jumps add; a flow, if given, adds the elapsed time."""
    values = torch.tensor([[1.0], [10.0], [100.0]], dtype=torch.float64)
    path = nc.linear(nc.IrregularSeries.from_list([(times, values)], dtype=torch.float64))
    jump = Jump(Adding(), values, torch.tensor(jump_rows))
    return solve(path, torch.zeros(1, 1, dtype=torch.float64), flow=flow, jump=jump, save=save)


class Clock(torch.nn.Module):
    """h = 1: z is the time."""

    def forward(self, t, z, x):
        return torch.ones_like(z)


def test_jumps_come_first_and_states_are_read_after_them():
    assert walk([True, True, True]).at_knots[:, 0].tolist() == [1, 12, 124]
    assert walk([True, False, True]).at_knots[:, 0].tolist() == [1, 1, 102]  # no jump at the second row
    clock = TimeTerm(Clock())
    assert walk([True, True, True], clock).at_knots[:, 0].tolist() == [1, 14, 132]
    between = walk([True, True, True], clock, save=torch.tensor([0.0, 0.5, 1.0, 2.0, 3.0]))
    assert between.at_times[0, :, 0].tolist() == [1, 1.5, 14, 15, 132]
    assert between.stats.evaluations.tolist() == [8]


def test_jumps_alone_need_no_evaluations(engine):
    path = some_path(85)
    solution = solve(path, states(path, 3), jump=some_jump(path, 3), save="knots")
    assert solution.stats.evaluations.tolist() == [0] * 5
    assert solution.stats.accepted.tolist() == [0] * 5


def test_jumps_of_a_rectilinear_path_come_after_its_vertical_pieces(engine):
    """At a row, z first follows X to its new value, then jumps."""
    path = some_path(86, scheme="rectilinear", rows=(2, 5), missing=0)
    z0 = torch.zeros(len(path), path.channels, dtype=torch.float64)
    seen = []

    class Looking(torch.nn.Module):
        def forward(self, z, x):
            seen.append(z - x)
            return z

    first = path.series.values[path.series.offsets[:-1]]
    inputs = path.series.values - torch.cat(
        [x[None].expand(n, -1) for x, n in zip(first, path.series.lengths, strict=True)]
    )
    everywhere = torch.ones(len(inputs), dtype=torch.bool)
    solve(path, z0, flow=ControlTerm(as_field(identity_field(path.channels))), jump=Jump(Looking(), inputs, everywhere))
    assert sum(len(x) for x in seen) == len(inputs)
    assert torch.cat(seen).abs().max() < 1e-12


# ---- causality ----


CAUSAL = ["rectilinear", "linear-forward", "hermite-forward"]
PRESENT = 5


@pytest.mark.parametrize("scheme", CAUSAL)
@pytest.mark.parametrize("flow", ["cde", "driven"])
def test_the_future_does_not_change_the_past(scheme, flow, engine):
    """With other values, gaps and missing values after the present, earlier states are bitwise equal."""
    series = random_series(87, count=4, rows=(10, 10), channels=2).with_channels()
    rows = torch.arange(40) % 10
    values, times = series.values.clone(), series.times.clone()
    future = rows > PRESENT
    values[future, 1:] = torch.where(torch.rand(int(future.sum()), 2) < 0.3, torch.nan, 7.0).double()
    other = dataclasses.replace(series, values=values, times=times)
    paths = [SCHEMES[scheme](one) for one in (series, other)]
    z0, moves, jump = states(series, 3), some_flow(flow, paths[0], 3), some_jump(paths[0], 3)
    a, b = (solve(path, z0, flow=moves, jump=jump, save="knots").at_knots for path in paths)
    assert torch.equal(a[~future], b[~future])
    assert not torch.equal(a[future], b[future])


def test_natural_cubic_sees_the_future(engine):
    """Shows that the test above can fail."""
    series = random_series(87, count=4, rows=(10, 10), channels=2, missing=0)
    rows = torch.arange(40) % 10
    other = dataclasses.replace(series, values=series.values + (rows == 9)[:, None])
    z0 = states(series, 3)
    field = mlp(nc.natural_cubic(series), 3)
    a, b = (nc.solve_cde(nc.natural_cubic(one), field, z0, save="knots").at_knots for one in (series, other))
    assert (a - b)[rows == 1].abs().min() > 1e-9


@pytest.mark.parametrize("flow", ["cde", "driven"])
@pytest.mark.parametrize("scheme", ["natural_cubic", "linear", "rectilinear"])
def test_the_derivative_of_the_solution(flow, scheme, engine):
    """It is the limit of difference quotients of `evaluate`, also just after a knot.

    That is so for short steps: the states between two steps are those of a partial step, with its own error.
    """
    path = some_path(44, scheme=scheme, count=4, rows=(3, 6))
    options = {"solver": "tsit5", "steps": nc.AtKnots(8), "save": "dense"}
    solution = solve(path, states(path, 3), flow=some_flow(flow, path, 3), **options)
    low, high = path.interval.unbind(1)
    asked = low[:, None] + (high - low)[:, None] * torch.tensor([0.0, 0.21, 0.77], dtype=torch.float64)
    asked = torch.cat([asked, path.knots[path.series.offsets[:-1] + 1][:, None]], dim=1)
    step = 1e-6
    quotient = (solution.evaluate(asked + step) - solution.evaluate(asked)) / step
    torch.testing.assert_close(solution.derivative(asked), quotient, rtol=1e-5, atol=1e-5)
    assert solution.derivative(float(low.max())).shape == (4, 3) if low.max() <= high.min() else True
    with pytest.raises(ValueError, match='solve with save="dense"'):
        solve(path, states(path, 3), flow=some_flow(flow, path, 3)).derivative(0.0)


def test_the_times_of_the_steps(engine):
    path = some_path(45, count=3, rows=(3, 6))
    for steps in (nc.AtKnots(), nc.AtKnots(3), nc.Adaptive(1e-4)):
        solution = nc.solve_cde(path, mlp(path, 3), states(path, 3), solver="tsit5", steps=steps, save="dense")
        taken = solution.step_offsets.diff() - 1
        assert torch.equal(taken, solution.stats.accepted)
        for i, (low, high) in enumerate(path.interval.tolist()):
            own = solution.step_times[solution.step_offsets[i] : solution.step_offsets[i + 1]]
            assert own[0] == low
            assert own[-1] == pytest.approx(high)
            assert (own.diff() > 0).all()
            assert all((own - knot).abs().min() < 1e-9 for knot in path[i].knots)
