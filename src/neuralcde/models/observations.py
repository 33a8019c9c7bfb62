"""Values, observed mask and time gaps of every row, from which the inputs of a cell are made."""

from __future__ import annotations

from functools import cached_property

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ..paths import ControlPath
from ..series import ragged


class Observations:
    """The data channels of the series that a path was made from; every property is computed at first access.

    Parameters
    ----------
    path
        The path.
    """

    def __init__(self, path: ControlPath):
        self.path, self.series = path, path.series
        self.data = [position for position, role in enumerate(path.series.roles) if role == "data"]

    @cached_property
    def observed(self) -> Bool[Tensor, "rows data"]:
        """Mask of observed values."""
        return ~self.series.values[:, self.data].isnan()

    @cached_property
    def jumps(self) -> Bool[Tensor, "rows"]:
        """Mask of the rows at which any channel was observed."""
        return self.observed.any(1)

    @cached_property
    def known(self) -> Bool[Tensor, "rows data"]:
        """Mask of the channels that were observed at or before each row."""
        return ragged.last_observed_row(self.observed, self.series.offsets) >= 0

    @cached_property
    def filled(self) -> Float[Tensor, "rows data"]:
        """The last observation of each channel at or before the row; 0 before the first one."""
        return ragged.forward_fill(self.series.values[:, self.data], self.observed, self.series.offsets)

    @cached_property
    def interpolated(self) -> Float[Tensor, "rows data"]:
        """X at each row."""
        return self.path.at_rows()[:, self.data]

    @cached_property
    def gap(self) -> Float[Tensor, "rows 1"]:
        """Time since the last earlier row with any observation; since the start of the series if there is none."""
        return self._since(self.jumps[:, None])

    @cached_property
    def channel_gaps(self) -> Float[Tensor, "rows data"]:
        """Time since the last earlier observation of each channel; since the start of the series if there is none."""
        return self._since(self.observed)

    def _since(self, observed: Bool[Tensor, "rows columns"]) -> Float[Tensor, "rows columns"]:
        offsets, times = self.series.offsets, self.series.times
        before = ragged.previous_observed_row(observed, offsets)
        start = offsets[:-1].index_select(0, ragged.series_of_rows(offsets))[:, None]
        return (times[:, None] - times[torch.where(before < 0, start, before)]).to(self.path.dtype)
