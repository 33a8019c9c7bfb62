"""The solver loop in plain torch: the specification of the native engine, and the fallback where that cannot run."""

from __future__ import annotations

import bisect
import functools
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ..engine import transformed
from ..series import ragged
from .events import Events, Saved
from .gradients import Backprop, Checkpoint
from .one_thread import one_thread
from .parameter_snapshot import ParameterSnapshot
from .solvers import Solver
from .step import Place, time_bounds
from .terms import Jump, Term


@dataclass(frozen=True, eq=False)
class Problem:
    """A problem to solve, for either engine.

    Parameters
    ----------
    term, jump
        The flow between observations and the jump at observations; at most one is None.
    solver
        The method that takes the steps.
    coefficients, start
        Coefficients of the path's pieces, and the time at which each series starts.
    z0
        Initial states, with whatever else the solver carries.
    events, saved
        The steps and jumps of every series, and the events whose states are saved.
    """

    term: Term | None
    jump: Jump | None
    solver: Solver
    coefficients: Float[Tensor, "pieces powers channels"]
    start: Float[Tensor, "series"]
    z0: Float[Tensor, "series hidden"]
    events: Events
    saved: Saved

    @property
    def modules(self) -> list[nn.Module]:
        """The field and the cell, as far as there are any."""
        return ([] if self.term is None else [self.term.field]) + ([] if self.jump is None else [self.jump.cell])

    def one_thread(self) -> AbstractContextManager[None]:
        """One torch thread, if evaluations of the field and the cell are little work."""
        return one_thread(self.z0, self.coefficients.shape[2], self.modules)

    def place(self, at: Int[Tensor, "batch"], series: Int[Tensor, "batch"]) -> Place:
        """The steps of the events `at`."""
        events, dtype = self.events, self.z0.dtype
        start, length, duration = (
            part[at].to(dtype)[:, None] for part in (events.start, events.length, events.duration)
        )
        origin = self.start[series]
        since = (events.time[at] - origin).to(dtype)
        bounds = time_bounds(events.time[at] - origin, events.time[at + 1] - origin, dtype)
        return Place(self.coefficients[events.piece[at]], start, length, since, duration, *bounds)


def step(
    problem: Problem, z: Float[Tensor, "batch hidden"], at: Int[Tensor, "batch"], series: Int[Tensor, "batch"]
) -> Float[Tensor, "batch hidden"]:
    """The states after the steps of the events `at`."""
    term, place = problem.term, problem.place(at, series)
    assert term is not None
    return problem.solver.step(functools.partial(place.increment, term), z)


def solve_plainly(
    problem: Problem, gradient: Checkpoint | Backprop
) -> tuple[Float[Tensor, "saved hidden"], Int[Tensor, "series"]]:
    """The saved states, and for each series the event after which its state was no longer finite, or -1.

    Iteration e handles event number e of every series that has one. With the series sorted by length, longest first,
    these are always the first `alive[e + 1]` of the batch, so the batch only ever shrinks from its end.
    """
    events, saved = problem.events, problem.saved
    order = events.counts.argsort(descending=True, stable=True)
    rank = torch.empty_like(order)
    rank[order] = torch.arange(len(order), device=order.device)
    counts = events.counts[order]
    longest = int(counts[0]) if len(counts) else 0
    ascending = counts.tolist()[::-1]

    def alive(e: int) -> int:
        """Number of series with more than e events; a list of these numbers would grow with the steps."""
        return len(ascending) - bisect.bisect_right(ascending, e)

    firsts = events.offsets[:-1][order]
    slots = saved.event.argsort(stable=True)
    saved_at = saved.event[slots].tolist()
    places = rank[ragged.series_of_rows(saved.offsets)][slots]
    failed = torch.full((len(order),), -1, dtype=torch.int64, device=order.device)
    # Without gradients the saved states are written where they belong, so that there is one copy of them.
    kept = None
    if not torch.is_grad_enabled() and not transformed():
        kept = problem.z0.new_empty(len(slots), problem.z0.shape[1])

    def note_failures(z: Tensor, e: int) -> None:
        bad = ~z.detach().isfinite().all(1) & (failed[: len(z)] < 0)
        failed[: len(z)] = torch.where(bad, e, failed[: len(z)])

    def advance(z: Tensor, first: int, last: int) -> tuple[Tensor, ...]:
        """Run events first to last - 1 of all series that have them; return the final state, then the saved states."""
        with problem.one_thread():  # here, because the backward pass recomputes segments
            return run(z, first, last)

    def run(z: Tensor, first: int, last: int) -> tuple[Tensor, ...]:
        found = []
        for e in range(first, last):
            z = z[: alive(e)]
            at = firsts[: len(z)] + e
            z = _jump(problem, z, at)
            note_failures(z, e)
            low, high = bisect.bisect_left(saved_at, e), bisect.bisect_right(saved_at, e)
            if high > low and kept is not None:
                kept[slots[low:high]] = z[places[low:high]]
            elif high > low:
                found.append(z[places[low:high]])
            if problem.term is None:
                continue
            going = alive(e + 1)
            z = _flow(problem, z[:going], at[:going], order[:going])
            note_failures(z, e)
        return (z, *found)

    z, states = problem.z0[order], []
    # With checkpointing the loop runs in segments of `every` events, which the backward pass recomputes one by one. The
    # snapshot makes it recompute them with the parameters of the forward pass.
    segment = longest if isinstance(gradient, Backprop) or not torch.is_grad_enabled() else gradient.every
    if segment < longest:
        held = ParameterSnapshot(
            problem.modules, [problem.coefficients, *([] if problem.jump is None else [problem.jump.inputs])]
        )
    for first in range(0, longest, max(segment, 1)):
        last = min(first + segment, longest)
        if segment < longest:
            z, *found = checkpoint(held.repeat, advance, z, first, last, use_reentrant=False)
        else:
            z, *found = advance(z, first, last)
        states += found
    if kept is not None:
        return kept, failed[rank]
    # The states were collected event by event; return them in the order of `saved`.
    collected = torch.cat(states) if states else problem.z0[:0]
    back = torch.empty_like(slots)
    back[slots] = torch.arange(len(slots), device=slots.device)
    return collected[back], failed[rank]


def _jump(
    problem: Problem, z: Float[Tensor, "batch hidden"], at: Int[Tensor, "batch"]
) -> Float[Tensor, "batch hidden"]:
    if problem.jump is None:
        return z
    row = problem.events.jump_row[at]
    here = (row >= 0).nonzero()[:, 0]
    if len(here) == 0:
        return z
    after = problem.jump.after(z[here], problem.jump.inputs[row[here]])
    return after if len(here) == len(z) else z.index_copy(0, here, after)


def _flow(
    problem: Problem, z: Float[Tensor, "batch hidden"], at: Int[Tensor, "batch"], series: Int[Tensor, "batch"]
) -> Float[Tensor, "batch hidden"]:
    here = (problem.events.piece[at] >= 0).nonzero()[:, 0]
    if len(here) == 0:
        return z
    if len(here) == len(z):
        return step(problem, z, at, series)
    return z.index_copy(0, here, step(problem, z[here], at[here], series[here]))
