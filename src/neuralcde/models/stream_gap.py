"""What a step of streams hands to cells and readouts: the gap before a row, the row, and what is seen at it."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ..series.row_statistics import RowStatistics
from .observations import Observations
from .readout import Seen


class Gap:
    """The gap before a row, and the row.

    Parameters
    ----------
    before, after
        The statistics before and after the row.
    first
        Mask of the streams whose first row it is.
    observed
        What was observed at the row.
    earlier, jumped
        Times of the last row but two, and of the last row with an observation before this one.
    """

    def __init__(
        self,
        before: RowStatistics,
        after: RowStatistics,
        first: Bool[Tensor, " streams"],
        observed: Bool[Tensor, "streams data"],
        earlier: Float[Tensor, " streams"],
        jumped: Float[Tensor, " streams"],
    ):
        self.before, self.after, self.first, self.observed = before, after, first, observed
        self.earlier, self.jumped = earlier, jumped
        self.duration = after.time - before.time

    def observations(self, now: Float[Tensor, "streams channels"], *, encoded: bool, data: int) -> Observations:
        """The inputs of cells: those of the row, or of its encoding, which is observed as a whole."""
        dtype = now.dtype
        if encoded:
            every = torch.ones_like(now[:, -data:], dtype=torch.bool)
            since = self.duration.to(dtype)[:, None]
            return _Row(every, every, now[:, -data:], since, since.expand(-1, data))
        since = (self.after.time - self.jumped).to(dtype)[:, None]
        channel = (self.after.time[:, None] - self.before.seen_at).to(dtype)
        return _Row(self.observed, self.after.known, self.after.last, since, channel)


class _Row(Observations):
    """The observations of one row per stream."""

    def __init__(self, observed: Tensor, known: Tensor, filled: Tensor, gap: Tensor, channel_gaps: Tensor):
        self.observed, self.known, self.filled, self.interpolated = observed, known, filled, filled
        self.gap, self.channel_gaps = gap, channel_gaps


class SeenInStream(Seen):
    """The input of a readout at the last row of streams. It has no `path`, no `row` and no `given`."""

    def __init__(
        self,
        state: Float[Tensor, "streams features"],
        values: Float[Tensor, "streams channels"],
        static: Float[Tensor, "streams static"],
        statistics: RowStatistics,
    ):
        own = {"state": state, "_values": values, "_static": static, "_statistics": statistics}
        for name, value in own.items():
            object.__setattr__(self, name, value)

    @property
    def values(self) -> Tensor:
        """X at the row."""
        return self._values  # type: ignore[no-any-return]

    @property
    def static(self) -> Tensor:
        """The static features; missing ones are 0."""
        return self._static  # type: ignore[no-any-return]

    def known(self, inputs: Any) -> Tensor:
        """These features of what is known at the row."""
        return inputs.of_statistics(self._statistics)  # type: ignore[no-any-return]

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"a stream keeps no rows, so that a readout cannot use seen.{name} there; use seen.state, seen.values, "
            "seen.static and seen.known(inputs)."
        )
