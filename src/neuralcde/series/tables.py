"""Long tables (one row an observation time) to ragged arrays, and back.

Frames of pandas, polars and pyarrow are read through narwhals. There is no loop over series: ids become codes, rows
are sorted once by (code, time), columns are copied one by one into the result.
"""

from __future__ import annotations

import datetime
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from importlib.util import find_spec
from typing import Any, Literal, NamedTuple

import narwhals as nw
import numpy as np
import torch
from numpy.typing import NDArray

from .arrays import ROWS_AT_ONCE, as_ids
from .ragged import series_name

Array = NDArray[Any]
Duplicates = Literal["error", "mean", "last"]
Kind = Literal["number", "datetime", "duration"]

NANOSECONDS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "min": 60 * 10**9, "h": 3600 * 10**9, "D": 86400 * 10**9}
_TEXT = (nw.String, nw.Categorical, nw.Enum)
_REAL = "real numbers of at least 32 bits"


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
    kind: Kind = "number"
    unit: str | None = None
    time_zone: str | None = None
    static: tuple[StaticColumn, ...] = field(default=())
    backend: str | None = None

    def show(self, time: float) -> str:
        """A time as the user would write it."""
        if self.kind == "number":
            return repr(time)
        if self.kind == "duration":
            return f"{time!r} {self.unit}"
        stamp = np.datetime64(round(time * self.microseconds), "us")
        return str(np.datetime_as_string(stamp, unit="auto")) + ("Z" if self.time_zone else "")

    @property
    def microseconds(self) -> float:
        """The length of `unit`."""
        return NANOSECONDS[self.unit or "s"] / 1000


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
    """Read a long table; `known` fixes the kind of its times and the categories of its static columns."""
    table = _as_frame(frame)
    _check_columns(table, id=id, time=time, static=static, channels=channels)
    if len(table) == 0:
        raise ValueError("frame has no rows; expected at least one observation.")
    codes, ids = _codes(table[id])
    times, kind, unit, zone = _times(_typed(table[time]), unit, known)
    wrong = np.flatnonzero(~np.isfinite(times))
    if len(wrong):
        raise ValueError(
            f"series {series_name(ids, int(codes[wrong[0]]))} has {time}={times[wrong[0]]} in row {wrong[0]} of the table (such "
            f"rows in all: {len(wrong)}); times must be finite. Drop those rows, or correct them."
        )
    wanted = set(table.columns) - {id, time} if channels is None else {*static, *channels}
    columns = {name: _typed(table[name]) for name in table.columns if name in wanted}
    names = _channel_columns(columns, static) if channels is None else tuple(map(str, channels))

    ordered = bool(np.all((codes[1:] > codes[:-1]) | ((codes[1:] == codes[:-1]) & (times[1:] >= times[:-1]))))
    order = None if ordered else np.lexsort((times, codes))

    def arranged(column: Array) -> Array:
        return column if order is None else column[order]

    values = np.empty((len(times), len(names)), dtype=np.float32 if dtype == torch.float32 else np.float64)
    block = ROWS_AT_ONCE if order is None else len(times)  # few rows of all columns stay in the cache
    with np.errstate(over="ignore"):  # infinities are reported with the series they are in
        for start in range(0, len(times), block):
            rows = slice(start, start + block)
            for position, name in enumerate(names):
                values[rows, position] = arranged(_numbers(columns[name][rows], role="channels"))
    lengths = np.bincount(codes, minlength=len(ids))
    starts = np.concatenate(([0], np.cumsum(lengths)[:-1]))
    remembered = {} if known is None else {column.name: column for column in known.static}
    found = [_static(columns[name], remembered.get(name), arranged, starts, ids) for name in static]
    return Table(
        # the frame's own memory may be what `times` is, and a series that changes with its frame would not be frozen
        times=np.array(times) if order is None else times[order],
        values=values,
        lengths=lengths,
        ids=ids,
        static=np.concatenate([np.empty((len(ids), 0)), *(features for _, features in found)], axis=1),
        channel_names=names,
        format=TableFormat(
            id, time, kind, unit, zone, tuple(column for column, _ in found), str(table.implementation.value)
        ),
    )


def write_long(ids: Array, times: Array, columns: list[tuple[str, Array]], *, format: TableFormat, backend: Any) -> Any:
    """A data frame of these columns, times in the user's own terms, in the library they came from."""
    names = [format.id, format.time, *(name for name, _ in columns)]
    repeated = [name for name in names if names.count(name) > 1]
    if repeated:
        raise ValueError(
            f"to_long would write two columns {repeated[0]!r}; its columns are {names}. Rename the channels or static features."
        )
    library: Any = backend or format.backend or _any_backend()
    frame = nw.from_dict(
        {
            name: nw.new_series(name, column.tolist(), nw.String, backend=library)
            if column.dtype == object
            else nw.new_series(name, column, backend=library)
            for name, column in ((format.id, ids), (format.time, _in_kind(times, format)), *columns)
        }
    )
    # Unobserved is null where the library knows null; pandas keeps NaN.
    numeric = [name for name, column in columns if column.dtype != object]
    frame = frame.with_columns(nw.col(*numeric).fill_nan(None))
    if format.time_zone is not None:
        stamp = nw.col(format.time).dt.replace_time_zone("UTC").dt.convert_time_zone(format.time_zone)
        frame = frame.with_columns(stamp)
    return frame.to_native()


def static_columns(static: Array, format: TableFormat) -> list[tuple[str, Array]]:
    """The columns that these features came from: numbers as they are, indicators as text again."""
    columns, start = [], 0
    for column in format.static:
        stop = start + len(column.feature_names)
        block, start = static[:, start:stop], stop
        if column.categories is None:
            columns.append((column.name, block[:, 0]))
        else:
            labels = np.array([*column.categories, None], dtype=object)
            columns.append((column.name, labels[np.where(block.any(1), block.argmax(1), len(column.categories))]))
    return columns


def _in_kind(times: Array, format: TableFormat) -> Array:
    """Times as numbers, datetimes or durations."""
    if format.kind == "number":
        return times
    whole = np.round(times * format.microseconds).astype(np.int64)
    return whole.astype("timedelta64[us]" if format.kind == "duration" else "datetime64[us]")


def _any_backend() -> str:
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
    unnamed = [name for name in table.columns if not isinstance(name, str)]
    if unnamed:
        raise TypeError(
            f"frame has columns that are called {unnamed}; names must be text: frame.columns = frame.columns.astype(str)."
        )
    chosen = () if channels is None else channels
    index = getattr(getattr(table.to_native(), "index", None), "names", ())  # of pandas
    for argument, names in (("id", [id]), ("time", [time]), ("static", static), ("channels", chosen)):
        if isinstance(names, str):
            raise TypeError(f"{argument} must be a list of column names, got the text {names!r}; write [{names!r}].")
        for name in names:
            if name not in table.columns:
                hint = " It is in the index: call frame.reset_index() first." if name in index else ""
                raise ValueError(
                    f"{argument}: the table has no column {name!r}; its columns are {table.columns}.{hint}"
                )
    roles = [id, time, *static, *chosen]
    repeated = [name for name in roles if roles.count(name) > 1]
    if repeated:
        raise ValueError(f"column {repeated[0]!r} is named twice among id, time, static and channels; name it once.")
    if channels is not None and not len(channels):
        raise ValueError("channels is empty; name at least one column, or leave channels=None for all numeric ones.")


def _codes(column: nw.Series[Any]) -> tuple[Array, Array]:
    """Series numbers in order of first appearance, and the ids they stand for: numbers or text."""
    missing = column.is_null()
    if column.dtype.is_float():
        missing = missing | column.is_nan()
    if missing.any():
        raise ValueError(
            f"column {column.name!r} (id) has missing values, {missing.sum()} of {len(column)}, the first in row "
            f"{missing.arg_true()[0]}; every row must say which series it is of. Drop those rows, or fill them in."
        )
    if isinstance(column.dtype, nw.Object):
        fix = f"frame[{column.name!r}] = frame[{column.name!r}].astype(str)"
        items = as_ids(column.to_list(), argument=f"column {column.name!r} (id)", fix=fix)
        column = nw.new_series(column.name, items.tolist(), backend=column.implementation)
    if not (column.dtype.is_integer() or column.dtype.is_float()):
        column = column.cast(nw.String)
    codes, ids = _in_order_of_appearance(column)
    return codes, ids.astype(object) if ids.dtype.kind in "OUT" else ids


def _in_order_of_appearance(column: nw.Series[Any]) -> tuple[Array, Array]:
    """Codes 0, 1, ... of the distinct items of a column without nulls, and the items."""
    changes = (column[1:] != column[:-1]).to_numpy()  # an item is looked up once for each run of it, not for each row
    starts = np.concatenate((np.arange(min(len(column), 1)), np.flatnonzero(changes) + 1))
    frame = column[starts].alias("item").to_frame()
    distinct = frame.unique("item", maintain_order=True).with_row_index("code")
    matched = frame.with_row_index("row").join(distinct, on="item", how="left")
    codes = np.empty(len(frame), dtype=np.int32)
    codes[matched["row"].to_numpy()] = matched["code"].to_numpy()
    return np.repeat(codes, np.diff(starts, append=len(column))), distinct["item"].to_numpy()


def _typed(column: nw.Series[Any]) -> nw.Series[Any]:
    """The column; one of Python numbers or dates (pandas, beside None) with the type it has in other libraries."""
    if not isinstance(column.dtype, nw.Object):
        return column
    there = ~column.is_null().to_numpy()
    items = column.drop_nulls().to_list()
    if items and all(
        isinstance(item, (bool, int, float, Decimal, np.bool_, np.integer, np.floating)) for item in items
    ):
        plain = np.full(len(column), np.nan)
    elif items and all(type(item) is datetime.date for item in items):
        plain = np.full(len(column), "NaT", dtype="datetime64[us]")
    else:
        return column
    plain[there] = items
    return nw.new_series(column.name, plain, backend=column.implementation)


def _times(
    column: nw.Series[Any], unit: str | None, known: TableFormat | None
) -> tuple[Array, Kind, str | None, str | None]:
    """Times as float64: numbers as they are, datetimes and durations in `unit` (since 1970, or in length)."""
    dtype = column.dtype
    kind: Kind = "number"
    if isinstance(dtype, (nw.Datetime, nw.Date)):
        kind = "datetime"
    elif isinstance(dtype, nw.Duration):
        kind = "duration"
    if known is not None and kind != known.kind:
        raise TypeError(
            f"column {column.name!r} (time) holds {_type_name(column)}, but like= held {known.kind}s; convert the column."
        )
    if kind == "number":
        if unit is not None:
            raise ValueError(
                f"unit={unit!r} was given, but column {column.name!r} (time) holds {_type_name(column)}; unit is for "
                "datetimes and durations. Convert the column, or leave unit out."
            )
        return _numbers(column, role="time"), kind, None, None
    unit = unit or "s"
    if unit not in NANOSECONDS:
        raise ValueError(f"unit={unit!r} is not known; choose one of {list(NANOSECONDS)}.")
    zone = getattr(dtype, "time_zone", None)
    return _microseconds(column) / (NANOSECONDS[unit] / 1000), kind, unit, zone


def _microseconds(column: nw.Series[Any]) -> Array:
    """Datetimes (since 1970, UTC) and durations in whole microseconds, NaN where there is none."""
    if isinstance(column.dtype, nw.Date):
        column = column.cast(nw.Datetime("us"))
    # as integers in their own unit: other ways are refused by one library, or go through floats in another
    ticks = column.drop_nulls().cast(nw.Int64).to_numpy()
    length = NANOSECONDS[getattr(column.dtype, "time_unit", "us")]
    found = np.full(len(column), np.nan)
    found[~column.is_null().to_numpy()] = ticks // 1000 if length == 1 else ticks * (length // 1000)
    return found


def _is_number(column: nw.Series[Any]) -> bool:
    return (column.dtype.is_numeric() and str(column.dtype) != "Float16") or isinstance(column.dtype, nw.Boolean)


def _type_name(column: nw.Series[Any]) -> str:
    """The type of a column, in its library's words where narwhals has none."""
    if not isinstance(column.dtype, nw.Unknown):
        return str(column.dtype)
    native = column.to_native()
    return str(getattr(native, "dtype", None) or getattr(native, "type", "an unknown type"))


def _numbers(column: nw.Series[Any], *, role: str) -> Array:
    """A numeric or boolean column as float64, NaN where it is null."""
    if _is_number(column):
        return _as_float64(column)
    if column.null_count() == len(column):
        return np.full(len(column), np.nan)  # a column in which nothing was ever observed may have any type
    wanted = {"time": "numbers, datetimes or durations", "static": f"{_REAL} or text"}.get(role, _REAL)
    hint = ", or name it in static=" if role == "channels" and isinstance(column.dtype, _TEXT) else ""
    example = next(iter(column.drop_nulls().to_list()), None)
    raise TypeError(
        f"column {column.name!r} ({role}) holds {_type_name(column)}, e.g. {example!r}; expected {wanted}. Convert it{hint}."
    )


def _as_float64(column: nw.Series[Any]) -> Array:
    # Integers beyond 2**53 lose digits here; as measurements and as times they have none to lose.
    return np.asarray(column.cast(nw.Float64).to_numpy(), dtype=np.float64)


def _channel_columns(columns: dict[str, nw.Series[Any]], static: Sequence[str]) -> tuple[str, ...]:
    rest = {name: column for name, column in columns.items() if name not in static}
    numeric = tuple(name for name, column in rest.items() if _is_number(column))
    others = ", ".join(f"{name!r} ({_type_name(column)})" for name, column in rest.items() if name not in numeric)
    if not numeric:
        raise ValueError(
            "frame has no column of numbers for the channels besides id, time and static"
            + (f", only {others}. Convert one to {_REAL}." if others else "; add one.")
        )
    if others:
        warnings.warn(
            f"columns left out, because they do not hold {_REAL}: {others}. Convert them, name text in static=, or choose "
            "with channels=.",
            UserWarning,
            stacklevel=4,
        )
    return numeric


def _static(
    column: nw.Series[Any], known: StaticColumn | None, arranged: Any, starts: Array, ids: Array
) -> tuple[StaticColumn, Array]:
    """One static column: the number, or the indicators, of each series; NaN, or no indicator, where it is missing."""
    missing = column.is_null().to_numpy()
    text = isinstance(column.dtype, _TEXT)
    if missing.all():
        if text and known is None:
            raise ValueError(f"static column {column.name!r} holds nothing; leave it out of static=.")
        text = known is not None and known.categories is not None
    elif known is not None and text != (known.categories is not None):
        before = "numbers" if known.categories is None else f"text, one of {list(known.categories)}"
        raise TypeError(
            f"static column {column.name!r} holds {_type_name(column)}, but like= held {before}; convert the column."
        )
    if not text:
        number = arranged(_numbers(column, role="static"))
        return StaticColumn(column.name), _per_series(column.name, number, None, starts, ids)[:, None]
    codes, items = _in_order_of_appearance(column.drop_nulls().cast(nw.String))
    seen = sorted(map(str, items))
    rank = {item: position for position, item in enumerate(seen)}
    ranks = np.full(len(column), np.nan)
    ranks[~missing] = np.array([rank[str(item)] for item in items])[codes]
    of_series = _per_series(column.name, arranged(ranks), seen, starts, ids)
    categories = tuple(seen) if known is None or known.categories is None else known.categories
    feature = {item: position for position, item in enumerate(categories)}
    features = np.array([*(feature.get(item, -1) for item in seen), -1])  # -1, also where it is missing: no indicator
    chosen = features[np.where(np.isnan(of_series), len(seen), of_series).astype(int)]
    return StaticColumn(column.name, categories), (chosen[:, None] == np.arange(len(categories))).astype(float)


def _per_series(name: str, column: Array, labels: list[str] | None, starts: Array, ids: Array) -> Array:
    """The one value of each series, NaN where all are missing."""
    low, high = np.fmin.reduceat(column, starts), np.fmax.reduceat(column, starts)
    varies = np.flatnonzero(low < high)
    if len(varies):
        found = [float(low[varies[0]]), float(high[varies[0]])]
        first, second = found if labels is None else [labels[int(position)] for position in found]
        raise ValueError(
            f"static column {name!r} varies within series {series_name(ids, int(varies[0]))}: {first!r} and {second!r} (such "
            f"series in all: {len(varies)}). Make it one value a series, or move it to channels=."
        )
    return np.asarray(low)
