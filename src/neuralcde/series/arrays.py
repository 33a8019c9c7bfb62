"""Arrays (a list of ragged pairs, or one padded block) to ragged tensors that keep the graph of their inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from . import ragged


class Rows(NamedTuple):
    """Ragged rows: times, values and offsets."""

    times: Float[Tensor, rows]
    values: Float[Tensor, "rows channels"]
    offsets: Int[Tensor, bounds]


def read_list(pairs: Sequence[tuple[Any, Any]], *, names: np.ndarray[Any, Any], dtype: torch.dtype) -> Rows:
    """One (times, values) pair a series, values of shape (n_i, channels) or (n_i,)."""
    if not len(pairs):
        raise ValueError("the list is empty; expected at least one (times, values) pair.")
    times: list[Tensor] = []
    values: list[Tensor] = []
    for name, pair in zip(names, pairs, strict=True):
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise TypeError(f"series {name!r} is {type(pair).__name__}; expected a pair (times, values).")
        t, x = as_tensor(pair[0], "times", torch.float64), as_tensor(pair[1], "values", dtype)
        x = x[:, None] if x.ndim == 1 else x
        if t.ndim != 1 or x.ndim != 2 or len(t) != len(x):
            raise ValueError(
                f"series {name!r} has times of shape {tuple(t.shape)} and values of shape {tuple(x.shape)}; "
                "expected (n,) and (n, channels)."
            )
        if len(t) == 0:
            raise ValueError(f"series {name!r} has no rows; leave it out of the list.")
        if x.shape[1] != (values[0].shape[1] if values else x.shape[1]):
            raise ValueError(f"series {name!r} has {x.shape[1]} channels, but the first one has {values[0].shape[1]}.")
        times.append(t)
        values.append(x)
    counts = torch.tensor([len(t) for t in times])
    return Rows(torch.cat(times), torch.cat(values), ragged.offsets_of(counts))


def read_padded(values: Any, times: Any, lengths: Any, *, named: bool, dtype: torch.dtype) -> Rows:
    """A block (series, steps, channels); without `lengths`, trailing rows that hold nothing are cut off."""
    x = as_tensor(values, "values", dtype)
    if x.ndim != 3:
        raise ValueError(f"values must have shape (series, steps, channels), got {tuple(x.shape)}.")
    count, steps, channels = x.shape
    if count == 0 or steps == 0:
        raise ValueError(f"values of shape {tuple(x.shape)} hold no rows; expected (series, steps, channels).")
    t = torch.arange(steps, dtype=torch.float64) if times is None else as_tensor(times, "times", torch.float64)
    if t.shape not in ((steps,), (count, steps)):
        swapped = t.shape in ((channels,), (count, channels))
        raise ValueError(
            f"times of shape {tuple(t.shape)} do not fit values of shape {tuple(x.shape)} (series, steps, channels); expected "
            f"({steps},) or ({count}, {steps})."
            + (" The array looks like (series, channels, steps): pass values.swapaxes(1, 2)." if swapped else "")
        )
    if channels > steps and times is None and lengths is None and not named:
        raise ValueError(
            f"values of shape {tuple(x.shape)} would be {steps} steps of {channels} channels; the array looks like (series, "
            "channels, steps). Pass values.swapaxes(1, 2), or confirm the layout with times= or channels=[names]."
        )
    t = t.to(x.device).expand(count, steps)
    if lengths is None:
        holds = ~x.isnan().all(2)
        counts = (holds * torch.arange(1, steps + 1, device=x.device)).amax(1).clamp(min=1)
    else:
        counts = torch.as_tensor(lengths).to(x.device, torch.int64)
        if counts.shape != (count,) or bool((counts < 1).any()) or bool((counts > steps).any()):
            raise ValueError(f"lengths must be {count} numbers between 1 and {steps}, got {_short(lengths)}.")
    kept = torch.arange(steps, device=x.device) < counts[:, None]
    return Rows(t[kept], x[kept], ragged.offsets_of(counts))


def merge_repeated(rows: Rows, how: str) -> Rows:
    """Rows of one series at one time become one: the mean, or the last, of each channel's observations there."""
    times, values, offsets = rows
    series = ragged.series_of_rows(offsets)
    new = torch.ones(len(times), dtype=torch.bool, device=times.device)
    new[1:] = (times.diff() != 0) | (series.diff() != 0)
    group, groups = new.cumsum(0) - 1, int(new.sum())
    observed = ~values.isnan()
    shape = (groups, values.shape[1])
    if how == "mean":
        total = values.new_zeros(shape).index_add(0, group, torch.where(observed, values, 0.0))
        count = values.new_zeros(shape).index_add(0, group, observed.to(values.dtype))
        merged = torch.where(count > 0, total / count.clamp(min=1), torch.nan)
    else:
        row = torch.where(observed, torch.arange(len(times), device=times.device)[:, None], -1)
        empty = torch.full(shape, -1, device=times.device)
        last = empty.scatter_reduce(0, group[:, None].expand_as(row), row, "amax")
        merged = torch.where(last >= 0, values.gather(0, last.clamp(min=0)), torch.nan)
    counts = torch.bincount(series[new], minlength=len(offsets) - 1)
    return Rows(times[new], merged, ragged.offsets_of(counts))


def check_rows(rows: Rows, ids: np.ndarray[Any, Any], channel_names: Sequence[str], time_name: str) -> None:
    """Times finite and strictly increasing within a series, values finite or NaN; an error names the series."""
    times, values, offsets = rows
    series = ragged.series_of_rows(offsets)

    def first(mask: Tensor) -> int | None:
        found = mask.nonzero()
        return int(found[0, 0]) if len(found) else None

    row = first(~times.isfinite())
    if row is not None:
        raise ValueError(
            f"series {ids[int(series[row])]!r} has {time_name}={float(times[row])}; times must be finite. Drop such rows."
        )
    row = first(values.isinf().any(1)) if values.numel() else None
    if row is not None:
        channel = channel_names[int(values[row].isinf().nonzero()[0, 0])]
        raise ValueError(
            f"series {ids[int(series[row])]!r} has {channel}={float(values[row].detach()[values[row].isinf()][0])} at "
            f"{time_name}={float(times[row]):g}; values must be finite in {str(values.dtype).removeprefix('torch.')}, or NaN "
            "where nothing was observed. Replace infinities by NaN."
        )
    step, same = times.diff(), series.diff() == 0
    row = first(same & (step <= 0))
    if row is None:
        return
    name = ids[int(series[row])]
    if float(step[row]) == 0:
        raise ValueError(
            f"series {name!r} has two rows at {time_name}={float(times[row]):g}; times must increase strictly. "
            'Aggregate them, or pass duplicates="mean" or duplicates="last".'
        )
    raise ValueError(
        f"series {name!r} goes back in time, from {time_name}={float(times[row]):g} to {float(times[row + 1]):g}; times must "
        "increase strictly. Sort each series: order = times.argsort(); times, values = times[order], values[order]."
    )


def as_tensor(data: Any, argument: str, dtype: torch.dtype) -> Tensor:
    """Data as a tensor of `dtype`; text, complex numbers and half floats are refused."""
    if not isinstance(data, Tensor):
        array = np.asarray(data)
        if array.dtype.kind not in "fiub" or array.dtype == np.float16:
            raise TypeError(f"{argument} must hold real numbers of at least 32 bits, got dtype {array.dtype}.")
        with np.errstate(over="ignore"):
            return torch.from_numpy(array.astype(np.float32 if dtype == torch.float32 else np.float64))
    if data.dtype.is_complex or data.dtype in (torch.float16, torch.bfloat16):
        raise TypeError(f"{argument} must hold real numbers of at least 32 bits, got dtype {data.dtype}.")
    return data.to(dtype)


def check_dtype(dtype: torch.dtype) -> torch.dtype:
    """Values are float32 or float64."""
    if dtype not in (torch.float32, torch.float64):
        raise TypeError(f"dtype must be torch.float32 or torch.float64, got {dtype}.")
    return dtype


def _short(data: Any) -> str:
    text = str(data).replace("\n", " ")
    return text if len(text) < 80 else text[:77] + "..."
