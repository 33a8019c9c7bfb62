"""The public solve functions: from a path, a field and an initial state to a solution."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ..fields import VectorField, as_field
from ..paths import ControlPath
from ..series import ragged
from .asked_states import Save, saved_events, slopes_at_times, states_at_times
from .checks import check_choices, check_problem, check_solver, has_failures
from .events import Events, events_of, knot_events
from .gradients import Backsolve, Checkpoint, Gradient, Reversible, as_gradient
from .grid_events import GridEvents
from .loop import Problem
from .not_compiled import not_compiled
from .run import Run
from .solution import Solution, SolveError, Stats, Status
from .solvers import Solver, Tableau, as_solver
from .step_memory import check_step_memory, kept_bytes
from .steps import Adaptive, AtKnots, Steps, fixed_grid, steps_per_piece
from .terms import ControlTerm, Jump, RestartingJump, Term
from .walked_solution import walked_solution, with_error_estimate
from .walks import Walker

ONE_PER_PIECE = AtKnots()


def solve_cde(
    path: ControlPath,
    field: VectorField | Callable[..., Any],
    z0: Float[Tensor, "series hidden"],
    *,
    solver: str | Solver = "rk4",
    steps: Steps | None = None,
    gradient: str | Gradient = "checkpoint",
    save: Save = "last",
    error: bool = False,
    throw: bool = True,
) -> Solution:
    r"""Solve the controlled differential equation $z(t) = z_0 + \int_{t_0}^t f(z_s)\, \mathrm{d}X_s$ of every series.

    On each piece of the path the integral is $\int f(z) X'(u)\, \mathrm{d}u$, which a Runge-Kutta method solves. Steps
    never cross a knot, so X is never evaluated on the wrong side of a knot or outside its interval. Each series has its
    own steps, and its result does not depend on the other series of the batch.

    Parameters
    ----------
    path
        The control X, a batch of paths. To solve on a part of their intervals, pass `path.restrict(start, end)`.
    field
        f: a `VectorField`, any function or module f(t, z) -> (batch, hidden, channels), or an `nn.Sequential` of z.
    z0
        Initial states.
    solver
        "euler", "midpoint", "heun", "ralston", "rk4" (the 3/8 rule), "dopri5", "tsit5", "ees25", "reversible_heun", or
        a `Tableau`.
    steps
        `AtKnots(substeps=1)` (default), `FixedSteps(size)`, or `Adaptive(rtol, atol, max_steps)`.
    gradient
        "checkpoint" (default, or `Checkpoint(every=k)`), "backprop", "backsolve", "reversible".
    save
        Which states to keep: "last"; "knots"; "dense", for `solution.evaluate`; or those at a tensor of times, of shape
        (k,) shared by all series or (series, k). The last state is always kept.
    error
        Whether to estimate the error by step doubling: solve again with steps of half the length, and store the
        extrapolated difference as `solution.stats.error`.
    throw
        Raise `SolveError` if a state stops being finite or `max_steps` is reached. If False, `solution.status` says so.

    Returns
    -------
    Solution

    Raises
    ------
    ValueError
        For shapes, dtypes or values that do not match.
    SolveError
        If a solve fails; the message names the series and the time.

    Notes
    -----
    Cost: stages x steps evaluations of f per series. Fields made of supported layers run on the native engine, all
    others in plain torch, with the same result up to rounding. `solution.stats.engine` says which engine ran, and
    why.

    Examples
    --------
    >>> import torch, neuralcde as nc
    >>> path = nc.linear(nc.IrregularSeries.from_list([([0.0, 1.0, 3.0], [[0.0], [2.0], [5.0]])]))
    >>> def identity(t, z):
    ...     return torch.ones(len(z), 1, 1)
    >>> nc.solve_cde(path, identity, torch.zeros(1, 1)).last.item()
    5.0
    """
    return solve(
        path,
        z0,
        flow=ControlTerm(as_field(field)),
        solver=solver,
        steps=steps,
        gradient=gradient,
        save=save,
        error=error,
        throw=throw,
    )


@not_compiled
def solve(
    path: ControlPath,
    z0: Float[Tensor, "series hidden"],
    *,
    flow: Term | None = None,
    jump: Jump | None = None,
    solver: str | Solver = "rk4",
    steps: Steps | None = None,
    gradient: str | Gradient = "checkpoint",
    save: Save = "last",
    error: bool = False,
    throw: bool = True,
    start: Float[Tensor, "series"] | None = None,
) -> Solution:
    """Solve an equation with a flow between observations, a jump at observations, or both.

    `solve_cde` is the special case of a `ControlTerm` without jumps.

    Parameters
    ----------
    path, z0
        Control paths and initial states.
    flow
        The flow between knots: a `ControlTerm` f(t, z) dX or a `TimeTerm` h(t, z, X) dt.
    jump
        The update of the state at observed rows.
    solver, steps, gradient, save, error, throw
        As in `solve_cde`.
    start
        The time from which the t of a field counts; None for the first time of each path.
    """
    chosen, method = as_solver(solver), as_gradient(gradient)
    steps = ONE_PER_PIECE if steps is None else steps
    check_problem(path, z0, flow, jump)
    check_choices(steps, save)
    if flow is not None:
        check_solver(chosen, steps, method)
    rows = None if jump is None else jump.rows
    walk, known, walker = None, None, None
    walks = isinstance(steps, Adaptive) or isinstance(method, Backsolve | Reversible)
    if flow is not None and walks and isinstance(chosen, Tableau):
        every = method.every if isinstance(method, Reversible) else 0
        walker = Walker(path, flow, jump, z0, chosen, steps, every, start)
        solution = None if error and isinstance(steps, Adaptive) else walked_solution(walker, method, save)
        if solution is not None:
            if error:
                solution = with_error_estimate(solution, walker)
            _raise_if(throw, solution.statuses, solution.reached, path, steps)
            return solution
        if isinstance(steps, Adaptive):
            walk = walker.walk(walker.programs, at_rows=False, before_jumps=False, keep_steps=True)
            known = walk.states
    # What the solver carries from step to step: the state first, for most solvers nothing else.
    hidden, carried = z0.shape[1], z0 if flow is None else chosen.carry(z0)
    if jump is not None and carried is not z0:
        jump = RestartingJump(jump.cell, jump.inputs, jump.rows, chosen.carry, hidden)
    grid, simple, counts = None, None, None
    if walk is not None:
        grid = walk.grid
    elif flow is not None:
        assert not isinstance(steps, Adaptive)
        simple = knot_events(path, rows) if steps == ONE_PER_PIECE and not error else None
        reverses = isinstance(method, Backsolve | Reversible)
        everywhere = isinstance(save, str) and save == "dense"
        if simple is None and reverses and not everywhere and not path.knots.requires_grad:
            # Not listed, so that memory does not grow with the steps; but the native engine reads a list.
            every_kept = kept_bytes(carried, method.every) if isinstance(method, Reversible) else 0.0
            per_piece = steps_per_piece(path, steps)
            listed = walker is not None and not isinstance(walker.programs, str)
            check_step_memory(path, per_piece, every_kept, steps, listed=listed)
            counts = per_piece.long()
        elif simple is None:
            every = method.every if isinstance(method, Checkpoint | Reversible) else 1
            grid = fixed_grid(path, steps, state_bytes=kept_bytes(carried, every))

    # The gradient treats the steps as given, so the solve itself runs on a fixed grid, however that was found.
    run = Run(method, steps)
    finished = None if walk is None else walk.finished
    events: Events
    if simple is not None:
        events, reached = simple, None
    elif counts is not None:
        events, reached = (on_demand := GridEvents(path, counts, rows)), on_demand.reached
    else:
        events, reached = events_of(path, grid, rows, finished)
    saved = saved_events(events, reached, save, path)
    start = path.knots.index_select(0, path.series.offsets[:-1]) if start is None else start
    problem = Problem(flow, jump, chosen, path.coefficients, start, carried, events, saved)
    states, failed, engine, evaluated = run(problem, known)

    last = states if isinstance(save, str) and save == "last" else states[saved.offsets[1:] - 1]
    last = last[:, :hidden]
    ended = events.time.detach().index_select(0, events.offsets[1:] - 1)
    statuses = torch.zeros_like(failed) if walk is None else walk.statuses
    if walk is not None or has_failures(failed):
        statuses = torch.where(failed >= 0, 1, statuses)
        ended = torch.where(failed >= 0, events.time.detach()[events.offsets[:-1] + failed.clamp(min=0)], ended)
        _raise_if(throw, statuses, ended, path, steps)
    estimate = None
    # Step doubling with Richardson extrapolation: halving the steps of a method of order p divides its error by 2**p.
    if error and (grid is not None or counts is not None):
        if counts is not None:
            finer: Events = (halved := GridEvents(path, 2 * counts, rows))
            reach = halved.reached
        else:
            assert grid is not None
            finer, reach = events_of(path, grid.halved(), rows, finished)
        ends = saved_events(finer, reach, "last", path)
        with torch.no_grad():
            fine = run(dataclasses.replace(problem, z0=carried.detach(), events=finer, saved=ends)).states
        estimate = (fine[:, :hidden] - last.detach()).abs().amax(1) * 2**chosen.order / (2**chosen.order - 1)
    accepted = events.counts - 1 if flow is not None else torch.zeros_like(events.counts)
    cost = accepted * (chosen.stages if evaluated else 0)
    stats = Stats(
        evaluations=cost if walk is None else cost + walk.evaluations,
        accepted=accepted,
        rejected=torch.zeros_like(accepted) if walk is None else walk.rejected,
        engine=engine,
        error=estimate,
    )
    solution = Solution(path, last, stats, statuses, ended)
    if isinstance(save, Tensor):
        at_times = states_at_times(run, problem, path, states, save, dense=False)
        return dataclasses.replace(solution, at_times=at_times[..., :hidden])
    if save == "knots":
        return dataclasses.replace(solution, states_at_knots=states[:, :hidden])
    if save == "dense":
        at_rows = saved_events(events, reached, "knots", path)
        first = events.offsets[:-1][ragged.series_of_rows(at_rows.offsets)]

        def dense(t: Tensor) -> Tensor:
            return states_at_times(run, problem, path, states, t, dense=True)[..., :hidden]

        return dataclasses.replace(
            solution,
            states_at_knots=states[first + at_rows.event, :hidden],
            dense=dense,
            slope=lambda t: slopes_at_times(problem, path, dense(t), t),
            step_times=events.time,
            step_offsets=events.offsets,
        )
    return solution


def _raise_if(throw: bool, statuses: Tensor, times: Tensor, path: ControlPath, steps: Steps) -> None:
    if not throw or not bool((statuses > 0).any()):
        return
    first = int((statuses > 0).nonzero()[0, 0])
    status = list(Status)[int(statuses[first])]
    fix = "Take more steps (AtKnots(substeps=2)), bound the field (a final tanh), scale the data"
    if isinstance(steps, Adaptive):
        fix = "No step is short enough there. Bound the field (a final tanh), scale the data"
    if status is Status.max_steps:
        fix = "Raise max_steps or the tolerances of Adaptive(rtol=, atol=, max_steps=), bound the field (a final tanh)"
    raise SolveError(
        f"series {ragged.series_name(path.series.ids, first)} at t={float(times[first]):g}: {status.value} "
        f"({int((statuses > 0).sum())} of {len(path)} series).",
        f"{fix}, or pass throw=False.",
    )
