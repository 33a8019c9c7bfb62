r"""Building blocks of the path schemes: pieces, and the gaps between a channel's own observations.

A series of n rows has n - 1 gaps between rows, with one piece per gap (rectilinear paths: two). A series of one row
gets one constant piece of duration 0. On each piece, X is a polynomial in $u = (t - t_r) / h \in [0, 1]$.
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
    """Index of the first piece of each series; the last entry is the total number of pieces."""
    gaps = ragged.lengths(offsets) - 1
    return ragged.offsets_of(torch.where(gaps > 0, gaps * per_gap, 1))


def first_rows(offsets: Int[Tensor, "bounds"]) -> Int[Tensor, "gaps"]:
    """The row at which each gap starts: every row but the last of its series, and the only row of a one-row series."""
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
    """The coefficients of all series, built block by block to bound the scratch memory.

    If gradients are required, everything is built at once: the graph keeps all intermediates in any case.
    """
    if series.values.requires_grad or series.times.requires_grad:
        return build(series)
    firsts = piece_offsets(series.offsets, per_gap)
    coefficients = series.values.new_empty(int(firsts[-1]), powers, series.channels)
    for part in blocks(series):
        coefficients[int(firsts[part.start]) : int(firsts[part.stop])] = build(series[part])
    return coefficients


def blocks(series: IrregularSeries) -> Iterator[slice]:
    """Ranges of consecutive series with at most `CELLS_AT_ONCE` values each; a longer series has a range of its own."""
    rows = max(CELLS_AT_ONCE // max(series.channels, 1), 1)
    start = 0
    while start < len(series):
        reach = series.offsets[start] + rows
        stop = int(torch.searchsorted(series.offsets, reach, right=True)) - 1
        stop = min(max(stop, start + 1), len(series))
        yield slice(start, stop)
        start = stop


class Gaps(NamedTuple):
    """For every piece and channel, the gap that contains the piece: from one observation of the channel to its next.

    Parameters
    ----------
    before, after
        Rows of the observations at both ends of the gap. Before a channel's first and after its last observation there
        is only one such row, and both are equal to it.
    none
        True for channels without any observation.
    width
        Time from `before` to `after`; 1 where the two are equal, so that it can be divided by.
    since
        Time from `before` to the start of the piece.
    duration
        Duration of the piece.
    """

    before: Int[Tensor, "pieces channels"]
    after: Int[Tensor, "pieces channels"]
    none: Bool[Tensor, "pieces channels"]
    width: Float[Tensor, "pieces channels"]
    since: Float[Tensor, "pieces channels"]
    duration: Float[Tensor, "pieces 1"]


def own_gaps(series: IrregularSeries) -> Gaps:
    """The gaps of each channel. Outside the channel's observations the gap is empty, so that X is constant there."""
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
    # A cumulative minimum from the end gives the next observation at or after a row; shifting by one makes it "after".
    # It runs over all series at once, so a result beyond the end of the row's own series counts as none.
    there = torch.where(series.observed, row, rows)
    there = there.flip(0).cummin(0).values.flip(0) if rows else there
    there = torch.nn.functional.pad(there[1:], (0, 0, 0, 1), value=rows) if rows else there
    end = series.offsets[1:][ragged.series_of_rows(series.offsets)][:, None]
    return torch.where(there < end, there, -1)


def forward_filled(series: IrregularSeries) -> IrregularSeries:
    """The series with missing values replaced by the channel's last observation, or by 0 before its first one."""
    filled = ragged.forward_fill(series.values, series.observed, series.offsets)
    return dataclasses.replace(series, values=filled)


def check_series(series: object) -> None:
    """Raise `TypeError` for anything but an `IrregularSeries`."""
    if not isinstance(series, IrregularSeries):
        raise TypeError(
            f"series must be an IrregularSeries, got {type(series).__name__}; make one: "
            "nc.IrregularSeries.from_list(pairs), .from_long(frame, id=, time=) or .from_padded(array)."
        )


def check_fill(fill: str) -> None:
    """Raise `ValueError` for an unknown `fill`."""
    if fill not in ("interpolate", "forward"):
        raise ValueError(f'fill must be "interpolate" or "forward", got {fill!r}.')
