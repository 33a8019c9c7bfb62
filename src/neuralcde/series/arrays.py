"""Arrays to ragged tensors: a list of (times, values) pairs, or one padded block. Gradients flow back to the input."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from ..contracts import Argument, ArgumentError
from . import ragged

When = Callable[[float], str]
"""A time as the user would write it, e.g. "hour=7.5"."""

ROWS_AT_ONCE = 1 << 16
_EXPECTED = "expected numbers (booleans, integers, float32 or float64)"
_PARTS = "Make the .real and .imag parts two channels."


class Rows(NamedTuple):
    """Ragged rows: times, values and offsets."""

    times: Float[Tensor, " rows"]
    values: Float[Tensor, "rows channels"]
    offsets: Int[Tensor, " bounds"]


class Padded(NamedTuple):
    """Series padded with NaN to the longest one."""

    values: Float[Tensor, "series steps channels"]
    times: Float[Tensor, "series steps"]
    lengths: Int[Tensor, " series"]


def read_list(pairs: Sequence[tuple[Any, Any]], *, ids: NDArray[Any], dtype: torch.dtype) -> Rows:
    """Read one (times, values) pair per series, values of shape (n_i, channels) or (n_i,)."""
    if not len(pairs):
        raise ValueError("pairs is empty; expected at least one (times, values) pair.")
    times: list[Tensor] = []
    values: list[Tensor] = []
    for position, pair in enumerate(pairs):
        name = f"series {ragged.series_name(ids, position)}"
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise TypeError(f"{name} is a {type(pair).__name__}; expected a pair (times, values).")
        x = as_tensor(pair[1], f"values of {name}", dtype)
        t = as_tensor(pair[0], f"times of {name}", torch.float64).to(x.device)
        x = x[:, None] if x.ndim == 1 else x
        if t.ndim != 1 or x.ndim != 2 or len(t) != len(x):
            swapped = t.ndim == 1 and x.ndim == 2 and len(t) == x.shape[1]
            raise ValueError(
                f"{name} has times of shape {tuple(t.shape)} and values of shape {tuple(x.shape)}; expected (n,) and "
                "(n, channels)." + (" The values look like (channels, n): pass values.T." if swapped else "")
            )
        if len(t) == 0:
            raise ValueError(f"{name} has no rows; leave it out of the list.")
        times.append(t)
        values.append(x)
        if x.shape[1] != values[0].shape[1]:
            raise ValueError(
                f"{name} has {x.shape[1]} channels, but the first series has {values[0].shape[1]}; add columns of NaN."
            )
    counts = torch.tensor([len(t) for t in times], device=times[0].device)
    return Rows(torch.cat(times), torch.cat(values), ragged.offsets_of(counts))


def read_padded(values: Any, times: Any, lengths: Any, *, named: bool, dtype: torch.dtype) -> Rows:
    """Read a block (series, steps, channels); without `lengths`, trailing rows that are all NaN are cut off."""
    x = as_tensor(values, "values", dtype)
    if x.ndim != 3:
        hint = " For one channel pass values[:, :, None]." if x.ndim == 2 else ""
        raise ValueError(f"values must have shape (series, steps, channels), got {tuple(x.shape)}.{hint}")
    count, steps, channels = x.shape
    if count == 0 or steps == 0:
        raise ValueError(
            f"values of shape {tuple(x.shape)} (series, steps, channels) hold no rows; expected at least one."
        )
    t = torch.arange(steps, dtype=torch.float64) if times is None else as_tensor(times, "times", torch.float64)
    if t.shape not in ((steps,), (count, steps)):
        swapped = t.shape in ((channels,), (count, channels))
        raise ValueError(
            f"times of shape {tuple(t.shape)} do not fit values of shape {tuple(x.shape)} (series, steps, channels); "
            f"expected ({steps},) or ({count}, {steps})."
            + (" The array looks like (series, channels, steps): pass values.swapaxes(1, 2)." if swapped else "")
        )
    if channels > steps and times is None and lengths is None and not named:
        raise ValueError(
            f"values of shape {tuple(x.shape)} would be {steps} steps of {channels} channels; the array looks like "
            "(series, channels, steps). Pass values.swapaxes(1, 2), or confirm the layout with times= or "
            "channels=[names]."
        )
    t = t.to(x.device).expand(count, steps)
    if lengths is None:
        holds = ~x.isnan().all(2)
        counts = (holds * torch.arange(1, steps + 1, device=x.device)).amax(1).clamp(min=1)
    else:
        whole = as_tensor(lengths, "lengths", torch.float64).to(x.device)
        counts = whole.long()
        if counts.shape != (count,) or not bool(((counts == whole) & (counts >= 1) & (counts <= steps)).all()):
            raise ValueError(
                f"lengths must be {count} integers between 1 and {steps} for values of shape {tuple(x.shape)} "
                f"(series, steps, channels), got {_short(lengths)}."
            )
    kept = torch.arange(steps, device=x.device) < counts[:, None]
    return Rows(t[kept], x[kept], ragged.offsets_of(counts))


def pad(rows: Rows) -> Padded:
    """Rows as one padded block: the inverse of `read_padded`. Differentiable."""
    times, values, offsets = rows
    lengths = ragged.lengths(offsets)
    count, steps = len(lengths), int(lengths.max()) if len(lengths) else 0
    place = ragged.series_of_rows(offsets), ragged.places_in_series(offsets)
    return Padded(
        values.new_full((count, steps, values.shape[1]), torch.nan).index_put(place, values),
        times.new_full((count, steps), torch.nan).index_put(place, times),
        lengths,
    )


def merge_repeated(rows: Rows, how: str) -> Rows:
    """Merge rows of one series at one time: the mean, or the last, of each channel's observations there."""
    times, values, offsets = rows
    series = ragged.series_of_rows(offsets)
    # A row starts a new group where its time or its series differs from that of the row before.
    new = torch.ones(len(times), dtype=torch.bool, device=times.device)
    new[1:] = (times.diff() != 0) | (series.diff() != 0)
    group, groups = new.cumsum(0) - 1, int(new.sum())
    observed = ~values.isnan()
    shape = (groups, values.shape[1])
    if how == "mean":
        count = values.new_zeros(shape).index_add(0, group, observed.to(values.dtype))
        # Divide before summing: a sum of large numbers might overflow.
        share = torch.where(observed, values, 0.0) / count.clamp(min=1)[group]
        merged = torch.where(count > 0, values.new_zeros(shape).index_add(0, group, share), torch.nan)
    else:
        # The last observation of a group is the largest row number at which the channel was observed.
        row = torch.where(observed, torch.arange(len(times), device=times.device)[:, None], -1)
        empty = torch.full(shape, -1, device=times.device)
        last = empty.scatter_reduce(0, group[:, None].expand_as(row), row, "amax")
        merged = torch.where(last >= 0, values.gather(0, last.clamp(min=0)), torch.nan)
    counts = torch.bincount(series[new], minlength=len(offsets) - 1)
    return Rows(times[new], merged, ragged.offsets_of(counts))


def check_finite(rows: Rows, ids: NDArray[Any], channel_names: Sequence[str], when: When) -> None:
    """Check that times are finite, and values finite or NaN; an error names the series."""
    times, values, offsets = rows
    row = _first_row(times, lambda part: ~part.isfinite())
    if row is not None:
        raise ValueError(
            f"{_series_at(row, offsets, ids)} has a time of {times[row].item()}; times must be finite. Drop such rows."
        )
    row = _first_row(values, lambda part: part.isinf().any(1))
    if row is not None:
        channel = int(values[row].isinf().nonzero()[0, 0])
        raise ValueError(
            f"{_series_at(row, offsets, ids)} has {channel_names[channel]}={values[row, channel].item()} at "
            f"{when(times[row].item())}; values must be finite in {_name(values.dtype)}, or NaN where nothing was "
            f"observed. Replace infinities by NaN.{_larger(values)}"
        )


def check_static(static: Float[Tensor, "series features"], ids: NDArray[Any], names: Sequence[str]) -> None:
    """Check that static features are finite or NaN; an error names the series."""
    series = _first(static.isinf().any(1))
    if series is None:
        return
    feature = int(static[series].isinf().nonzero()[0, 0])
    raise ValueError(
        f"series {ragged.series_name(ids, series)} has the static feature "
        f"{names[feature]}={static[series, feature].item()}; it must be finite in {_name(static.dtype)}, or NaN where "
        f"it is unknown. Replace infinities by NaN.{_larger(static)}"
    )


def check_increasing(rows: Rows, ids: NDArray[Any], when: When) -> None:
    """Check that times increase strictly within each series; an error names the series."""
    times, _, offsets = rows
    back = times[1:] <= times[:-1]
    firsts = offsets[1:-1]
    back[firsts[(firsts > 0) & (firsts < len(times))] - 1] = False  # between two series time may go back
    row = _first(back)
    if row is None:
        return
    name, before, after = _series_at(row, offsets, ids), times[row].item(), times[row + 1].item()
    if before == after:
        raise ArgumentError(
            f"{name} has two rows at {when(before)}; times must increase strictly. Aggregate them, or pass ",
            Argument("duplicates", "mean"),
            " or ",
            Argument("duplicates", "last"),
            ".",
        )
    raise ValueError(
        f"{name} goes back in time, from {when(before)} to {when(after)}; times must increase strictly. "
        "Sort each series: order = times.argsort(); times, values = times[order], values[order]."
    )


def _first_row(data: Tensor, wrong: Callable[[Tensor], Tensor]) -> int | None:
    """The first row for which `wrong` holds. Rows are checked block by block, because a check makes copies."""
    for start in range(0, len(data), ROWS_AT_ONCE):
        row = _first(wrong(data[start : start + ROWS_AT_ONCE]))
        if row is not None:
            return start + row
    return None


def _first(mask: Tensor) -> int | None:
    found = mask.nonzero()
    return int(found[0, 0]) if len(found) else None


def _series_at(row: int, offsets: Tensor, ids: NDArray[Any]) -> str:
    return f"series {ragged.series_name(ids, int(torch.searchsorted(offsets, row, right=True)) - 1)}"


def as_tensor(data: Any, argument: str, dtype: torch.dtype) -> Tensor:
    """Data as a tensor of `dtype`; text, complex numbers and float16 are refused."""
    if isinstance(data, Tensor):
        if data.dtype.is_complex or (data.dtype.is_floating_point and data.dtype.itemsize < 4):
            fix = _PARTS if data.dtype.is_complex else "Convert them: .to(torch.float32)."
            raise TypeError(f"{argument}: {_EXPECTED}, got dtype {data.dtype}. {fix}")
        return data.to(dtype)
    try:
        array = np.asarray(data)
    except (TypeError, ValueError, RuntimeError) as problem:  # ragged lists, lists of tensors with gradients
        raise ValueError(f"{argument}: {_EXPECTED} in one array, got a {type(data).__name__}: {problem}") from None
    if array.dtype.kind not in "fiub" or array.dtype == np.float16:
        kind = str(dtype).removeprefix("torch.")
        fixes = {
            "c": _PARTS,
            "O": f"Write NaN for None: .astype(np.{kind}).",
            "M": 'Convert them to elapsed time: (stamps - stamps[0]) / np.timedelta64(1, "s").',
            "m": 'Divide them by a unit: / np.timedelta64(1, "s").',
        }
        fix = fixes.get(array.dtype.kind, f"Convert them: .astype(np.{kind}).")
        raise TypeError(f"{argument}: {_EXPECTED}, got dtype {array.dtype}. {fix}")
    if isinstance(data, np.ma.MaskedArray):
        array = np.where(np.ma.getmaskarray(data), np.nan, array)
    with np.errstate(over="ignore"):  # infinities are reported with the series they are in
        return torch.from_numpy(array.astype(np.float32 if dtype == torch.float32 else np.float64))


def read_static(static: Any, like: Rows) -> Float[Tensor, "series features"]:
    """Static features (series, k), on the device and with the dtype of the rows; (series,) is one feature."""
    count = len(like.offsets) - 1
    if static is None:
        return like.values.new_empty(count, 0)
    # A copy: series are frozen, and the array that the features come from is not.
    features = as_tensor(static, "static", torch.float64).to(like.values, copy=True)
    features = features[:, None] if features.ndim == 1 else features
    if features.ndim != 2 or len(features) != count:
        raise ValueError(
            f"static must have shape ({count}, features), one row per series, got {tuple(features.shape)}."
        )
    return features


def as_names(given: Collection[str] | None, argument: str, count: int, letter: str) -> tuple[str, ...]:
    """The names given for `count` columns, by default a letter and a number: x0, x1, ..."""
    if isinstance(given, str):
        raise TypeError(f"{argument} must be a list of names, got the text {given!r}; write [{given!r}].")
    names = tuple(f"{letter}{i}" for i in range(count)) if given is None else tuple(map(str, given))
    if len(names) != count:
        raise ValueError(f"{argument} has {len(names)} names {list(names)} for {count} columns; give one each.")
    return names


def as_ids(ids: Any, *, argument: str, fix: str) -> NDArray[Any]:
    """Ids of series as an array of numbers or of text."""
    items = [item.item() if isinstance(item, np.generic) else item for item in getattr(ids, "tolist", lambda: ids)()]
    if any(item is None or type(item).__name__ == "NAType" or item != item for item in items):
        raise ValueError(f"{argument} has missing values; every series needs an id, e.g. 0, 1, 2, ...")
    kinds = {type(item) for item in items}
    if len(kinds) > 1:
        raise TypeError(f"{argument} mixes types {sorted(kind.__name__ for kind in kinds)}; make them one, e.g. {fix}.")
    if kinds == {int}:
        for kind in (np.int64, np.uint64):
            with contextlib.suppress(OverflowError):
                return np.array(items, dtype=kind)
    if kinds <= {float}:
        return np.array(items)
    return np.array([str(item) for item in items], dtype=object)


def check_dtype(dtype: torch.dtype) -> torch.dtype:
    """Refuse dtypes other than float32 and float64."""
    if dtype not in (torch.float32, torch.float64):
        raise TypeError(f"dtype must be torch.float32 or torch.float64, got {dtype}.")
    return dtype


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _larger(data: Tensor) -> str:
    return " Numbers beyond 3.4e38 need dtype=torch.float64." if data.dtype == torch.float32 else ""


def _short(data: Any) -> str:
    text = str(data).replace("\n", " ")
    return text if len(text) < 80 else text[:77] + "..."
