"""Adaptive step sizes: accuracy within the tolerance, independence of series, and early stops."""

import pytest
import torch
from closed_forms import CLOSED_FORMS

import neuralcde as nc
from neuralcde.solve import ControlTerm, Jump, SolveError, Status, solve, solvers
from neuralcde.solve.adaptive import adaptive_grid
from ragged_cases import random_series
from solve_cases import Case, largest_difference, mlp, smooth_path, some_flow, some_jump, some_path, states


def rise(path):
    low, high = path.interval.unbind(1)
    return (path.evaluate(high[:, None]) - path.evaluate(low[:, None], side="left"))[:, 0]


@pytest.mark.parametrize("solver", ["dopri5", "tsit5"])
@pytest.mark.parametrize("problem", CLOSED_FORMS)
def test_the_tolerance_is_honoured(problem, solver):
    """On rough data. Errors accumulate over the steps, so the final error may be a multiple of the tolerance."""
    form = CLOSED_FORMS[problem]
    path = nc.natural_cubic(random_series(91, count=4, rows=(3, 6), channels=form.channels, missing=0.2))
    exact, previous = form.end(form.z0(4), rise(path)), None
    for tolerance in (1e-3, 1e-6, 1e-9):
        solution = nc.solve_cde(path, form.field, form.z0(4), solver=solver, steps=nc.Adaptive(tolerance, tolerance))
        error = ((solution.last - exact).abs() / (1 + exact.abs())).max().item()
        assert error < 20 * tolerance
        assert solution.status is Status.done
        taken = solution.stats.accepted
        assert previous is None or (taken >= previous).all()
        previous = taken
    assert (taken > path.piece_offsets.diff()).any()


def test_steps_end_at_knots_and_values_are_those_of_their_grid():
    """The accepted steps form a fixed grid: in every piece they cover [0, 1] without gaps."""
    path = some_path(92, scheme="hermite", rows=(1, 6))
    steps = nc.Adaptive(1e-6)
    found = adaptive_grid(
        path, ControlTerm(mlp(path, 3)), None, states(path, 3), solvers["tsit5"], steps, path.interval[:, 0]
    )
    grid = found.grid
    assert found.finished.tolist() == path.piece_offsets.diff().tolist()
    for piece in range(len(path.coefficients)):
        inside = grid.piece == piece
        ends = torch.cat([torch.zeros(1).double(), (grid.start + grid.length)[inside]])
        assert ends[-1] == 1
        assert torch.equal(ends[:-1], grid.start[inside])


def test_gradients_take_the_steps_as_given(engine):
    case = Case(*(lambda path: (path, states(path, 3), some_flow("cde", path, 3), some_jump(path, 3)))(some_path(93)))
    options = {"solver": "tsit5", "steps": nc.Adaptive(1e-3), "save": "knots"}
    _, _, expected = case.gradients(gradient="backprop", **options)
    _, _, found = case.gradients(gradient="checkpoint", **options)
    assert largest_difference(found, expected) < 1e-10


@pytest.mark.parametrize("jumps", [False, True])
def test_alone_or_in_a_batch(jumps):
    """Smooth and rough series, and one with a single knot: each has its own steps."""
    scales = [0.01, 1.0, 8.0, 1.0]
    lengths = [3, 4, 5, 1]
    drawn = random_series(94, count=4, rows=(5, 5), missing=0)
    pairs = [(one.times[:n], scale * one.values[:n]) for one, n, scale in zip(drawn, lengths, scales, strict=True)]
    path = nc.hermite(nc.IrregularSeries.from_list(pairs, dtype=torch.float64))
    flow, z0 = ControlTerm(mlp(path, 3)), states(path, 3)
    jump = some_jump(path, 3, every_row=True) if jumps else None
    options = {"solver": "dopri5", "steps": nc.Adaptive(1e-6)}
    together = solve(path, z0, flow=flow, jump=jump, **options)
    assert together.stats.accepted.unique().numel() == 4
    for i in range(4):
        rows = slice(path.series.offsets[i], path.series.offsets[i + 1])
        own = None if jump is None else Jump(jump.cell, jump.inputs[rows], jump.rows[rows])
        alone = solve(path[i], z0[i : i + 1], flow=flow, jump=own, **options)
        for name in ("accepted", "rejected", "evaluations"):
            assert getattr(alone.stats, name).item() == getattr(together.stats, name)[i]
        torch.testing.assert_close(alone.last, together.last[i : i + 1], rtol=1e-12, atol=1e-12)


def test_easy_paths_take_one_step_per_piece():
    path = smooth_path(rows=8)
    solution = nc.solve_cde(path, mlp(path, 3), states(path, 3), solver="tsit5", steps=nc.Adaptive(1e-2, 1e-2))
    assert solution.stats.accepted.tolist() == [7, 7, 7]
    assert solution.stats.rejected.tolist() == [0, 0, 0]


def test_rectilinear_and_linear_paths_cost_no_rejections_at_knots():
    """Steps end at the knots, so no step crosses a corner."""
    for scheme in ("linear", "rectilinear"):
        path = some_path(95, scheme=scheme, rows=(20, 20), count=2)
        stats = nc.solve_cde(path, mlp(path, 3), states(path, 3), solver="tsit5", steps=nc.Adaptive(1e-4, 1e-6)).stats
        assert (stats.rejected < stats.accepted / 2).all()


def stopping(throw, save="last", jump=None, max_steps=12):
    path = some_path(96, scheme="linear", count=3, rows=(4, 4), missing=0)
    path.coefficients[path.piece_offsets[1] : path.piece_offsets[2], 1] *= 20  # make the second series hard
    field = mlp(path, 2)
    options = {"solver": "tsit5", "steps": nc.Adaptive(1e-6, 1e-6, max_steps=max_steps)}
    return (
        path,
        solve(path, states(path, 2), flow=ControlTerm(field), jump=jump, throw=throw, save=save, **options),
        field,
    )


def test_max_steps_stops_one_series_where_it_is():
    path, solution, field = stopping(throw=False)
    assert solution.status is Status.max_steps
    assert solution.statuses.tolist() == [0, 2, 0]
    assert (solution.stats.accepted + solution.stats.rejected)[1] == 12
    low, high = path.interval.unbind(1)
    assert solution.reached[[0, 2]].tolist() == high[[0, 2]].tolist()
    assert low[1] < solution.reached[1] < high[1]
    assert solution.last.isfinite().all()
    # The state is that at the time reached; the other series are complete.
    fine = nc.solve_cde(path, field, states(path, 2), solver="tsit5", steps=nc.AtKnots(substeps=300), save="dense")
    at = fine.evaluate(solution.reached[:, None])[:, 0]
    torch.testing.assert_close(solution.last, at, rtol=1e-4, atol=1e-4)


def test_max_steps_raises_with_series_and_time():
    _, solution, _ = stopping(throw=False)
    message = rf"series 's1' at t={float(solution.reached[1]):g}: max_steps reached before the end.*1 of 3 series"
    with pytest.raises(SolveError, match=message):
        stopping(throw=True)


def test_outputs_of_a_series_that_stopped():
    """At times and rows after the stop the state is the one at the stop; earlier states are correct."""
    path, last, field = stopping(throw=False)
    reached = last.reached[1].item()
    low, high = path.interval[1].tolist()
    _, knots, _ = stopping(throw=False, save="knots")
    rows = path.series.times[4:8]
    later = rows > reached
    assert 0 < later.sum() < 4
    assert torch.equal(knots.at_knots[4:8][later], last.last[1].expand(int(later.sum()), -1))
    fine = nc.solve_cde(path, field, states(path, 2), solver="tsit5", steps=nc.AtKnots(substeps=300), save="dense")
    asked = torch.tensor([low, (low + reached) / 2, reached, (reached + high) / 2, high], dtype=torch.float64)
    asked = torch.stack([path.interval[0, :1].expand(5), asked, path.interval[2, :1].expand(5)])
    _, times, _ = stopping(throw=False, save=asked)
    assert torch.equal(times.at_times[1, 3:], last.last[1].expand(2, -1))
    torch.testing.assert_close(times.at_times[1, :3], fine.evaluate(asked)[1, :3], rtol=1e-4, atol=1e-4)
    _, dense, _ = stopping(throw=False, save="dense")
    torch.testing.assert_close(dense.evaluate(asked), times.at_times, rtol=1e-12, atol=1e-12)


def test_rows_that_were_not_reached_cause_no_jump():
    path = some_path(96, scheme="linear", count=3, rows=(4, 4), missing=0)
    seen = []

    class Watching(torch.nn.Module):
        def forward(self, z, x):
            seen.extend(x[:, 0].tolist())
            return z

    rows = torch.arange(12, dtype=torch.float64)[:, None]
    jump = Jump(Watching(), rows, torch.ones(12, dtype=torch.bool))
    _, solution, _ = stopping(throw=False, jump=jump)
    finished = (path.series.times[4:8] <= solution.reached[1]).sum().item()
    assert finished < 4
    assert set(seen) == {0, 1, 2, 3, *range(4, 4 + finished), 8, 9, 10, 11}


def test_a_series_whose_steps_all_overflow_stops():
    """Steps do not shrink for ever."""
    path = nc.linear(nc.IrregularSeries.from_list([([0.0, 1.0], [[0.0], [1.0]])] * 2, dtype=torch.float64))

    def field(t, z):
        return torch.exp(500 * z)[..., None]

    z0 = torch.tensor([[0.0], [-3.0]], dtype=torch.float64)
    solution = nc.solve_cde(path, field, z0, solver="tsit5", steps=nc.Adaptive(), throw=False)
    assert solution.statuses.tolist() == [1, 0]
    assert solution.reached[0] < 0.01
    assert solution.stats.rejected[0] < 200


# An embedded pair whose last stage is not at the end of the step: Heun's method with Euler's method embedded.
heun_euler = nc.Tableau("heun-euler", 2, "Heun 1900", a=((), (1.0,)), b=(0.5, 0.5), c=(0.0, 1.0), b_error=(0.5, -0.5))


def test_a_tableau_that_is_not_first_same_as_last():
    form, path = CLOSED_FORMS["logistic"], smooth_path(channels=1)
    assert not heun_euler.first_same_as_last
    solution = nc.solve_cde(path, form.field, form.z0(3), solver=heun_euler, steps=nc.Adaptive(1e-6, 1e-6))
    torch.testing.assert_close(solution.last, form.end(form.z0(3), rise(path)), rtol=0, atol=2e-5)
    tried, accepted = solution.stats.accepted + solution.stats.rejected, solution.stats.accepted
    # Search: two stages per tried step, minus the first stage of retried steps. Then two stages per accepted step.
    expected = 2 * tried - solution.stats.rejected + 2 * accepted
    assert solution.stats.evaluations.tolist() == expected.tolist()


@pytest.mark.parametrize("solver", ["euler", "rk4"])
def test_a_solver_without_error_estimate_is_refused(solver):
    path = smooth_path()
    with pytest.raises(
        ValueError, match=rf"Adaptive needs a solver with an error estimate .dopri5, tsit5., got '{solver}'"
    ):
        nc.solve_cde(path, mlp(path, 3), states(path, 3), solver=solver, steps=nc.Adaptive())


def test_single_precision():
    path = some_path(97, dtype=torch.float32)
    field, z0 = mlp(path, 3), states(path, 3)
    found = nc.solve_cde(path, field, z0, solver="tsit5", steps=nc.Adaptive(1e-4, 1e-5))
    assert found.last.dtype == torch.float32
    fine = nc.solve_cde(path, field, z0, solver="tsit5", steps=nc.AtKnots(substeps=50))
    torch.testing.assert_close(found.last, fine.last, rtol=1e-3, atol=1e-3)


def test_zero_tolerance_accepts_zero_error():
    """A state that stays zero has no error, so it is within a tolerance of zero."""
    path = nc.linear(nc.IrregularSeries.from_list([([0.0, 1.0, 3.0], [[0.0], [2.0], [5.0]])]))
    still = nc.solve_cde(
        path,
        lambda t, z: torch.zeros(len(z), 2, 1),
        torch.zeros(1, 2),
        solver="tsit5",
        steps=nc.Adaptive(rtol=1e-6, atol=0.0),
    )
    assert still.stats.rejected.tolist() == [0]
