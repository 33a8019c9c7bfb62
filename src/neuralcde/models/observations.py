"""What a jump sees of an observation: values, mask and gaps, row by row."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ..paths import ControlPath
from ..series import ragged


@dataclass(frozen=True, eq=False)
class Observations:
    """The rows of a batch, data channels only.

    Parameters
    ----------
    filled
        Each channel's last observation at or before the row, 0 before its first one.
    interpolated
        X at the row.
    observed
        What was observed at the row.
    known
        What was observed at the row or before it.
    gap
        Time since the last row before it at which anything was observed; since the start of the series where there is none.
    channel_gaps
        The same for every channel by itself.
    """

    filled: Float[Tensor, "rows data"]
    interpolated: Float[Tensor, "rows data"]
    observed: Bool[Tensor, "rows data"]
    known: Bool[Tensor, "rows data"]
    gap: Float[Tensor, "rows 1"]
    channel_gaps: Float[Tensor, "rows data"]

    @property
    def jumps(self) -> Bool[Tensor, "rows"]:
        """The rows at which something was observed."""
        return self.observed.any(1)


def observations_of(path: ControlPath) -> Observations:
    """Read the observations off the series that a path was made from."""
    series = path.series
    data = torch.tensor([role == "data" for role in series.roles], device=path.device)
    values, observed = series.values[:, data], series.observed[:, data]

    def since(observed: Tensor) -> Tensor:
        before = ragged.previous_observed_row(observed, series.offsets)
        start = series.offsets[:-1][ragged.series_of_rows(series.offsets)][:, None]
        return (series.times[:, None] - series.times[torch.where(before < 0, start, before)]).to(path.dtype)

    return Observations(
        ragged.forward_fill(values, observed, series.offsets),
        path.at_rows()[:, data],
        observed,
        ragged.last_observed_row(observed, series.offsets) >= 0,
        since(observed.any(1, keepdim=True)),
        since(observed),
    )
