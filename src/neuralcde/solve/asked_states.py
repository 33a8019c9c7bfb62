"""The states to save: which events they belong to, and partial steps to times between events."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..paths import ControlPath
from ..series import ragged
from .events import Events, Saved
from .grid_events import GridEvents
from .loop import Problem
from .run import Ran
from .step import Place

Save = Literal["last", "knots", "dense"] | Tensor


def saved_events(events: Events, reached: Int[Tensor, "rows"] | None, save: Save, path: ControlPath) -> Saved:
    """The events whose states `save` needs. The last event of each series is always included, at the end of its list.

    `reached` is the event at which each row is reached; None if every row is an event.
    """
    counts = events.counts
    if isinstance(save, Tensor):
        at, _ = _events_before(events, path, save)[0].sort(dim=1)
        wanted = torch.cat([at - events.offsets[:-1, None], counts[:, None] - 1], dim=1)
        return Saved(torch.arange(len(path) + 1, device=path.device) * wanted.shape[1], wanted.flatten())
    if save == "knots":
        return Saved(path.series.offsets, ragged.places_in_series(path.series.offsets) if reached is None else reached)
    if save == "dense":
        return Saved(events.offsets, ragged.places_in_series(events.offsets))
    return Saved(torch.arange(len(path) + 1, device=path.device), counts - 1)


def states_at_times(
    run: Callable[[Problem], Ran],
    problem: Problem,
    path: ControlPath,
    states: Float[Tensor, "saved hidden"],
    times: Tensor,
    *,
    dense: bool,
) -> Float[Tensor, "series k hidden"]:
    """The states at given times: one step of the same solver from the last event before each, all in one batch.

    `states` holds the states of all events if `dense`, else those of the events that `saved_events` chose for `times`.
    """
    before, asked = _events_before(problem.events, path, times)
    at, order = before.sort(dim=1)
    starts = states[at] if dense else states.reshape(len(path), at.shape[1] + 1, states.shape[1])[:, :-1]
    moved = starts.flatten(0, 1)
    if problem.term is not None:
        moved = run(_partial_steps(problem, moved, at, asked.gather(1, order))).states
    back = order.argsort(dim=1)
    hidden = moved.shape[1]
    return moved.reshape(*at.shape, hidden).gather(1, back[..., None].expand(*back.shape, hidden))


def slopes_at_times(
    problem: Problem, path: ControlPath, states: Float[Tensor, "series k hidden"], times: Tensor
) -> Float[Tensor, "series k hidden"]:
    """dz/dt at given times, where the states there are known: the increment over a step of duration 1."""
    term = problem.term
    if term is None:
        return torch.zeros_like(states)
    piece, u, duration = path.locate(times)
    moving = duration.flatten() > 0
    since = (path.asked_times(times) - problem.start[:, None]).flatten().to(states.dtype)
    rate = torch.where(moving, 1 / torch.where(moving, duration.flatten(), 1.0), 0.0)
    one = torch.ones_like(rate)
    columns = (u.flatten(), rate, one)
    start, length, lasts = (column[:, None].to(states.dtype) for column in columns)
    place = Place(problem.coefficients[piece.flatten()], start, length, since, lasts, since.detach(), since.detach())
    return place.increment(term, 0.0, states.flatten(0, 1)).reshape(states.shape)


def _partial_steps(
    problem: Problem,
    states: Float[Tensor, "asked hidden"],
    at: Int[Tensor, "series k"],
    times: Float[Tensor, "series k"],
) -> Problem:
    """A problem with one short series per requested time: a single step, which covers a part of its event's step.

    Each short series gets its own copy of the piece. The native engine accumulates the gradients of pieces per series
    in parallel, so two series must not share a piece.
    """
    events, flat = problem.events, at.flatten()
    piece, duration = events.piece[flat], events.duration[flat]
    late = times.flatten() - events.time[flat]
    # The fraction of the event's step up to the requested time. A fraction of 0 needs no step, except for the gradient
    # with respect to the times: z moves with the time even where the step has length 0.
    share = torch.where(duration > 0, late / torch.where(duration > 0, duration, 1.0), 0.0).clamp(max=1.0)
    moves = piece >= 0 if share.requires_grad else share > 0
    bounds = torch.arange(len(flat) + 1, device=flat.device)

    def then_end(values: Tensor, fill: float) -> Tensor:
        """Append to each value the entry of the final event, at which the state is saved."""
        return torch.stack([values, torch.full_like(values, fill)], dim=1).flatten()

    steps = Events(
        bounds * 2,
        then_end(torch.where(moves, bounds[:-1], -1), -1),
        then_end(events.start[flat], 0.0),
        then_end(events.length[flat] * share, 0.0),
        then_end(duration * share, 0.0),
        torch.stack([events.time[flat], times.flatten()], dim=1).flatten(),
        torch.full((2 * len(flat),), -1, dtype=torch.int64, device=flat.device),
    )
    return dataclasses.replace(
        problem,
        jump=None,
        coefficients=problem.coefficients[piece.clamp(min=0)],
        start=problem.start[:, None].expand(-1, at.shape[1]).flatten(),
        z0=states,
        events=steps,
        saved=Saved(bounds, torch.ones_like(flat)),
    )


def _events_before(
    events: Events, path: ControlPath, times: Tensor
) -> tuple[Int[Tensor, "series k"], Float[Tensor, "series k"]]:
    """The last event at or before each time, and the times broadcast to shape (series, k)."""
    if times.requires_grad:
        raise ValueError("a solve is not differentiable in the times at which states are asked for; pass t.detach().")
    asked = path.asked_times(times)
    if isinstance(events, GridEvents):
        return events.last_before(asked), asked
    return ragged.last_row_at_or_before(events.time.detach(), events.offsets, asked, strict=False), asked
