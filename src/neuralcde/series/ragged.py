"""Ragged rows: the rows of series i are `offsets[i] .. offsets[i + 1] - 1` of one long tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

Index = int | np.integer[Any] | slice | Sequence[int] | NDArray[Any] | Tensor


def lengths(offsets: Int[Tensor, " bounds"]) -> Int[Tensor, " series"]:
    """Number of rows of every series."""
    return offsets.diff()


def offsets_of(lengths: Int[Tensor, " series"]) -> Int[Tensor, " bounds"]:
    """The offsets of series with these numbers of rows."""
    return torch.nn.functional.pad(lengths.cumsum(0), (1, 0))


def series_of_rows(offsets: Int[Tensor, " bounds"]) -> Int[Tensor, " rows"]:
    """The position of each row's series."""
    rows = int(offsets[-1])
    # Not repeat_interleave: it starts torch's thread pool even for a few rows, and a forked child would wait for the
    # pool forever.
    starts = torch.zeros(rows + 1, dtype=torch.int64, device=offsets.device)
    starts.index_add_(0, offsets[1:-1], torch.ones_like(offsets[1:-1]))
    return starts.cumsum(0)[:rows]


def series_of(offsets: Int[Tensor, " bounds"], rows: Int[Tensor, "*batch"]) -> Int[Tensor, "*batch"]:
    """The position of the series that each of these rows belongs to."""
    return torch.searchsorted(offsets, rows, right=True) - 1


def places_in_series(offsets: Int[Tensor, " bounds"]) -> Int[Tensor, " rows"]:
    """The place of each row within its series: 0, 1, ..."""
    of_row = series_of_rows(offsets)
    # Not offsets[of_row]: indexing wakes torch's threads, which then spin for milliseconds on cores that others need.
    return torch.arange(len(of_row), device=offsets.device) - offsets.index_select(0, of_row)


def series_name(ids: NDArray[Any], position: int) -> str:
    """The id of a series as the user wrote it, for messages: `7`, not `np.int64(7)`."""
    return repr(ids[position : position + 1].tolist()[0])


def positions(index: Index, size: int) -> slice | Int[Tensor, " chosen"]:
    """A user's index as a slice with step 1 or as a tensor of positions; wrong ones raise IndexError, as in numpy.

    An integer selects one series, as a container of length one, so that iteration gives containers, too.
    """
    if isinstance(index, slice):
        start, stop, step = index.indices(size)
        if step == 1:
            return slice(start, max(start, stop))
        return torch.tensor(range(start, stop, step), dtype=torch.int64)
    chosen = index.detach().cpu().numpy() if isinstance(index, Tensor) else np.asarray(index)
    if chosen.ndim == 0 and chosen.dtype.kind in "iu":
        at = int(chosen)
        if not -size <= at < size:
            raise IndexError(f"series index {at} is out of range for {size} series")
        at %= size
        return slice(at, at + 1)
    if chosen.dtype == bool:
        if chosen.shape != (size,):
            raise IndexError(f"a boolean mask of shape {chosen.shape} does not fit {size} series; expected ({size},)")
        return torch.from_numpy(np.flatnonzero(chosen))
    if chosen.size == 0:
        return torch.zeros(0, dtype=torch.int64)
    if chosen.dtype.kind not in "iu" or chosen.ndim != 1:
        raise IndexError(
            f"cannot index series with {type(index).__name__} of dtype {chosen.dtype} and shape {chosen.shape}; "
            "use an int, a slice, a list of positions or a boolean mask; for an id, series[series.ids == id]"
        )
    if chosen.min() < -size or chosen.max() >= size:
        raise IndexError(f"series index out of range for {size} series: {chosen.min()} .. {chosen.max()}")
    chosen = chosen.astype(np.int64)
    return torch.from_numpy(np.where(chosen < 0, chosen + size, chosen))


def select(
    offsets: Int[Tensor, " bounds"], chosen: slice | Int[Tensor, " chosen"]
) -> tuple[slice | Int[Tensor, " rows"], Int[Tensor, " kept"]]:
    """The rows of the chosen series, as a slice or as row numbers, and the offsets among them."""
    if isinstance(chosen, slice):
        part = offsets[chosen.start : chosen.stop + 1]
        return slice(int(part[0]), int(part[-1])), part - part[0]
    bounds, wanted = offsets.numpy(force=True), chosen.numpy(force=True)  # numpy is much faster here than torch
    starts = bounds[wanted]
    counts = bounds[wanted + 1] - starts
    kept = np.zeros(len(wanted) + 1, dtype=np.int64)
    counts.cumsum(out=kept[1:])
    rows = np.arange(kept[-1]) + np.repeat(starts - kept[:-1], counts)
    return torch.from_numpy(rows).to(offsets.device), torch.from_numpy(kept).to(offsets.device)


def take(data: Tensor, rows: slice | Int[Tensor, " rows"]) -> Tensor:
    """These rows of the data; `index_select` is much faster than indexing."""
    return data[rows] if isinstance(rows, slice) else data.index_select(0, rows)


def last_row_at_or_before(
    times: Float[Tensor, " rows"], offsets: Int[Tensor, " bounds"], t: Float[Tensor, "series k"], *, strict: bool
) -> Int[Tensor, "series k"]:
    """The last row of each series with time <= t (< t if `strict`), or its first row if there is none."""
    return last_row_among(times, offsets[:-1, None].expand_as(t), offsets[1:, None].expand_as(t), t, strict=strict)


def last_row_among(
    times: Float[Tensor, " rows"],
    start: Int[Tensor, "*shape"],
    end: Int[Tensor, "*shape"],
    t: Float[Tensor, "*shape"],
    *,
    strict: bool,
) -> Int[Tensor, "*shape"]:
    """The last of the rows `start` to `end - 1` with time <= t (< t if `strict`), or `start` if there is none.

    One binary search for all queries at once, without padding; the loop runs over the halvings.
    """
    # Invariant: rows before `low` are at or before t, rows from `high` on are later.
    low, high = start, end
    longest = int((end - start).max()) if t.numel() else 0
    for _ in range(longest.bit_length()):
        searching = low < high
        middle = (low + high) // 2
        there = times[torch.where(searching, middle, start)]
        later = searching & ((there < t) if strict else (there <= t))
        low, high = torch.where(later, middle + 1, low), torch.where(searching & ~later, middle, high)
    return torch.maximum(low - 1, start)


def forward_fill(
    values: Float[Tensor, "rows channels"], observed: Bool[Tensor, "rows channels"], offsets: Int[Tensor, " bounds"]
) -> Float[Tensor, "rows channels"]:
    """Each channel's last observation at or before each row, 0 before its first one."""
    before = last_observed_row(observed, offsets)
    filled = torch.where(observed, values, 0.0).gather(0, before.clamp(min=0))
    return torch.where(before >= 0, filled, 0.0)


def last_observed_row(
    observed: Bool[Tensor, "rows channels"], offsets: Int[Tensor, " bounds"]
) -> Int[Tensor, "rows channels"]:
    """For every row and channel, the row of the channel's last observation at or before it; -1 if there is none."""
    row = torch.arange(len(observed), device=observed.device)
    # The running maximum of observed row numbers is the last one; those of earlier series do not count.
    seen = torch.where(observed, row[:, None], -1)
    if len(seen):
        seen = seen.cummax(0).values
    start = offsets[:-1][series_of_rows(offsets)]
    return torch.where(seen >= start[:, None], seen, -1)


def previous_observed_row(
    observed: Bool[Tensor, "rows channels"], offsets: Int[Tensor, " bounds"]
) -> Int[Tensor, "rows channels"]:
    """For every row and channel, the row of the channel's last observation before it; -1 if there is none."""
    last = last_observed_row(observed, offsets)
    previous = torch.nn.functional.pad(last[:-1], (0, 0, 1, 0), value=-1) if len(last) else last
    previous[offsets[:-1]] = -1
    return previous
