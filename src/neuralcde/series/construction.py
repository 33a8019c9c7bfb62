"""From rows that were read to the fields of an `IrregularSeries`: names, checks, repeated times, parts to join."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, TypedDict

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from . import ragged
from .arrays import (
    Rows,
    as_ids,
    as_names,
    check_dtype,
    check_finite,
    check_increasing,
    check_static,
    merge_repeated,
    read_static,
)
from .channels import ChannelScales, Role
from .table_format import TableColumn, TableFormat
from .tables import Duplicates, check_agrees, read_long, with_optional_columns

ALIKE = ("channel_names", "static_names", "roles", "scales", "dtype")  # attributes that series of one container share


class Fields(TypedDict):
    """Arguments of `IrregularSeries`, checked."""

    times: Float[Tensor, " rows"]
    values: Float[Tensor, "rows channels"]
    offsets: Int[Tensor, " bounds"]
    static: Float[Tensor, "series features"]
    ids: NDArray[Any]
    channel_names: tuple[str, ...]
    static_names: tuple[str, ...]
    roles: tuple[Role, ...]
    format: TableFormat


def fields_of_arrays(
    rows: Rows,
    ids: NDArray[Any],
    static: Any,
    channels: Collection[str] | None,
    static_names: Collection[str] | None,
    duplicates: Duplicates,
) -> Fields:
    """Fields of series that were given as arrays: channels and static features get names."""
    if rows.values.shape[1] == 0:
        raise ValueError("values have no channels; expected at least one.")
    features = read_static(static, rows)
    labels = as_names(static_names, "static_names", features.shape[1], "s")
    return checked_fields(
        rows,
        ids=ids,
        static=features,
        channel_names=as_names(channels, "channels", rows.values.shape[1], "x"),
        static_names=labels,
        duplicates=duplicates,
        format=TableFormat(static=tuple(TableColumn(name) for name in labels)),
    )


def fields_of_table(
    frame: Any,
    *,
    id: str | None,
    time: str | None,
    static: Collection[str],
    channels: Collection[str] | None,
    unit: str | None,
    duplicates: Duplicates,
    dtype: torch.dtype | None,
    like: Any,
) -> Fields:
    """Fields of series that were given as a long table; `like` are series that were read before, or None."""
    known = None
    if like is not None:
        known = like.format
        measured = [
            column.name
            for column in known.channel_columns(
                name for name, role in zip(like.channel_names, like.roles, strict=True) if role == "data"
            )
        ]
        check_agrees(known, measured, id=id, time=time, static=static, channels=channels, unit=unit)
        id, time, unit = known.id, known.time, known.unit
        static, channels = [column.name for column in known.static], measured
        dtype = dtype or like.dtype
        frame = with_optional_columns(frame, known.numeric_static(like.static.isnan().any(0).tolist()))
    if id is None or time is None:
        raise TypeError("from_long needs the names of the id and time columns, e.g. id='stay', time='hour'.")
    dtype = check_dtype(dtype or torch.float32)
    table = read_long(frame, id=id, time=time, static=static, channels=channels, unit=unit, dtype=dtype, known=known)
    return checked_fields(
        Rows(
            torch.from_numpy(table.times),
            torch.from_numpy(table.values),
            ragged.offsets_of(torch.from_numpy(table.lengths)),
        ),
        ids=table.ids,
        static=torch.from_numpy(table.static).to(dtype),
        channel_names=table.channel_names,
        static_names=tuple(name for column in table.format.static for name in column.feature_names),
        duplicates=duplicates,
        format=table.format,
    )


def checked_fields(
    rows: Rows,
    *,
    ids: NDArray[Any],
    static: Float[Tensor, "series features"],
    channel_names: tuple[str, ...],
    static_names: tuple[str, ...],
    duplicates: Duplicates,
    format: TableFormat,
) -> Fields:
    """Fields of series: names that differ, finite values, times that increase strictly, repeated times merged if asked.

    Raises
    ------
    ValueError
        Naming the series, what was found and the fix.
    """
    if duplicates not in ("error", "mean", "last"):
        raise ValueError(f'duplicates must be "error", "mean" or "last", got {duplicates!r}.')
    for argument, names in (("channel", channel_names), ("static feature", static_names)):
        repeated = [name for name in names if names.count(name) > 1]
        if repeated:
            raise ValueError(f"two {argument}s are called {repeated[0]!r}; names must differ.")

    def when(time: float) -> str:
        return f"{format.time}={format.show(time)}"

    check_static(static, ids, static_names)
    check_finite(rows, ids, channel_names, when)
    if duplicates != "error":
        rows = merge_repeated(rows, duplicates)
    check_increasing(rows, ids, when)
    data: Role = "data"
    return Fields(
        times=rows.times,
        values=rows.values,
        offsets=rows.offsets,
        static=static,
        ids=ids,
        channel_names=channel_names,
        static_names=static_names,
        roles=(data,) * len(channel_names),
        format=format,
    )


def ids_of_series(ids: Iterable[Any] | None, count: int) -> NDArray[Any]:
    """The ids given for `count` series, by default 0, 1, ..."""
    if ids is None:
        return np.arange(count)
    names = as_ids(ids, argument="ids", fix="ids=[str(name) for name in ids]")
    if len(names) != count:
        raise ValueError(f"ids has {len(names)} names for {count} series; give one each.")
    return names


def joined_ids(ids: list[NDArray[Any]]) -> NDArray[Any]:
    """All ids in one array. Integers stay integers where numpy would make floats of them (int64 beside uint64)."""
    if {part.dtype.kind for part in ids} == {"i", "u"}:
        return as_ids([name for part in ids for name in part.tolist()], argument="ids", fix="text")
    return np.concatenate(ids)


def check_joinable(position: int, part: Any, head: Any) -> None:
    """Refuse an `IrregularSeries` that cannot be joined to `head`; an error names its position in `parts`."""
    for name in ALIKE:
        if getattr(part, name) != getattr(head, name):
            raise ValueError(
                f"parts[{position}] has {name} {getattr(part, name)}, but parts[0] has {getattr(head, name)}; make "
                "them agree."
            )
    if part.format.moments != head.format.moments:
        raise ValueError(
            f"parts[{position}] has times that are {part.format.moments}, but those of parts[0] are "
            f"{head.format.moments}; read them alike: IrregularSeries.from_long(frame, like=parts[0])."
        )
    if (part.ids.dtype == object) != (head.ids.dtype == object) and len(part) and len(head):
        raise TypeError(
            f"parts[{position}] has ids like {ragged.series_name(part.ids, 0)}, but parts[0] like "
            f"{ragged.series_name(head.ids, 0)}; make them all numbers or all text."
        )


def described(series: Any) -> str:
    """The repr of an `IrregularSeries`."""
    if len(series) == 0:
        return f"IrregularSeries(0 series, {series.channels} channels)"
    names = ", ".join(map(repr, series.channel_names[:4])) + (", ..." if series.channels > 4 else "")
    count = len(series.static_names)
    static = f", {count} static feature{'s' * (count > 1)}" if count else ""
    share, lengths, times = 100 * float(series.observed.float().mean()), series.lengths, series.times
    first, last = times.min().item(), times.max().item()
    if series.format.kind == "datetime" and series.scales == ChannelScales():  # scaled times are no dates
        begin, end = (series.format.show(time)[:16].replace("T", " ") for time in (first, last))
    else:
        begin, end = f"{first:.6g}", f"{last:.6g}"
    return (
        f"IrregularSeries({len(series):,} series, {len(times):,} rows, {series.channels} channels: {names}{static}"
        f"; lengths {int(lengths.min())} .. {int(lengths.max())}, times {begin} .. "
        f"{end}, {share:.0f} % observed, {str(series.dtype).removeprefix('torch.')})"
    )
