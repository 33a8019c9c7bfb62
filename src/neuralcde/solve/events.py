"""What both loops, the plain and the native one, run over: the events of every series, and the states asked for."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ..engine import EventColumns
from ..paths import ControlPath
from ..series import ragged
from .steps import Grid


@dataclass(frozen=True, eq=False)
class Events:
    """A series is a list of events: a jump (where there is one), then a step of the flow (where there is one).

    The state of an event is the one between the two; the last event of a series has no flow. Ragged, as everywhere.

    Parameters
    ----------
    offsets
        Where the events of each series start, and their number at the end.
    piece
        The piece of the path that the step lies in, -1 for no step.
    start, length
        The step within its piece, in u; a step lies inside one piece.
    duration
        How long the step lasts, in time.
    time
        The time of the event.
    jump_row
        The row whose observation causes the jump, -1 for none.
    """

    offsets: Int[Tensor, "bounds"]
    piece: Int[Tensor, "events"]
    start: Float[Tensor, "events"]
    length: Float[Tensor, "events"]
    duration: Float[Tensor, "events"]
    time: Float[Tensor, "events"]
    jump_row: Int[Tensor, "events"]

    @functools.cached_property
    def counts(self) -> Int[Tensor, "series"]:
        """Events of each series."""
        return ragged.lengths(self.offsets)

    def columns(self) -> EventColumns:
        """As the native engine reads them."""
        return EventColumns(
            self.offsets, self.piece, self.start, self.length, self.duration.detach(), self.jump_row, time=None
        )


class KnotEvents(Events):
    """Events where every row is one and every piece a single step: their columns are worked out when they are read.

    So that the steps of a long solve take no memory. Not for rectilinear paths, nor for series of one row.

    Parameters
    ----------
    offsets, time
        The rows of the series.
    jumps
        At which rows there is a jump; None for none.
    """

    jumps: Tensor | None

    def __init__(self, offsets: Int[Tensor, "bounds"], time: Float[Tensor, "events"], jumps: Tensor | None):
        def series(at: Tensor) -> Tensor:
            return torch.searchsorted(offsets, at, right=True) - 1

        def is_last(at: Tensor) -> Tensor:
            return offsets[series(at) + 1] - 1 == at

        def number(value: float) -> _Column:
            return _Column(lambda at: torch.full(at.shape, value, dtype=torch.float64, device=at.device))

        columns = {
            "offsets": offsets,
            "time": time,
            "jumps": jumps,
            "piece": _Column(lambda at: torch.where(is_last(at), -1, at - series(at))),
            "start": number(0.0),
            "length": number(1.0),
            "duration": _Column(lambda at: time[torch.where(is_last(at), at, at + 1)] - time[at]),
            "jump_row": _Column(
                lambda at: torch.full_like(at, -1) if jumps is None else torch.where(jumps[at], at, -1)
            ),
        }
        for name, value in columns.items():
            object.__setattr__(self, name, value)

    def columns(self) -> EventColumns:
        """As the native engine reads them: it works out the rest from the times."""
        rows = None
        if self.jumps is not None:
            rows = torch.where(self.jumps, torch.arange(len(self.jumps)), -1)
        return EventColumns(self.offsets, jump_row=rows, time=self.time.detach().contiguous())

    def detached(self) -> KnotEvents:
        """The same with times that are constants."""
        return KnotEvents(self.offsets, self.time.detach(), self.jumps)


class _Column:
    """Numbers that are worked out for the events asked for: indexed like a tensor, and not in any other way."""

    def __init__(self, rule: Callable[[Tensor], Tensor]):
        self.rule = rule

    def __getitem__(self, at: Tensor) -> Tensor:
        return self.rule(at)


@dataclass(frozen=True, eq=False)
class Saved:
    """Which states are asked for: for each series a sorted list of its events."""

    offsets: Int[Tensor, "bounds"]
    event: Int[Tensor, "saved"]


def events_of(
    path: ControlPath,
    grid: Grid | None,
    jumps: Bool[Tensor, "rows"] | None,
    finished: Int[Tensor, "series"] | None = None,
) -> tuple[Events, Int[Tensor, "rows"]]:
    """The events of a batch, and for each row the event of its series at which it is reached.

    Without a grid (no flow) every row is an event. `finished` says how many pieces each series got over, where some
    stopped early; rows further on cause no jump and show the state at which the series stopped. Times and durations are
    differentiable in the knots.
    """
    offsets, times = path.series.offsets, path.knots
    device = path.device
    rows = torch.arange(len(times), device=device)
    of_row = ragged.series_of_rows(offsets)
    if grid is None:
        nothing = torch.zeros(len(times), dtype=torch.float64, device=device)
        jump_row = rows if jumps is None else torch.where(jumps, rows, -1)
        piece = torch.full_like(rows, -1)
        return Events(offsets, piece, nothing, nothing, nothing, times, jump_row), ragged.places_in_series(offsets)
    series = len(path)
    counts = ragged.lengths(grid.offsets)
    event_offsets = grid.offsets + torch.arange(series + 1, device=device)
    of_step = ragged.series_of_rows(grid.offsets)
    place = torch.arange(len(of_step), device=device) + of_step  # one trailing event a series
    total = len(of_step) + series

    def spread(values: Tensor, fill: float) -> Tensor:
        return values.new_full((total,), fill).index_copy(0, place, values)

    durations = path.durations[grid.piece]
    step_time = times[piece_start_rows(path)[grid.piece]] + durations * grid.start
    end_time = times[offsets[1:] - 1]
    within = ragged.places_in_series(offsets) * path.pieces_per_gap
    arrived = torch.ones_like(rows, dtype=torch.bool)
    if finished is not None:
        whole = finished == ragged.lengths(path.piece_offsets)
        stepped = counts > 0
        last_step = (grid.offsets[1:] - 1)[stepped]
        stop = times[offsets[:-1]].index_copy(
            0, stepped.nonzero()[:, 0], (step_time + durations * grid.length)[last_step]
        )
        end_time = torch.where(whole, end_time, stop)
        arrived = whole[of_row] | (within <= finished[of_row])
    # a row is reached when all pieces before it are done
    done = torch.bincount(grid.piece, minlength=len(path.coefficients)).cumsum(0)
    done = torch.nn.functional.pad(done, (1, 0))
    before = path.piece_offsets[:-1][of_row]
    reached = torch.where(arrived, done[before + within] - done[before], counts[of_row])
    jump_row = torch.full((total,), -1, dtype=torch.int64, device=device)
    if jumps is not None:
        here = jumps & arrived
        jump_row[(event_offsets[:-1][of_row] + reached)[here]] = rows[here]
    events = Events(
        event_offsets,
        spread(grid.piece, -1),
        spread(grid.start, 0.0),
        spread(grid.length, 0.0),
        spread(durations * grid.length, 0.0),
        spread(step_time, 0.0).index_copy(0, event_offsets[1:] - 1, end_time),
        jump_row,
    )
    return events, reached


def knot_events(path: ControlPath, jumps: Bool[Tensor, "rows"] | None) -> Events | None:
    """The events that `events_of` gives for one step per piece, at no cost: every row is an event.

    None where it is not so simple: on rectilinear paths, where a series has one row only, and without any series.
    """
    if path.pieces_per_gap != 1 or len(path.coefficients) != len(path.knots) - len(path) or len(path) == 0:
        return None
    return KnotEvents(path.series.offsets, path.knots, jumps)


def piece_start_rows(path: ControlPath) -> Int[Tensor, "pieces"]:
    """The row at which each piece starts (for a vertical piece: the row it leads to)."""
    per_gap, offsets = path.pieces_per_gap, path.series.offsets
    of_piece = ragged.series_of_rows(path.piece_offsets)
    within = ragged.places_in_series(path.piece_offsets)
    return offsets[:-1][of_piece] + (within + per_gap - 1) // per_gap
