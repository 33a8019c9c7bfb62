r"""What the schemes share: pieces, and each channel's own gaps between observations.

A series of n rows has n - 1 gaps between rows and one piece a gap (rectilinear: two). A series of one row gets one
piece of duration 0 that stays where it is. On its piece, X is a polynomial in $u = (t - t_r) / h \in [0, 1]$.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ..series import IrregularSeries, ragged

CELLS_AT_ONCE = 1 << 20


def piece_offsets(offsets: Int[Tensor, "bounds"], per_gap: int) -> Int[Tensor, "bounds"]:
    """Where the pieces of each series start, and their number at the end."""
    gaps = ragged.lengths(offsets) - 1
    return ragged.offsets_of(torch.where(gaps > 0, gaps * per_gap, 1))


def first_rows(offsets: Int[Tensor, "bounds"]) -> Int[Tensor, "gaps"]:
    """The row at which each gap starts: every row but the last of a series (the only row, where there is one only)."""
    row = torch.arange(int(offsets[-1]), device=offsets.device)
    last = torch.zeros_like(row, dtype=torch.bool)
    last[offsets[1:] - 1] = ragged.lengths(offsets) > 1
    return row[~last]


def in_blocks(
    series: IrregularSeries,
    powers: int,
    build: Callable[[IrregularSeries], Float[Tensor, "pieces powers channels"]],
    *,
    per_gap: int = 1,
) -> Float[Tensor, "pieces powers channels"]:
    """The coefficients of all series, built for some series at a time so that scratch memory stays small.

    With gradients everything is built at once: the graph would hold it all anyway.
    """
    if series.values.requires_grad or series.times.requires_grad:
        return build(series)
    firsts = piece_offsets(series.offsets, per_gap)
    coefficients = series.values.new_empty(int(firsts[-1]), powers, series.channels)
    for part in blocks(series):
        coefficients[int(firsts[part.start]) : int(firsts[part.stop])] = build(series[part])
    return coefficients


def blocks(series: IrregularSeries) -> Iterator[slice]:
    """Ranges of consecutive series with about `CELLS_AT_ONCE` values each, one series at least."""
    rows = max(CELLS_AT_ONCE // max(series.channels, 1), 1)
    start = 0
    while start < len(series):
        reach = series.offsets[start] + rows
        stop = int(torch.searchsorted(series.offsets, reach, right=True)) - 1
        stop = min(max(stop, start + 1), len(series))
        yield slice(start, stop)
        start = stop


class Gaps(NamedTuple):
    """For every piece and channel, the gap between the channel's own observations that the piece lies in.

    `before` and `after` are the rows of those observations. Where there is only one of them both name it; `none` marks
    channels without any observation. `since` is the time from `before` to the start of the piece, `duration` the piece's.
    """

    before: Int[Tensor, "pieces channels"]
    after: Int[Tensor, "pieces channels"]
    none: Bool[Tensor, "pieces channels"]
    width: Float[Tensor, "pieces channels"]
    since: Float[Tensor, "pieces channels"]
    duration: Float[Tensor, "pieces 1"]


def own_gaps(series: IrregularSeries) -> Gaps:
    """Each channel's own gaps; outside its observations the gap is empty, so that X stays constant there."""
    row = first_rows(series.offsets)
    before = ragged.last_observed_row(series.observed, series.offsets)
    after = next_observed_row(series)
    before, after = before[row], after[row]
    none = (before < 0) & (after < 0)
    before, after = torch.where(before < 0, after, before), torch.where(after < 0, before, after)
    before, after = before.clamp(min=0), after.clamp(min=0)
    width = series.times[after] - series.times[before]
    inside = width > 0
    next_row = (row + 1).clamp(max=max(len(series.times) - 1, 0))
    same = ragged.series_of_rows(series.offsets)
    duration = torch.where(same[next_row] == same[row], series.times[next_row] - series.times[row], 0.0)[:, None]
    since = torch.where(inside, series.times[row][:, None] - series.times[before], 0.0)
    return Gaps(before, after, none, torch.where(inside, width, 1.0), since, duration)


def next_observed_row(series: IrregularSeries) -> Int[Tensor, "rows channels"]:
    """For every row and channel, the row of the channel's next observation after it; -1 if there is none."""
    rows = len(series.times)
    row = torch.arange(rows, device=series.device)[:, None]
    there = torch.where(series.observed, row, rows)
    there = there.flip(0).cummin(0).values.flip(0) if rows else there
    there = torch.nn.functional.pad(there[1:], (0, 0, 0, 1), value=rows) if rows else there
    end = series.offsets[1:][ragged.series_of_rows(series.offsets)][:, None]
    return torch.where(there < end, there, -1)


def forward_filled(series: IrregularSeries) -> IrregularSeries:
    """The series with every channel's last observation carried forward, 0 before its first: nothing is missing."""
    filled = ragged.forward_fill(series.values, series.observed, series.offsets)
    return dataclasses.replace(series, values=filled)


def check_series(series: object) -> None:
    """A path is made of series, of nothing else."""
    if not isinstance(series, IrregularSeries):
        raise TypeError(
            f"series must be an IrregularSeries, got {type(series).__name__}; make one: nc.IrregularSeries.from_list(pairs), "
            ".from_long(frame, id=, time=) or .from_padded(array)."
        )


def check_fill(fill: str) -> None:
    """`fill` is one of two words."""
    if fill not in ("interpolate", "forward"):
        raise ValueError(f'fill must be "interpolate" or "forward", got {fill!r}.')
