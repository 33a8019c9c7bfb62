"""The events of equal steps in every piece, computed when they are read: a list of the steps would grow with them."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ..paths import ControlPath
from ..series import ragged
from .events import Column, Events, piece_start_rows


class GridEvents(Events):
    """The events that `events_of` returns for equal steps in every piece; for knots that need no gradient.

    Parameters
    ----------
    path
        The paths of the batch.
    counts
        Number of steps in every piece, at least 1.
    jumps
        Mask of the rows with a jump; None for no jumps.
    """

    def __init__(self, path: ControlPath, counts: Int[Tensor, "pieces"], jumps: Bool[Tensor, "rows"] | None):
        rows = path.series.offsets
        firsts = ragged.offsets_of(counts)  # the first step of every piece
        offsets = firsts[path.piece_offsets] + torch.arange(len(path) + 1, device=path.device)
        # A row is reached when all pieces before it are done.
        of_row = ragged.series_of_rows(rows)
        before = path.piece_offsets[:-1][of_row]
        within = ragged.places_in_series(rows) * path.pieces_per_gap
        reached = firsts[before + within] - firsts[before]
        at_rows = offsets[:-1][of_row] + reached
        jumping = of_row.new_zeros(0) if jumps is None else jumps.nonzero()[:, 0]
        knots, durations = path.knots.detach(), path.durations.detach()
        vars(self).update(
            offsets=offsets,
            reached=reached,
            _firsts=firsts,
            _lengths=1.0 / counts.double(),
            _durations=durations,
            _piece_times=knots[piece_start_rows(path)],
            _end_times=knots[rows[1:] - 1],
            _jump_rows=jumping,
            _jump_events=at_rows[jumping],
        )

    reached: Int[Tensor, "rows"]
    _firsts: Int[Tensor, "bounds"]
    _lengths: Float[Tensor, "pieces"]
    _durations: Float[Tensor, "pieces"]
    _piece_times: Float[Tensor, "pieces"]
    _end_times: Float[Tensor, "series"]
    _jump_rows: Int[Tensor, "jumps"]
    _jump_events: Int[Tensor, "jumps"]

    def _place(self, at: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The piece of each event's step and the number of the step in it; and whether there is none."""
        # One event per step and one more at the end of each series.
        series = ragged.series_of(self.offsets, at)
        last = self.offsets[series + 1] - 1 == at
        step = torch.where(last, 0, at - series)
        piece = torch.searchsorted(self._firsts, step, right=True) - 1
        return piece, step - self._firsts[piece], last

    def _of_steps(self, values: Tensor) -> Column:
        def column(at: Tensor) -> Tensor:
            piece, _, last = self._place(at)
            return torch.where(last, 0.0, values[piece])

        return Column(column, self.offsets)

    @property
    def piece(self) -> Column:  # type: ignore[override]
        """The piece of the path that contains the step."""

        def column(at: Tensor) -> Tensor:
            piece, _, last = self._place(at)
            return torch.where(last, -1, piece)

        return Column(column, self.offsets)

    @property
    def start(self) -> Column:  # type: ignore[override]
        """Start of the step in u."""

        def column(at: Tensor) -> Tensor:
            piece, number, last = self._place(at)
            return torch.where(last, 0.0, number * self._lengths[piece])

        return Column(column, self.offsets)

    @property
    def length(self) -> Column:  # type: ignore[override]
        """Length of the step in u."""
        return self._of_steps(self._lengths)

    @property
    def duration(self) -> Column:  # type: ignore[override]
        """Duration of the step in time."""
        return self._of_steps(self._durations * self._lengths)

    @property
    def time(self) -> Column:  # type: ignore[override]
        """The time of the event."""

        def column(at: Tensor) -> Tensor:
            piece, number, last = self._place(at)
            time = self._piece_times[piece] + self._durations[piece] * (number * self._lengths[piece])
            return torch.where(last, self._end_times[ragged.series_of(self.offsets, at)], time)

        return Column(column, self.offsets)

    @property
    def jump_row(self) -> Column:  # type: ignore[override]
        """The row whose observation causes the jump."""

        def column(at: Tensor) -> Tensor:
            if len(self._jump_events) == 0:
                return torch.full_like(at, -1)
            found = torch.searchsorted(self._jump_events, at).clamp(max=len(self._jump_events) - 1)
            return torch.where(self._jump_events[found] == at, self._jump_rows[found], -1)

        return Column(column, self.offsets)

    def jump_events(self) -> Int[Tensor, "jumps"]:
        """The events with a jump."""
        return self._jump_events

    def last_before(self, asked: Float[Tensor, "series k"]) -> Int[Tensor, "series k"]:
        """The last event at or before each time, by bisection."""
        low = self.offsets[:-1, None].expand_as(asked)
        high = (self.offsets[1:, None] - 1).expand_as(asked)
        while bool((low < high).any()):
            middle = (low + high + 1) // 2
            later = self.time[middle] > asked
            low, high = torch.where(later, low, middle), torch.where(later, middle - 1, high)
        return low
