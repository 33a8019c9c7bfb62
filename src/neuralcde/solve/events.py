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

    def jump_events(self) -> Int[Tensor, "jumps"]:
        """The events with a jump."""
        return (self.jump_row[self.numbers()] >= 0).nonzero()[:, 0]

    def columns(self) -> EventColumns:
        """The events in the form that the native engine reads."""
        every = (self.piece, self.start, self.length, self.duration.detach(), self.jump_row)
        piece, start, length, duration, jump_row = (
            column[self.numbers()] if isinstance(column, Column) else column for column in every
        )
        return EventColumns(self.offsets, piece, start, length, duration, jump_row, time=None)

    def numbers(self) -> Int[Tensor, "events"]:
        """The numbers of all events."""
        return torch.arange(len(self.time), device=self.offsets.device)


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
    def piece(self) -> Column:  # type: ignore[override]
        """The piece that starts at a row."""
        return self._column(lambda at: torch.where(self._is_last(at), -1, at - self._series(at)))

    @property
    def start(self) -> Column:  # type: ignore[override]
        """Every step starts at the start of its piece."""
        return self._constant(0.0)

    @property
    def length(self) -> Column:  # type: ignore[override]
        """Every step is a whole piece."""
        return self._constant(1.0)

    @property
    def duration(self) -> Column:  # type: ignore[override]
        """The time to the next row."""
        return self._column(lambda at: self.time[torch.where(self._is_last(at), at, at + 1)] - self.time[at])

    @property
    def jump_row(self) -> Column:  # type: ignore[override]
        """The row of the event, if that has a jump."""
        jumps = self.jumps
        return self._column(lambda at: torch.full_like(at, -1) if jumps is None else torch.where(jumps[at], at, -1))

    def _series(self, at: Tensor) -> Tensor:
        return torch.searchsorted(self.offsets, at, right=True) - 1

    def _is_last(self, at: Tensor) -> Tensor:
        return self.offsets[self._series(at) + 1] - 1 == at

    def _constant(self, value: float) -> Column:
        return self._column(lambda at: torch.full(at.shape, value, dtype=torch.float64, device=at.device))

    def _column(self, rule: Callable[[Tensor], Tensor]) -> Column:
        return Column(rule, self.offsets)

    def jump_events(self) -> Int[Tensor, "jumps"]:
        """The events with a jump."""
        return self.offsets.new_zeros(0) if self.jumps is None else self.jumps.nonzero()[:, 0]

    def columns(self) -> EventColumns:
        """The events in the form that the native engine reads; it computes the other columns from the times."""
        rows = None
        if self.jumps is not None:
            rows = torch.where(self.jumps, torch.arange(len(self.jumps)), -1)
        return EventColumns(self.offsets, jump_row=rows, time=self.time.detach().contiguous())

    def detached(self) -> KnotEvents:
        """The same events with detached times."""
        return KnotEvents(self.offsets, self.time.detach(), self.jumps)


class Column:
    """A column computed on demand, from a tensor of event numbers; what it is computed from needs no gradient."""

    requires_grad = False

    def __init__(self, rule: Callable[[Tensor], Tensor], offsets: Int[Tensor, "bounds"]):
        self.rule, self.offsets = rule, offsets

    def __getitem__(self, at: Tensor) -> Tensor:
        return self.rule(at)

    def __len__(self) -> int:
        return int(self.offsets[-1])

    @property
    def device(self) -> torch.device:
        """Where the events are."""
        return self.offsets.device

    def detach(self) -> Column:
        """The column itself."""
        return self

    def index_select(self, _: int, at: Tensor) -> Tensor:
        """As of a tensor with one dimension."""
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


class SplitEvents(Events):
    """Events with one more before each jump, so that the state before the jump can be saved; detached.

    An event with a jump becomes two: an inserted one without step or jump, then itself. Columns are computed when they
    are read.

    Parameters
    ----------
    events
        The original events.
    """

    original: Events
    inserted: Int[Tensor, "jumps"]
    _jumping: Int[Tensor, "jumps"]

    def __init__(self, events: Events):
        jumping = events.jump_events()
        vars(self).update(
            original=events,
            _jumping=jumping,
            inserted=jumping + torch.arange(len(jumping), device=jumping.device),
            offsets=events.offsets + torch.searchsorted(jumping, events.offsets),
        )

    def moved(self, at: Int[Tensor, "*batch"]) -> Int[Tensor, "*batch"]:
        """The new index of original events."""
        return at + torch.searchsorted(self._jumping, at, right=True)

    def originals(self, at: Int[Tensor, "*batch"]) -> tuple[Int[Tensor, "*batch"], Bool[Tensor, "*batch"]]:
        """The original event of each event (of an inserted one, that with the jump), and whether it was inserted."""
        before = torch.searchsorted(self.inserted, at)
        new = torch.searchsorted(self.inserted, at, right=True) > before
        return at - before, new

    def _column(self, name: str, fill: float) -> Column:
        values = getattr(self.original, name).detach()

        def column(at: Tensor) -> Tensor:
            original, new = self.originals(at)
            return torch.where(new, fill, values[original])

        return Column(column, self.offsets)

    @property
    def piece(self) -> Column:  # type: ignore[override]
        """The piece of the step."""
        return self._column("piece", -1)

    @property
    def start(self) -> Column:  # type: ignore[override]
        """The start of the step in u."""
        return self._column("start", 0.0)

    @property
    def length(self) -> Column:  # type: ignore[override]
        """The length of the step in u."""
        return self._column("length", 0.0)

    @property
    def duration(self) -> Column:  # type: ignore[override]
        """The duration of the step."""
        return self._column("duration", 0.0)

    @property
    def time(self) -> Column:  # type: ignore[override]
        """The time of the event."""
        return Column(lambda at: self.original.time.detach()[self.originals(at)[0]], self.offsets)

    @property
    def jump_row(self) -> Column:  # type: ignore[override]
        """The row of the event, if that has a jump."""
        return self._column("jump_row", -1)

    def jump_events(self) -> Int[Tensor, "jumps"]:
        """The events with a jump."""
        return self.inserted + 1


def split_jumps(events: Events) -> Events:
    """Insert an event before each jump, so that the state before the jump can be saved; the events are detached."""
    if isinstance(events, KnotEvents) and events.jumps is None:
        return events.detached()
    return SplitEvents(events)
