"""Channels added to the data: time, observational intensity, and the start (for sensitivity to translation)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from . import ragged

Role = Literal["time", "count", "start", "data"]
Counts = Literal["shared", "per_channel"]


@dataclass(frozen=True)
class ChannelScales:
    """Divisors of the time and count channels: all one unless a `SeriesScaler` sets them.

    `counts` holds one number per data channel; None stands for ones. `from_start` counts time from the start of each
    series.
    """

    time: float = 1.0
    count: float = 1.0
    counts: tuple[float, ...] | None = None
    from_start: bool = True


class Added(NamedTuple):
    """New columns of the values, with their names and roles."""

    columns: list[Float[Tensor, "rows added"]]
    names: list[str]
    roles: list[Role]


def time_since_start(times: Float[Tensor, " rows"], offsets: Int[Tensor, " bounds"]) -> Float[Tensor, " rows"]:
    """Time since the first row of the series, in float64; small enough to become float32 without losing digits."""
    return times - times[offsets[:-1]][ragged.series_of_rows(offsets)]


def cumulative_counts(
    observed: Bool[Tensor, "rows channels"], offsets: Int[Tensor, " bounds"]
) -> Int[Tensor, "rows channels"]:
    """How often each channel was observed up to and including each row."""
    total = observed.cumsum(0)
    before = torch.nn.functional.pad(total, (0, 0, 1, 0))[offsets[:-1]]
    return total - before[ragged.series_of_rows(offsets)]


def added_channels(
    times: Float[Tensor, " rows"],
    values: Float[Tensor, "rows channels"],
    offsets: Int[Tensor, " bounds"],
    names: tuple[str, ...],
    scales: ChannelScales,
    *,
    time: bool,
    counts: Counts | None,
    start: bool,
) -> Added:
    """The columns that `IrregularSeries.with_channels` puts before the data."""
    if counts not in (None, "shared", "per_channel"):
        raise ValueError(f'counts must be None, "shared" or "per_channel", got {counts!r}.')
    added = Added([], [], [])

    def add(columns: Tensor, labels: list[str], role: Role) -> None:
        added.columns.append(columns.to(values.dtype))
        added.names.extend(labels)
        added.roles.extend([role] * len(labels))

    clock = (time_since_start(times, offsets) if scales.from_start else times)[:, None] / scales.time
    observed = ~values.isnan()
    if time:
        add(clock, ["time"], "time")
    if counts == "shared":
        add(cumulative_counts(observed.any(1, keepdim=True), offsets).double() / scales.count, ["count"], "count")
    if counts == "per_channel":
        divisor = torch.tensor(scales.counts or (1.0,) * len(names), dtype=torch.float64, device=values.device)
        add(cumulative_counts(observed, offsets) / divisor, [f"count of {name}" for name in names], "count")
    if start:
        first = torch.nan_to_num(values[offsets[:-1]], nan=0.0)[ragged.series_of_rows(offsets)]
        add(clock * first, [f"time x first {name}" for name in names], "start")
    return added
