"""Solving: from a path, a field and an initial state to the states asked for."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..engine import (
    MOST_STAGES,
    Events,
    KnotEvents,
    Program,
    Saved,
    engine_name,
    evaluate_rows,
    lower_flow,
    lower_jump,
    solve_natively,
    transformed,
)
from ..fields import VectorField, as_field
from ..paths import ControlPath
from ..series import ragged
from .adaptive import Evaluations, adaptive_grid
from .backsolve import solve_with_adjoint
from .checks import check_choices, check_problem
from .gradients import Backprop, Backsolve, Checkpoint, Gradient, as_gradient
from .loop import Flow, Jump, Problem, solve_plainly
from .not_compiled import not_compiled
from .solution import Solution, SolveError, Stats, Status
from .solvers import Tableau, as_solver
from .step_memory import kept_bytes
from .steps import Adaptive, AtKnots, Steps, events_of, fixed_grid, knot_events

Save = Literal["last", "knots", "dense"] | Tensor


def solve_cde(
    path: ControlPath,
    field: VectorField | Callable[..., Any],
    z0: Float[Tensor, "series hidden"],
    *,
    solver: str | Tableau = "rk4",
    steps: Steps | None = None,
    gradient: str | Gradient = "checkpoint",
    save: Save = "last",
    error: bool = False,
    throw: bool = True,
) -> Solution:
    r"""Solve the controlled differential equation $z(t) = z_0 + \int_{t_0}^t f(z_s)\, \mathrm{d}X_s$ of every series.

    On each piece of the path the integral is $\int f(z) X'(u)\, \mathrm{d}u$, solved by a Runge-Kutta method whose steps never
    cross a knot: X is never evaluated on the wrong side of one, nor outside its interval. Each series has its own
    steps, so a batch costs what its longest series costs, and one series' result does not depend on the others.

    Parameters
    ----------
    path
        The control X, a batch of paths.
    field
        f: a `VectorField`, any function or module f(t, z) -> (batch, hidden, channels), or an `nn.Sequential` of z.
    z0
        Initial states.
    solver
        "euler", "midpoint", "heun", "ralston", "rk4" (the 3/8 rule), "dopri5", "tsit5", or a `Tableau`.
    steps
        `AtKnots(substeps=1)` (default), `FixedSteps(size)`, or `Adaptive(rtol, atol, max_steps)`.
    gradient
        "checkpoint" (default, or `Checkpoint(every=k)`), "backprop", "backsolve".
    save
        What to keep besides the last state: "knots", "dense" (for `solution.evaluate`), or a tensor of times, (k,) shared
        or (series, k) per series.
    error
        Solve once more with steps of half the length and give the difference, extrapolated, as `solution.stats.error`.
    throw
        Raise `SolveError` when a state stops being finite or `max_steps` is reached; else see `solution.status`.

    Returns
    -------
    Solution

    Raises
    ------
    ValueError
        For shapes, types or values that do not fit, naming what was found.
    SolveError
        Naming the series and the time.

    Notes
    -----
    Cost: stages x steps evaluations of f for each series. Fields made of known layers run on the native engine; every
    other one on plain torch, with the same numbers; `solution.stats.engine` says which and why.

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
        flow=Flow(as_field(field)),
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
    flow: Flow | None = None,
    jump: Jump | None = None,
    solver: str | Tableau = "rk4",
    steps: Steps | None = None,
    gradient: str | Gradient = "checkpoint",
    save: Save = "last",
    error: bool = False,
    throw: bool = True,
) -> Solution:
    """The one loop over a series' own knots, with an optional flow between them and an optional jump at them.

    What `solve_cde` is made of; parameters as there, and `Flow` and `Jump` for other models than a CDE.
    """
    tableau, method = as_solver(solver), as_gradient(gradient)
    steps = AtKnots() if steps is None else steps
    check_problem(path, z0, flow, jump)
    check_choices(steps, save)
    rows = None if jump is None else jump.rows
    run = _Run(path, flow, jump, tableau, method, steps)
    found, grid = None, None
    simple = knot_events(path, rows) if flow is not None and steps == AtKnots() and not error else None
    if flow is not None and isinstance(steps, Adaptive):
        found = adaptive_grid(path, run.evaluations(z0), jump, z0.detach(), tableau, steps)
        grid = found.grid
    elif flow is not None and simple is None and not isinstance(steps, Adaptive):
        every = method.every if isinstance(method, Checkpoint) else 1
        grid = fixed_grid(path, steps, state_bytes=kept_bytes(z0, every))

    finished = None if found is None else found.finished
    events, reached = events_of(path, grid, rows, finished) if simple is None else (simple, None)
    saved = _saved_events(events, reached, save, path)
    states, failed, engine = run(z0, events, saved.wanted)

    last = states if isinstance(save, str) and save == "last" else states[saved.wanted.offsets[1:] - 1]
    last_event = events.offsets[1:] - 1
    statuses = torch.where(failed >= 0, 1, 0)
    if finished is not None:
        statuses = torch.where(finished < ragged.lengths(path.piece_offsets), 2, statuses)
    times = events.time.detach()
    ended = times[torch.where(failed >= 0, events.offsets[:-1] + failed, last_event)]
    _raise_if(throw, statuses, ended, path)
    estimate = None
    if error and grid is not None:
        finer, reach = events_of(path, grid.halved(), rows, finished)
        with torch.no_grad():
            fine, *_ = run(z0.detach(), finer, _saved_events(finer, reach, "last", path).wanted)
        estimate = (fine - last.detach()).abs().amax(1) * 2**tableau.order / (2**tableau.order - 1)
    accepted = events.counts - 1 if flow is not None else torch.zeros_like(events.counts)
    stats = Stats(
        evaluations=accepted * tableau.stages + (0 if found is None else found.evaluations),
        accepted=accepted,
        rejected=torch.zeros_like(accepted) if found is None else found.rejected,
        engine=engine,
        error=estimate,
    )
    solution = Solution(path, last, stats, statuses, ended)
    if isinstance(save, Tensor):
        return dataclasses.replace(solution, at_times=saved.finish(run, states))
    if save == "knots":
        return dataclasses.replace(solution, states_at_knots=saved.finish(run, states))
    if save == "dense":
        return dataclasses.replace(solution, dense=lambda t: _between(run, events, states, path, t))
    return solution


@dataclasses.dataclass(frozen=True, eq=False)
class _Run:
    """One way of running the loop: by which engine, differentiated how."""

    path: ControlPath
    flow: Flow | None
    jump: Jump | None
    tableau: Tableau
    method: Gradient
    steps: Steps

    def __call__(self, z0: Tensor, events: Events, saved: Saved) -> tuple[Tensor, Tensor, str]:
        problem = Problem(self.path, self.flow, self.jump, self.tableau, z0, events, saved)
        programs = self._programs_of(problem)
        if isinstance(self.method, Backsolve) and transformed():
            raise ValueError(
                'gradient="backsolve" knows neither torch.func nor forward mode; use gradient="checkpoint".'
            )
        if isinstance(programs, str):
            method = Backprop() if transformed() or isinstance(self.method, Backsolve) else self.method
            if isinstance(self.method, Backsolve) and torch.is_grad_enabled():
                return *solve_with_adjoint(problem, self._forward_only, self.steps), f"torch: {programs}"
            return *solve_plainly(problem, method), f"torch: {programs}"
        if isinstance(self.method, Backsolve) and torch.is_grad_enabled():
            return *solve_with_adjoint(
                problem, self._forward_only, self.steps
            ), f"{engine_name()} forward, torch backward"
        if isinstance(self.method, Backprop) and torch.is_grad_enabled():
            return *solve_plainly(problem, self.method), "torch: backprop differentiates the plain loop"
        every = self.method.every if isinstance(self.method, Checkpoint) else 1
        return *self._natively(problem, *programs, every), engine_name()

    def _forward_only(self, problem: Problem) -> tuple[Tensor, Tensor]:
        programs = self._programs_of(problem)
        if isinstance(programs, str):
            return solve_plainly(problem, Backprop())
        return self._natively(problem, *programs, 1)

    def _natively(
        self, problem: Problem, flow: Program | None, jump: Program | None, every: int
    ) -> tuple[Tensor, Tensor]:
        return solve_natively(
            flow,
            jump,
            controlled=self.flow is not None and self.flow.controlled,
            tableau=self.tableau.tensors(),
            z0=problem.z0,
            coefficients=self.path.coefficients,
            row_inputs=None if self.jump is None else self.jump.inputs,
            events=problem.events,
            saved=problem.saved,
            every=every,
        )

    def evaluations(self, z0: Tensor) -> Evaluations:
        """Flow and jump one evaluation at a time, without gradients: natively where that can be."""
        flow, programs = self.flow, self._programs(z0)
        assert flow is not None
        if isinstance(programs, str):
            return Evaluations.in_torch(flow, self.jump)
        moves, jumps = programs

        def increment(t: Tensor, z: Tensor, drive: Tensor, duration: Tensor) -> Tensor:
            assert moves is not None
            change = evaluate_rows(moves, torch.cat([z, drive], dim=1) if moves.input else z)
            return change if flow.controlled else change * duration

        def jumped(z: Tensor, row: Tensor) -> Tensor:
            assert jumps is not None
            return evaluate_rows(jumps, torch.cat([z, row], dim=1))

        return Evaluations(increment, jumped, flow.controlled)

    def _programs_of(self, problem: Problem) -> tuple[Program | None, Program | None] | str:
        """Programs of flow and jump for all events, or why the plain loop must run."""
        events = problem.events
        if self.flow is not None and not self.flow.controlled and events.time.requires_grad:
            return "the times require gradients"
        if self.flow is not None and not isinstance(events, KnotEvents) and events.length.requires_grad:
            return "the times require gradients"
        return self._programs(problem.z0)

    def _programs(self, z0: Tensor) -> tuple[Program | None, Program | None] | str:
        """Programs of flow and jump, or why there are none."""
        if os.environ.get("NEURALCDE_ENGINE", "") == "torch":
            return "NEURALCDE_ENGINE=torch"
        if engine_name() == "torch":
            return "no native kernels"
        if z0.device.type != "cpu":
            return f"the state is on {z0.device}"
        if transformed():
            return "inside a torch.func transform, or in forward mode"
        if z0.dtype not in (torch.float32, torch.float64):
            return f"the state is {z0.dtype}"
        if self.tableau.stages > MOST_STAGES:
            return f"{self.tableau.name} has more than {MOST_STAGES} stages"
        programs: list[Program | None] = []
        for module, lower, inputs in (
            (None if self.flow is None else self.flow.field, lower_flow, self.path.channels),
            (
                None if self.jump is None else self.jump.cell,
                lower_jump,
                0 if self.jump is None else self.jump.inputs.shape[1],
            ),
        ):
            program = None if module is None else lower(module, z0.shape[1], inputs)
            if isinstance(program, str):
                return program
            if program is not None and any(p.dtype != z0.dtype for p in program.parameters):
                return f"parameters are not {z0.dtype}"
            programs.append(program)
        return programs[0], programs[1]


@dataclasses.dataclass(frozen=True, eq=False)
class _Wanted:
    """The events whose states are needed, and how the states asked for come out of them."""

    wanted: Saved
    finish: Callable[[_Run, Tensor], Tensor]


def _saved_events(events: Events, reached: Int[Tensor, "rows"] | None, save: Save, path: ControlPath) -> _Wanted:
    """States needed for `save`; the last one of every series always comes last among its own.

    `reached` is the event at which each row is reached; None where every row is an event.
    """
    counts = events.counts
    if isinstance(save, Tensor):
        asked = _asked(path, save)
        at, order = _event_before(events, asked).sort(dim=1)
        wanted = torch.cat([at - events.offsets[:-1, None], counts[:, None] - 1], dim=1)
        bounds = torch.arange(len(path) + 1, device=path.device) * wanted.shape[1]
        return _Wanted(
            Saved(bounds, wanted.flatten()),
            lambda run, states: _partial_steps(
                run, events, states.reshape(*wanted.shape, states.shape[1])[:, :-1], at, order, asked
            ),
        )
    if save == "knots":
        at_rows = ragged.places_in_series(path.series.offsets) if reached is None else reached
        return _Wanted(Saved(path.series.offsets, at_rows), lambda run, states: states)
    if save == "dense":
        return _Wanted(Saved(events.offsets, ragged.places_in_series(events.offsets)), _nothing)
    return _Wanted(Saved(torch.arange(len(path) + 1, device=path.device), counts - 1), _nothing)


def _nothing(run: _Run, states: Tensor) -> Tensor:
    return states


def _asked(path: ControlPath, t: Tensor) -> Float[Tensor, "series k"]:
    if t.requires_grad:
        raise ValueError("the times asked for require gradients, which a solve does not give; pass t.detach().")
    return path.asked_times(t)


def _event_before(events: Events, asked: Float[Tensor, "series k"]) -> Int[Tensor, "series k"]:
    """The last event at or before each time."""
    return ragged.last_row_at_or_before(events.time.detach(), events.offsets, asked, strict=False)


def _between(run: _Run, events: Events, states: Float[Tensor, "events hidden"], path: ControlPath, t: Tensor) -> Tensor:
    asked = _asked(path, t)
    at, order = _event_before(events, asked).sort(dim=1)
    return _partial_steps(run, events, states[at], at, order, asked)


def _partial_steps(
    run: _Run,
    events: Events,
    states: Float[Tensor, "series k hidden"],
    at: Int[Tensor, "series k"],
    order: Int[Tensor, "series k"],
    asked: Float[Tensor, "series k"],
) -> Float[Tensor, "series k hidden"]:
    """From the state of each event one step of the same solver to the time asked for, all at once."""
    if run.flow is None:
        moved = states.flatten(0, 1)
    else:
        flat = at.flatten()
        piece, length, duration = events.piece[flat], events.length[flat], events.duration[flat]
        late = asked.gather(1, order).flatten() - events.time[flat]
        share = torch.where(duration > 0, late / torch.where(duration > 0, duration, 1.0), 0.0).clamp(max=1.0)
        moves = piece >= 0 if share.requires_grad else share > 0
        bounds = torch.arange(len(flat) + 1, device=flat.device)

        def then_end(values: Tensor, fill: float) -> Tensor:
            return torch.stack([values, torch.full_like(values, fill)], dim=1).flatten()

        single = Events(
            bounds * 2,
            then_end(torch.where(moves, bounds[:-1], -1), -1),
            then_end(events.start[flat], 0.0),
            then_end(length * share, 0.0),
            then_end(duration * share, 0.0),
            then_end(events.time[flat], 0.0),
            torch.full((2 * len(flat),), -1, dtype=torch.int64, device=flat.device),
        )
        pieces: Any = _Single(run.path, piece.clamp(min=0), at.shape[1])
        once = dataclasses.replace(run, jump=None, path=pieces)
        moved, _, _ = once(states.flatten(0, 1), single, Saved(bounds, torch.ones_like(flat)))
    back = order.argsort(dim=1)
    hidden = moved.shape[1]
    return moved.reshape(*at.shape, hidden).gather(1, back[..., None].expand(*back.shape, hidden))


class _Single:
    """As much of a path as the loop needs, for series of one piece each: every asked time is one.

    Pieces are copied: the native engine adds up the gradients of a series' pieces without looking at other series.
    """

    def __init__(self, path: ControlPath, piece: Int[Tensor, asked], times: int):
        self.coefficients, self.channels = path.coefficients[piece], path.channels
        self.knots = path.knots[path.series.offsets[:-1]][:, None].expand(-1, times).flatten()
        self.series = self
        self.offsets = torch.arange(len(self.knots) + 1, device=self.knots.device)


def _raise_if(throw: bool, statuses: Tensor, times: Tensor, path: ControlPath) -> None:
    if not throw or not bool((statuses > 0).any()):
        return
    first = int((statuses > 0).nonzero()[0, 0])
    status = list(Status)[int(statuses[first])]
    fix = "Take more steps (AtKnots(substeps=2)), bound the field (a final tanh), scale the data"
    if status is Status.max_steps:
        fix = "Raise max_steps or the tolerances of Adaptive(rtol=, atol=, max_steps=), bound the field (a final tanh)"
    raise SolveError(
        f"series {ragged.series_name(path.series.ids, first)} at t={float(times[first]):g}: {status.value} "
        f"({int((statuses > 0).sum())} of {len(path)} series).",
        f"{fix}, or pass throw=False.",
    )
