"""Series as they were known at a time: the rows up to it, then a row at which nothing was observed."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ..contracts import ArgumentError
from . import ragged
from .channels import ChannelScales
from .irregular_series import IrregularSeries

NAMED = 3  # number of ids in a message


def truncated(series: IrregularSeries, t: Any) -> IrregularSeries:
    """`series.until(t)`."""
    if set(series.roles) - {"data"}:
        raise ArgumentError(
            f"t: the series has added channels, roles are {series.roles}; call until before with_channels.",
            argument="t",
        )
    given = numbers_of(series, _in_order(series, t))
    if given.ndim > 1 or (given.ndim == 1 and len(given) != len(series)):
        raise ArgumentError(
            f"t has shape {tuple(given.shape)}; expected one time for all series, or one for each of the "
            f"{len(series)} series.",
            argument="t",
        )
    asked = given.reshape(-1).expand(len(series))
    check_times(asked, argument="t")
    row, begun = rows_at(series, asked[:, None])
    late = (~begun[:, 0]).nonzero()[:, 0].tolist()
    if late:
        names = ", ".join(ragged.series_name(series.ids, i) for i in late[:NAMED]) + ", ..." * (len(late) > NAMED)
        time = repr(float(asked[0])) if given.ndim == 0 else "t"
        advice = f"begun = series.times[series.offsets[:-1]] <= {time}; series[begun].until(t{'[begun]' * given.ndim})"
        raise ArgumentError(
            f"t lies before the first row of {len(late)} of {len(series)} series: {names}; leave them out: {advice}"
            f"{' with a tensor t' * given.ndim}.",
            argument="t",
        )
    return cut_after(series, torch.arange(len(series)), row[:, 0], asked)


def _in_order(series: IrregularSeries, t: Any) -> Any:
    """Times in the order of the series if they are given by id: as a mapping, or as a pandas Series with that index."""
    if not (isinstance(t, Mapping) or hasattr(t, "loc")):
        return t
    ids, known = series.ids.tolist(), set(t.index.tolist() if hasattr(t, "loc") else t)
    missing = [name for name in ids if name not in known]
    if not missing:
        return t.loc[ids] if hasattr(t, "loc") else [t[name] for name in ids]
    if hasattr(t, "loc") and known == set(range(len(t))):  # an index that only counts
        return t
    raise ArgumentError(f"t has no time for {len(missing)} of {len(series)} series, e.g. {missing[0]!r}.", argument="t")


def numbers_of(series: IrregularSeries, t: Any) -> Float[Tensor, "*shape"]:
    """Times as the user writes them, as the float64 numbers that the series hold."""
    given = t.detach().cpu().numpy() if isinstance(t, Tensor) else np.asarray(t)
    if given.dtype.kind in "mMO" and series.scales != ChannelScales():
        raise ArgumentError(
            f"t is a {given.dtype}, but the times of the series are scaled; give numbers in the unit of series.times.",
            argument="t",
        )
    return torch.tensor(series.format.numbers(given)).to(series.device)  # a copy: pandas gives arrays to read only


def check_times(asked: Float[Tensor, "*shape"], *, argument: str) -> None:
    """Refuse times that are NaN or infinite."""
    if not bool(asked.isfinite().all()):
        raise ArgumentError(f"{argument} holds NaN or infinity; expected finite times.", argument=argument)


def rows_at(
    series: IrregularSeries, asked: Float[Tensor, "series k"]
) -> tuple[Int[Tensor, "series k"], Bool[Tensor, "series k"]]:
    """The last row of each series at or before each time, and whether there is one."""
    times = series.times.detach()
    row = ragged.last_row_at_or_before(times, series.offsets, asked, strict=False)
    return row, times[row] <= asked


def cut_after(
    series: IrregularSeries,
    chosen: Int[Tensor, " cases"],
    row: Int[Tensor, " cases"],
    t: Float[Tensor, " cases"],
) -> IrregularSeries:
    """Truncated series: the rows up to `row`, then an empty one at `t` unless the row itself is at `t`.

    Parameters
    ----------
    series
        The source.
    chosen
        Positions of the series to truncate. A series may be chosen several times.
    row
        The last row at or before `t` of each chosen series, as `rows_at` gives it.
    t
        The times.
    """
    chosen, first = chosen.to(series.device), series.offsets[:-1]
    kept = row - first[chosen] + 1
    offsets = ragged.offsets_of(kept + (series.times.detach()[row] < t).long())
    case, place = ragged.series_of_rows(offsets), ragged.places_in_series(offsets)
    added = place == kept[case]
    source = first[chosen][case] + place - added.long()
    return dataclasses.replace(
        series,
        times=torch.where(added, t[case], series.times[source]),
        values=series.values[source].masked_fill(added[:, None], torch.nan),
        offsets=offsets,
        static=series.static[chosen],
        ids=series.ids[chosen.cpu().numpy()],
    )
