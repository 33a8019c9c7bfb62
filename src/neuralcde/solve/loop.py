"""The loop in plain torch: the specification of the native engine, and what runs where that does not."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ..engine import Events, Saved
from ..fields import VectorField, as_field
from ..paths import ControlPath
from ..series import ragged
from .gradients import Backprop, Checkpoint
from .held import Held
from .solvers import Tableau


@dataclass(frozen=True, eq=False)
class Flow:
    r"""What happens between observations: $\mathrm{d}z = f(t, z)\, \mathrm{d}X$ if `controlled`, else $\mathrm{d}z = h(t, z, X)\, \mathrm{d}t$."""

    field: nn.Module
    controlled: bool = True

    def __post_init__(self) -> None:
        if self.controlled:
            object.__setattr__(self, "field", as_field(self.field))
        elif isinstance(self.field, VectorField):
            raise TypeError(
                f"a flow in time needs a module h(t, z, X) -> (batch, hidden), but {type(self.field).__name__} gives a matrix for dX."
            )

    def increment(self, t: Tensor, z: Tensor, drive: Tensor, duration: Tensor) -> Tensor:
        """The increment of z at one stage; `drive` is dX, or X."""
        z = z.clone()  # a field may work in place
        if self.controlled:
            assert isinstance(self.field, VectorField)
            change = self.field.prod(t, z, drive)
        else:
            change = self.field(t, z, drive) * duration
        if change.shape != z.shape:
            name = type(self.field).__name__
            raise ValueError(
                f"{name} changes z of shape {tuple(z.shape)} by {tuple(change.shape)}; the two must be equal."
            )
        return change


@dataclass(frozen=True, eq=False)
class Jump:
    r"""What happens at observations: $z \leftarrow \mathrm{cell}(z, \text{inputs of the row})$, at the rows where `rows` is true."""

    cell: nn.Module
    inputs: Float[Tensor, "rows features"]
    rows: Tensor


@dataclass(frozen=True, eq=False)
class Problem:
    """Everything that a loop needs to know."""

    path: ControlPath
    flow: Flow | None
    jump: Jump | None
    tableau: Tableau
    z0: Float[Tensor, "series hidden"]
    events: Events
    saved: Saved
    start: Float[Tensor, "series"] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "start", self.path.knots[self.path.series.offsets[:-1]])

    @property
    def modules(self) -> list[nn.Module]:
        """The field and the cell, where there are."""
        return ([] if self.flow is None else [self.flow.field]) + ([] if self.jump is None else [self.jump.cell])


def drive_at(
    pieces: Float[Tensor, "batch powers channels"],
    u: Float[Tensor, "batch 1"],
    length: Float[Tensor, "batch 1"],
    controlled: bool,
) -> Float[Tensor, "batch channels"]:
    """DX = X'(u) du on each piece, or X(u)."""
    low = 1 if controlled else 0
    total = torch.zeros_like(pieces[:, 0])
    for power in range(pieces.shape[1] - 1, low - 1, -1):
        total = total * u + (power * pieces[:, power] if controlled else pieces[:, power])
    return total * length if controlled else total


def step(
    problem: Problem, z: Float[Tensor, "batch hidden"], at: Int[Tensor, "batch"], series: Int[Tensor, "batch"]
) -> Float[Tensor, "batch hidden"]:
    """One Runge-Kutta step of the events `at`."""
    flow, events, tableau, dtype = problem.flow, problem.events, problem.tableau, z.dtype
    assert flow is not None
    pieces = problem.path.coefficients[events.piece[at]]
    start, length, duration = (part[at].to(dtype)[:, None] for part in (events.start, events.length, events.duration))
    since = (events.time[at] - problem.start[series]).to(dtype)
    stages: list[Tensor] = []
    for row, node in zip(tableau.a[: tableau.stages], tableau.c, strict=False):
        y = z
        for weight, k in zip(row, stages, strict=True):
            if weight != 0:
                y = y + weight * k
        drive = drive_at(pieces, start + node * length, length, flow.controlled)
        stages.append(flow.increment(since + node * duration[:, 0], y, drive, duration))
    change = sum(weight * k for weight, k in zip(tableau.b, stages, strict=True) if weight != 0)
    return z + change


def solve_plainly(
    problem: Problem, gradient: Checkpoint | Backprop
) -> tuple[Float[Tensor, "saved hidden"], Int[Tensor, "series"]]:
    """The states asked for, and for each series the event after which its state was not finite, or -1."""
    events, saved = problem.events, problem.saved
    order = events.counts.argsort(descending=True, stable=True)
    rank = torch.empty_like(order)
    rank[order] = torch.arange(len(order), device=order.device)
    counts = events.counts[order]
    longest = int(counts[0]) if len(counts) else 0
    # how many series, of those sorted by length, have an event number e
    alive = (len(counts) - torch.bincount(counts, minlength=longest + 1).cumsum(0)).tolist()
    alive = [len(counts), *alive]
    firsts = events.offsets[:-1][order]
    slots, slot_bounds = _slots_by_event(saved, longest)
    places = rank[ragged.series_of_rows(saved.offsets)][slots]
    failed = torch.full((len(order),), -1, dtype=torch.int64, device=order.device)

    def note_failures(z: Tensor, e: int) -> None:
        bad = ~z.detach().isfinite().all(1) & (failed[: len(z)] < 0)
        failed[: len(z)] = torch.where(bad, e, failed[: len(z)])

    def advance(z: Tensor, first: int, last: int) -> tuple[Tensor, ...]:
        """Events first .. last - 1 of all series that have them: the state after them, then the states asked for."""
        found = []
        for e in range(first, last):
            z = z[: alive[e + 1]]
            at = firsts[: len(z)] + e
            z = _jump(problem, z, at)
            note_failures(z, e)
            low, high = slot_bounds[e], slot_bounds[e + 1]
            if high > low:
                found.append(z[places[low:high]])
            if problem.flow is None:
                continue
            going = alive[e + 2]
            z = _flow(problem, z[:going], at[:going], order[:going])
            note_failures(z, e)
        return (z, *found)

    alive.append(0)
    z, states = problem.z0[order], []
    segment = longest if isinstance(gradient, Backprop) or not torch.is_grad_enabled() else gradient.every
    if segment < longest:
        held = Held(
            problem.modules, [problem.path.coefficients, *([] if problem.jump is None else [problem.jump.inputs])]
        )
    for first in range(0, longest, max(segment, 1)):
        last = min(first + segment, longest)
        if segment < longest:
            z, *found = checkpoint(held.repeat, advance, z, first, last, use_reentrant=False)
        else:
            z, *found = advance(z, first, last)
        states += found
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
    after = problem.jump.cell(z[here], problem.jump.inputs[row[here]])
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


def _slots_by_event(saved: Saved, longest: int) -> tuple[Int[Tensor, "saved"], list[int]]:
    """Places in the result in the order in which the loop comes by them, and where each event's begin."""
    slots = saved.event.argsort(stable=True)
    counts = torch.bincount(saved.event, minlength=longest)
    return slots, [0, *counts.cumsum(0).tolist()]
