"""Long tables (one row an observation time) to ragged arrays, and back.

Frames of pandas, polars and pyarrow are read through narwhals. There is no loop over series: ids become codes, rows
are sorted once by (code, time), columns are copied one by one into the result.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import narwhals as nw
import numpy as np
import torch

Array = np.ndarray[Any, Any]
Duplicates = Literal["error", "mean", "last"]

NANOSECONDS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "min": 60 * 10**9, "h": 3600 * 10**9, "D": 86400 * 10**9}


@dataclass(frozen=True)
class StaticColumn:
    """A static column of the table: a number, or text with the categories it was seen with."""

    name: str
    categories: tuple[str, ...] | None = None

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The features it becomes: itself, or one indicator a category."""
        if self.categories is None:
            return (self.name,)
        return tuple(f"{self.name}={category}" for category in self.categories)


@dataclass(frozen=True)
class TableFormat:
    """What the user's table looked like, so that another can be read alike and results be given back in its terms."""

    id: str = "id"
    time: str = "time"
    kind: Literal["number", "datetime", "duration"] = "number"
    unit: str | None = None
    time_zone: str | None = None
    static: tuple[StaticColumn, ...] = field(default=())
    backend: str | None = None


class Table(NamedTuple):
    """A long table as ragged arrays, sorted by series and time, not yet checked for repeated times."""

    times: Array
    values: Array
    lengths: Array
    ids: Array
    static: Array
    channel_names: tuple[str, ...]
    format: TableFormat


def read_long(
    frame: Any,
    *,
    id: str,
    time: str,
    static: Sequence[str],
    channels: Sequence[str] | None,
    unit: str | None,
    dtype: torch.dtype,
    known: TableFormat | None,
) -> Table:
    """Read a long table; `known` fixes the categories of its static columns."""
    table = _as_frame(frame)
    _check_columns(table, id=id, time=time, static=static, channels=channels)
    if len(table) == 0:
        raise ValueError("the table has no rows; expected at least one observation.")
    codes, ids = _codes(table[id])
    times, kind, unit, zone = _times(table[time], unit)
    wrong = np.flatnonzero(~np.isfinite(times))
    if len(wrong):
        raise ValueError(
            f"series {ids[codes[wrong[0]]]!r} has {time}={times[wrong[0]]} in row {wrong[0]} of the table ({len(wrong)} such "
            f"rows in all); times must be finite. Drop those rows: frame = frame[frame[{time!r}].notna()]."
        )
    names = _channel_columns(table, {id, time, *static}) if channels is None else tuple(channels)

    step = np.diff(codes)
    ordered = bool(np.all((step > 0) | ((step == 0) & (np.diff(times) >= 0))))
    order = None if ordered else np.lexsort((times, codes))

    def arranged(column: Array) -> Array:
        return column if order is None else column[order]

    values = np.empty((len(times), len(names)), dtype=np.float32 if dtype == torch.float32 else np.float64)
    with np.errstate(over="ignore"):  # infinities are reported with the series they are in
        for position, name in enumerate(names):
            values[:, position] = arranged(_numbers(table[name], role="channel"))
    lengths = np.bincount(codes, minlength=len(ids))
    starts = np.concatenate(([0], np.cumsum(lengths)[:-1]))
    remembered = {} if known is None else {column.name: column for column in known.static}
    columns, features = [], []
    for name in static:
        column, feature = _static(table[name], remembered.get(name), arranged, starts, ids)
        columns.append(column)
        features.append(feature)
    return Table(
        times=arranged(times),
        values=values,
        lengths=lengths,
        ids=ids,
        static=np.concatenate(features, axis=1) if features else np.empty((len(ids), 0)),
        channel_names=names,
        format=TableFormat(id, time, kind, unit, zone, tuple(columns), str(table.implementation.value)),
    )


def write_long(columns: dict[str, Any], *, times: Array, format: TableFormat, backend: str | None) -> Any:
    """A data frame of these columns, times in the user's own terms, in the library they came from."""
    data = {format.id: columns.pop(format.id), format.time: times, **columns}
    library: Any = backend or format.backend or _any_backend()
    frame = nw.from_dict(data, backend=library)
    if format.kind != "number":
        stamps = np.round(times * (NANOSECONDS[format.unit or "s"] / 1000)).astype(np.int64)
        as_time: Any = nw.Duration("us") if format.kind == "duration" else nw.Datetime("us")
        whole = nw.new_series(
            format.time,
            stamps.astype("timedelta64[us]" if format.kind == "duration" else "datetime64[us]"),
            backend=frame.implementation,
        ).cast(as_time)
        if format.time_zone is not None:
            whole = whole.dt.replace_time_zone("UTC").dt.convert_time_zone(format.time_zone)
        frame = frame.with_columns(whole.alias(format.time))
    return frame.to_native()


def _any_backend() -> str:
    from importlib.util import find_spec

    for name in ("pandas", "polars", "pyarrow"):
        if find_spec(name) is not None:
            return name
    raise ImportError("to_long needs pandas, polars or pyarrow; install one of them, e.g. `pip install pandas`.")


def _as_frame(frame: Any) -> nw.DataFrame[Any]:
    try:
        return nw.from_native(frame, eager_only=True)
    except TypeError:
        hint = " Call .collect() first." if type(frame).__name__ == "LazyFrame" else ""
        raise TypeError(
            f"frame must be a pandas, polars or pyarrow table, got {type(frame).__module__}.{type(frame).__name__}.{hint} "
            "For arrays use IrregularSeries.from_list or IrregularSeries.from_padded."
        ) from None


def _check_columns(
    table: nw.DataFrame[Any], *, id: str, time: str, static: Sequence[str], channels: Sequence[str] | None
) -> None:
    for argument, names in (("id", [id]), ("time", [time]), ("static", static), ("channels", channels or [])):
        if isinstance(names, str):
            raise TypeError(f"{argument} must be a list of column names, got the text {names!r}; write [{names!r}].")
        for name in names:
            if name not in table.columns:
                raise ValueError(f"{argument}: the table has no column {name!r}; its columns are {table.columns}.")
    roles = [id, time, *static, *(channels or [])]
    repeated = {name for name in roles if roles.count(name) > 1}
    if repeated:
        raise ValueError(f"column {sorted(repeated)[0]!r} is named twice among id, time, static and channels.")
    if channels is not None and not len(channels):
        raise ValueError("channels is empty; name at least one column, or leave channels=None for all numeric ones.")


def _codes(column: nw.Series[Any]) -> tuple[Array, Array]:
    """Series numbers in order of first appearance, and the ids they stand for."""
    if column.null_count() or (column.dtype.is_float() and bool(column.is_nan().any())):
        raise ValueError(f"column {column.name!r} (id) has missing values; every row must say which series it is of.")
    if isinstance(column.dtype, nw.Object):
        kinds = {type(item).__name__ for item in column.to_list()}
        if kinds != {"str"}:
            raise TypeError(
                f"column {column.name!r} (id) mixes types {sorted(kinds)}; make them one, "
                f"e.g. frame[{column.name!r}] = frame[{column.name!r}].astype(str)."
            )
    plain = column if column.dtype.is_numeric() or column.dtype.is_temporal() else column.cast(nw.String)
    codes, ids = _in_order_of_appearance(plain)
    return codes, ids.astype(object) if ids.dtype.kind in "OUT" else ids


def _in_order_of_appearance(column: nw.Series[Any]) -> tuple[Array, Array]:
    """Codes 0, 1, ... of the distinct items of a column without nulls, and the items."""
    frame = column.alias("item").to_frame()
    distinct = frame.unique("item", maintain_order=True).with_row_index("code")
    matched = frame.with_row_index("row").join(distinct, on="item", how="left")
    codes = np.empty(len(frame), dtype=np.int64)
    codes[matched["row"].to_numpy()] = matched["code"].to_numpy()
    return codes, distinct["item"].to_numpy()


def _times(
    column: nw.Series[Any], unit: str | None
) -> tuple[Array, Literal["number", "datetime", "duration"], str | None, str | None]:
    """Times as float64: numbers as they are, datetimes and durations in `unit` (since 1970, or in length)."""
    dtype = column.dtype
    if unit is not None and unit not in NANOSECONDS:
        raise ValueError(f"unit={unit!r} is not one of {list(NANOSECONDS)}.")
    if isinstance(dtype, (nw.Datetime, nw.Duration, nw.Date)):
        unit = unit or "s"
        zone = getattr(dtype, "time_zone", None)
        if isinstance(dtype, nw.Duration):
            stamps = column.cast(nw.Duration("us")).dt.total_microseconds()
        else:
            naive = column.dt.convert_time_zone("UTC").dt.replace_time_zone(None) if zone else column
            stamps = naive.cast(nw.Datetime("us")).dt.timestamp("us")
        times = _with_nan(stamps) / (NANOSECONDS[unit] / 1000)
        return times, "duration" if isinstance(dtype, nw.Duration) else "datetime", unit, zone
    if unit is not None:
        raise ValueError(
            f"unit={unit!r} was given, but column {column.name!r} (time) holds {dtype}; unit is for datetimes and durations."
        )
    return _numbers(column, role="time"), "number", None, None


def _numbers(column: nw.Series[Any], *, role: str) -> Array:
    """A numeric or boolean column as float64, NaN where it is null."""
    dtype = column.dtype
    if isinstance(dtype, nw.Object) or not (dtype.is_numeric() or isinstance(dtype, nw.Boolean)):
        example = next((item for item in column.head(1000).to_list() if item is not None), None)
        raise TypeError(
            f"column {column.name!r} ({role}) holds {dtype}, e.g. {example!r}; expected numbers. Convert it, or "
            f"{'name it in static=' if role == 'channel' else 'choose another column'}."
        )
    return _with_nan(column)


def _with_nan(column: nw.Series[Any]) -> Array:
    # Integers beyond 2**53 lose digits here; as measurements and as times they have none to lose.
    return np.asarray(column.cast(nw.Float64).to_numpy(), dtype=np.float64)


def _channel_columns(table: nw.DataFrame[Any], taken: set[str]) -> tuple[str, ...]:
    rest = [name for name in table.columns if name not in taken]
    numeric = tuple(n for n in rest if table.schema[n].is_numeric() or isinstance(table.schema[n], nw.Boolean))
    others = [name for name in rest if name not in numeric]
    if not numeric:
        raise ValueError(
            f"the table has no numeric column besides id, time and static; the others are {others}. Convert one to numbers."
        )
    if others:
        warnings.warn(
            f"columns {others} are not numeric and were left out; name them in static=, convert them, or pass channels=.",
            UserWarning,
            stacklevel=4,
        )
    return numeric


def _static(
    column: nw.Series[Any], known: StaticColumn | None, arranged: Any, starts: Array, ids: Array
) -> tuple[StaticColumn, Array]:
    """One static column: the number, or the indicators, of each series; NaN, or no indicator, where it is missing."""
    dtype = column.dtype
    if dtype.is_numeric() or isinstance(dtype, nw.Boolean):
        if known is not None and known.categories is not None:
            raise TypeError(
                f"static column {column.name!r} holds {dtype}, but held text with {known.categories} before."
            )
        return StaticColumn(column.name), _per_series(column.name, arranged(_with_nan(column)), None, starts, ids)[
            :, None
        ]
    if known is not None and known.categories is None:
        raise TypeError(f"static column {column.name!r} holds {dtype}, but held numbers before.")
    missing = "\0"
    codes, items = _in_order_of_appearance(column.cast(nw.String).fill_null(missing))
    seen = sorted(str(item) for item in items if item != missing)
    number = np.array([np.nan if item == missing else seen.index(str(item)) for item in items])
    code = _per_series(column.name, arranged(number[codes]), seen, starts, ids)
    categories = tuple(seen) if known is None or known.categories is None else known.categories
    label = np.array([*seen, None], dtype=object)[np.where(np.isnan(code), len(seen), code).astype(int)]
    return StaticColumn(column.name, categories), (label[:, None] == np.array(categories, dtype=object)).astype(float)


def _per_series(name: str, column: Array, labels: list[str] | None, starts: Array, ids: Array) -> Array:
    low, high = np.fmin.reduceat(column, starts), np.fmax.reduceat(column, starts)
    varies = np.flatnonzero(low < high)
    if len(varies):
        first = varies[0]
        found = (low[first], high[first]) if labels is None else (labels[int(low[first])], labels[int(high[first])])
        raise ValueError(
            f"static column {name!r} varies within series {ids[first]!r}: {found[0]!r} and {found[1]!r} ({len(varies)} series in "
            "all). Make it one value a series, or move it to channels=."
        )
    return np.asarray(low)
