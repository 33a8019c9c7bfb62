"""What a jump sees of an observation: values, mask and gaps, row by row."""

from __future__ import annotations

from functools import cached_property

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ..paths import ControlPath
from ..series import ragged


class Observations:
    """The rows of the series that a path was made from, data channels only; each part is worked out when it is asked for."""

    def __init__(self, path: ControlPath):
        self.path, self.series = path, path.series
        self.data = [position for position, role in enumerate(path.series.roles) if role == "data"]

    @cached_property
    def observed(self) -> Bool[Tensor, "rows data"]:
        """What was observed at each row."""
        return ~self.series.values[:, self.data].isnan()

    @cached_property
    def jumps(self) -> Bool[Tensor, "rows"]:
        """The rows at which something was observed."""
        return self.observed.any(1)

    @cached_property
    def known(self) -> Bool[Tensor, "rows data"]:
        """What was observed at each row or before it."""
        return ragged.last_observed_row(self.observed, self.series.offsets) >= 0

    @cached_property
    def filled(self) -> Float[Tensor, "rows data"]:
        """Each channel's last observation at or before the row, 0 before its first one."""
        return ragged.forward_fill(self.series.values[:, self.data], self.observed, self.series.offsets)

    @cached_property
    def interpolated(self) -> Float[Tensor, "rows data"]:
        """X at each row."""
        return self.path.at_rows()[:, self.data]

    @cached_property
    def gap(self) -> Float[Tensor, "rows 1"]:
        """Time since the last row before at which anything was observed; since the start of the series where there is none."""
        return self._since(self.jumps[:, None])

    @cached_property
    def channel_gaps(self) -> Float[Tensor, "rows data"]:
        """The same for every channel by itself."""
        return self._since(self.observed)

    def _since(self, observed: Bool[Tensor, "rows columns"]) -> Float[Tensor, "rows columns"]:
        offsets, times = self.series.offsets, self.series.times
        before = ragged.previous_observed_row(observed, offsets)
        start = offsets[:-1].index_select(0, ragged.series_of_rows(offsets))[:, None]
        return (times[:, None] - times[torch.where(before < 0, start, before)]).to(self.path.dtype)
