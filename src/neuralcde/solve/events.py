"""The events of every series, over which both the plain and the native loop run, and the states to save."""

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
    """The events of a batch of series: each is an optional jump followed by an optional step of the flow.

    The state of an event is the state between its jump and its step. The last event of a series has no step. The events
    of all series are concatenated.

    Parameters
    ----------
    offsets
        Index of the first event of each series; the last entry is the total number of events.
    piece
        The piece of the path that contains the step; -1 for no step.
    start, length
        Start and length of the step in u, the variable of its piece. A step never crosses the end of a piece.
    duration
        Duration of the step in time.
    time
        The time of the event.
    jump_row
        The row whose observation causes the jump; -1 for no jump.
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
        """Number of events of each series."""
        return ragged.lengths(self.offsets)

    def columns(self) -> EventColumns:
        """The events in the form that the native engine reads."""
        return EventColumns(
            self.offsets, self.piece, self.start, self.length, self.duration.detach(), self.jump_row, time=None
        )


class KnotEvents(Events):
    """Events of the common case of one event per row and one step per piece; columns are computed when they are read.

    So the steps of a long solve take no memory. Not for rectilinear paths, nor for batches with a series of one row.

    Parameters
    ----------
    offsets, time
        Offsets and times of the rows of the series.
    jumps
        Mask of the rows with a jump; None for no jumps.
    """

    # Event number equals row number. A series of n rows has n - 1 pieces, so the piece that starts at a row is its row
    # number minus the number of series before it.
    jumps: Tensor | None

    def __init__(self, offsets: Int[Tensor, "bounds"], time: Float[Tensor, "events"], jumps: Tensor | None):
        vars(self).update(offsets=offsets, time=time, jumps=jumps)

    @property
    def piece(self) -> _Column:  # type: ignore[override]
        """The piece that starts at a row."""
        return _Column(lambda at: torch.where(self._is_last(at), -1, at - self._series(at)))

    @property
    def start(self) -> _Column:  # type: ignore[override]
        """Every step starts at the start of its piece."""
        return self._constant(0.0)

    @property
    def length(self) -> _Column:  # type: ignore[override]
        """Every step is a whole piece."""
        return self._constant(1.0)

    @property
    def duration(self) -> _Column:  # type: ignore[override]
        """The time to the next row."""
        return _Column(lambda at: self.time[torch.where(self._is_last(at), at, at + 1)] - self.time[at])

    @property
    def jump_row(self) -> _Column:  # type: ignore[override]
        """The row of the event, if that has a jump."""
        jumps = self.jumps
        return _Column(lambda at: torch.full_like(at, -1) if jumps is None else torch.where(jumps[at], at, -1))

    def _series(self, at: Tensor) -> Tensor:
        return torch.searchsorted(self.offsets, at, right=True) - 1

    def _is_last(self, at: Tensor) -> Tensor:
        return self.offsets[self._series(at) + 1] - 1 == at

    @staticmethod
    def _constant(value: float) -> _Column:
        return _Column(lambda at: torch.full(at.shape, value, dtype=torch.float64, device=at.device))

    def columns(self) -> EventColumns:
        """The events in the form that the native engine reads; it computes the other columns from the times."""
        rows = None
        if self.jumps is not None:
            rows = torch.where(self.jumps, torch.arange(len(self.jumps)), -1)
        return EventColumns(self.offsets, jump_row=rows, time=self.time.detach().contiguous())

    def detached(self) -> KnotEvents:
        """The same events with detached times."""
        return KnotEvents(self.offsets, self.time.detach(), self.jumps)


class _Column:
    """A column computed on demand; it supports indexing by a tensor of event numbers and nothing else."""

    def __init__(self, rule: Callable[[Tensor], Tensor]):
        self.rule = rule

    def __getitem__(self, at: Tensor) -> Tensor:
        return self.rule(at)


@dataclass(frozen=True, eq=False)
class Saved:
    """Which states to save: for each series a sorted list of event numbers within the series."""

    offsets: Int[Tensor, "bounds"]
    event: Int[Tensor, "saved"]


def events_of(
    path: ControlPath,
    grid: Grid | None,
    jumps: Bool[Tensor, "rows"] | None,
    finished: Int[Tensor, "series"] | None = None,
) -> tuple[Events, Int[Tensor, "rows"]]:
    """The events of a batch, and for each row the event of its series at which the row is reached.

    Times and durations are differentiable in the knots.

    Parameters
    ----------
    path
        The paths of the batch.
    grid
        The steps; None without a flow, when every row is an event.
    jumps
        Mask of the rows with a jump; None for no jumps.
    finished
        Number of pieces that each series integrated to their end, if some stopped early. Rows beyond that cause no
        jump, and their state is the one at which the series stopped.
    """
    offsets, times = path.series.offsets, path.knots
    device = path.device
    rows = torch.arange(len(times), device=device)
    of_row = ragged.series_of_rows(offsets)
    if grid is None:
        zeros = torch.zeros(len(times), dtype=torch.float64, device=device)
        jump_row = rows if jumps is None else torch.where(jumps, rows, -1)
        piece = torch.full_like(rows, -1)
        return Events(offsets, piece, zeros, zeros, zeros, times, jump_row), ragged.places_in_series(offsets)
    # One event per step, at its start, and one more per series for its end. So the event of a step is its step number
    # plus the number of series before it.
    series = len(path)
    counts = ragged.lengths(grid.offsets)
    event_offsets = grid.offsets + torch.arange(series + 1, device=device)
    of_step = ragged.series_of_rows(grid.offsets)
    place = torch.arange(len(of_step), device=device) + of_step
    total = len(of_step) + series

    def spread(values: Tensor, fill: float) -> Tensor:
        """A column of events from a column of steps; `fill` at the final event of each series."""
        return values.new_full((total,), fill).index_copy(0, place, values)

    durations = path.durations[grid.piece]
    step_time = times[piece_start_rows(path)[grid.piece]] + durations * grid.start
    end_time = times[offsets[1:] - 1]
    within = ragged.places_in_series(offsets) * path.pieces_per_gap
    arrived = torch.ones_like(rows, dtype=torch.bool)
    # A series that stopped early ends where its last accepted step ended, or at its start if it has none.
    if finished is not None:
        whole = finished == ragged.lengths(path.piece_offsets)
        stepped = counts > 0
        last_step = (grid.offsets[1:] - 1)[stepped]
        stop = times[offsets[:-1]].index_copy(
            0, stepped.nonzero()[:, 0], (step_time + durations * grid.length)[last_step]
        )
        end_time = torch.where(whole, end_time, stop)
        arrived = whole[of_row] | (within <= finished[of_row])
    # A row is reached when all pieces before it are done: its event number is the number of steps in those pieces.
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
    """The events that `events_of` returns for one step per piece, without computing its columns.

    None if rows and events do not coincide: for rectilinear paths, for a batch with a one-row series, and for an empty
    batch.
    """
    if path.pieces_per_gap != 1 or len(path.coefficients) != len(path.knots) - len(path) or len(path) == 0:
        return None
    return KnotEvents(path.series.offsets, path.knots, jumps)


def piece_start_rows(path: ControlPath) -> Int[Tensor, "pieces"]:
    """The row at whose time each piece starts; for a vertical piece of a rectilinear path, the row that it ends at."""
    per_gap, offsets = path.pieces_per_gap, path.series.offsets
    of_piece = ragged.series_of_rows(path.piece_offsets)
    within = ragged.places_in_series(path.piece_offsets)
    return offsets[:-1][of_piece] + (within + per_gap - 1) // per_gap


def split_jumps(events: Events) -> tuple[Events, Int[Tensor, "events"] | None]:
    """Insert an event before each jump, so that the state before the jump can be saved.

    Returns
    -------
    Events
        The events with the inserted ones, detached.
    Tensor or None
        The new index of each original event; None if there are no jumps and nothing was inserted.
    """
    if isinstance(events, KnotEvents) and events.jumps is None:
        return events.detached(), None
    every = torch.arange(len(events.time), device=events.time.device)
    columns = (events.piece, events.start, events.length, events.duration, events.time, events.jump_row)
    events = Events(events.offsets, *(column[every].detach() for column in columns))
    jumping = events.jump_row >= 0
    if not bool(jumping.any()):
        return events, None
    # An event with a jump becomes two: an inserted one without step or jump, then itself.
    ends = (1 + jumping.long()).cumsum(0)
    moved = ends - 1
    total = int(ends[-1])

    def spread(values: Tensor, fill: float) -> Tensor:
        return values.new_full((total,), fill).index_copy(0, moved, values)

    bounds = torch.nn.functional.pad(ends, (1, 0))
    split = Events(
        bounds[events.offsets],
        spread(events.piece, -1),
        spread(events.start, 0.0),
        spread(events.length, 0.0),
        spread(events.duration, 0.0),
        events.time[ragged.series_of_rows(bounds)],
        spread(events.jump_row, -1),
    )
    return split, moved
