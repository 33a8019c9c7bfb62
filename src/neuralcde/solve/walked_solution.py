"""Solutions that need no list of steps: the states at the rows or at the end, and gradients by the adjoint method."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from ..engine import engine_name, transformed
from ..series import ragged
from .adjoint_walk import adjoint_walk
from .asked_states import Save, saved_events
from .backsolve import solve_with_adjoint
from .events import Events, events_of
from .gradients import Backsolve, Gradient, Reversible
from .loop import Problem
from .solution import Solution
from .steps import Adaptive, AtKnots, fixed_grid
from .walks import Walk, Walker


def walked_solution(walker: Walker, method: Gradient, save: Save) -> Solution | None:
    """The solution by a walk, or None if it needs a list of the steps.

    That is so if a gradient of the discretisation is asked for, if states between rows are, or if the steps are fixed
    and the plain loop runs. With the continuous adjoint or fixed steps, it is also so if a series stopped early. Fixed
    steps without a gradient are walked if `method` needs no list of them: so memory is as flat as with one.
    """
    if isinstance(save, Tensor) or save == "dense":
        return None
    programs = walker.programs
    differentiated = walker.differentiated(programs)
    reverses = isinstance(method, Backsolve | Reversible)
    adjoint = differentiated and reverses
    adaptive = isinstance(walker.steps, Adaptive)
    if (differentiated and not adjoint) or not (reverses or adaptive):
        return None
    path, knots = walker.path, save == "knots"
    timed = path.knots.requires_grad and differentiated
    if (adjoint and transformed()) or (not adaptive and (isinstance(programs, str) or timed)):
        return None
    if not adjoint and walker.every:
        walker = dataclasses.replace(walker, every=0)  # states are stored for a backward pass only
    by_torch = isinstance(programs, str) or timed
    walk = walker.walk(programs, at_rows=knots or (adjoint and by_torch), before_jumps=adjoint, keep_steps=False)
    last, at_rows = walk.last, walk.at_rows
    if (adjoint or not adaptive) and not walk.complete:
        return None
    if adjoint and by_torch:
        if not isinstance(programs, str):
            walk = walk._replace(engine=f"{engine_name()} forward, torch backward")
        last, at_rows = _adjoint_by_torch(walker, walk, save)
    elif adjoint:
        assert not isinstance(programs, str)
        last, at_rows = adjoint_walk(walker, programs, walk, at_rows=knots)
    elif not adaptive and at_rows is not None:  # as with a gradient
        last = at_rows[path.series.offsets[1:] - 1]
    return Solution(path, last, walk.stats, walk.statuses, walk.reached, at_rows if knots else None)


def with_error_estimate(solution: Solution, walker: Walker) -> Solution:
    """The solution with an error estimate by step doubling, as in `solve`, for fixed steps."""
    finer = dataclasses.replace(walker, every=0, refine=2)
    with torch.no_grad():
        walk = finer.walk(finer.programs, at_rows=False, before_jumps=False, keep_steps=False)
        order = walker.tableau.order
        estimate = (walk.last - solution.last.detach()).abs().amax(1) * 2**order / (2**order - 1)
        estimate = torch.where(walk.unfinished, torch.nan, estimate)
    return dataclasses.replace(solution, stats=dataclasses.replace(solution.stats, error=estimate))


def _adjoint_by_torch(walker: Walker, walk: Walk, save: Save) -> tuple[Tensor, Tensor | None]:
    """The last states and those at the rows, differentiable by a backward solve in plain torch, piece by piece."""
    path, jump = walker.path, walker.jump
    grid = fixed_grid(path, AtKnots())
    events, reached = events_of(path, grid, None if jump is None else jump.rows)
    saved = saved_events(events, reached, save, path)
    problem = Problem(walker.term, jump, walker.tableau, path.coefficients, walker.origin, walker.z0, events, saved)

    def known(split: Problem) -> tuple[Tensor, Tensor]:
        states = _states_at_events(split.events, walk, walker)
        first = split.events.offsets[:-1][ragged.series_of_rows(split.saved.offsets)]
        return states[first + split.saved.event], torch.full((len(path),), -1, dtype=torch.int64, device=path.device)

    states, _ = solve_with_adjoint(problem, known, walker.steps)
    last = states if save == "last" else states[saved.offsets[1:] - 1]
    return last, states


def _states_at_events(events: Events, walk: Walk, walker: Walker) -> Tensor:
    """The states of a walk at the events of one step per piece, some of which were inserted before jumps.

    Events between the two pieces of a gap of a rectilinear path have no known state; nobody asks for them.
    """
    assert walk.at_rows is not None
    path, jump = walker.path, walker.jump
    device = path.device
    ends = torch.zeros(len(events.time), dtype=torch.bool, device=device)
    ends[events.offsets[1:] - 1] = True
    original = ((events.piece[torch.arange(len(ends), device=device)] >= 0) | ends).nonzero()[:, 0]
    firsts = path.piece_offsets + torch.arange(len(path) + 1, device=device)
    within = ragged.places_in_series(path.series.offsets) * path.pieces_per_gap
    of_row = original[firsts[:-1][ragged.series_of_rows(path.series.offsets)] + within]
    states = walk.last.new_zeros(len(ends), walk.last.shape[1])
    states[events.offsets[1:] - 1] = walk.last
    states[of_row] = walk.at_rows
    if jump is not None and walk.before_jumps is not None:
        states[of_row[jump.rows] - 1] = walk.before_jumps[jump.rows]
    return states
