"""Columns of data frames as arrays: ids, times, numbers, indicators of text; and errors for unreadable columns."""

from __future__ import annotations

import datetime
import re
import reprlib
from decimal import Decimal
from typing import Any
from zoneinfo import available_timezones

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from ..contracts import Argument, ArgumentError, ArgumentTypeError
from .arrays import as_ids
from .ragged import series_name
from .table_format import NANOSECONDS, Kind, TableColumn, TableFormat

Array = NDArray[Any]

NUMERIC = "a numeric column"
MOST_CATEGORIES = 20  # a text channel with more is taken for free text
_TEXT = (nw.String, nw.Categorical, nw.Enum)


def series_codes(column: nw.Series[Any]) -> tuple[Array, Array]:
    """Number the series by first appearance: a code per row, and the id of each code (numbers or text)."""
    missing = column.is_null()
    if column.dtype.is_float():
        missing = missing | column.is_nan()
    if missing.any():
        raise ValueError(
            f"column {column.name!r} (id) has missing values, {missing.sum()} of {len(column)}, the first in row "
            f"{missing.arg_true()[0]}; every row must name its series. Drop those rows, or fill them in."
        )
    if isinstance(column.dtype, nw.Object):
        fix = f"frame[{column.name!r}] = frame[{column.name!r}].astype(str)"
        items = as_ids(column.to_list(), argument=f"column {column.name!r} (id)", fix=fix)
        column = nw.new_series(column.name, items.tolist(), backend=column.implementation)
    wide = isinstance(column.dtype, (nw.Int128, nw.UInt128))  # numpy has no 128-bit integers
    if wide or not (column.dtype.is_integer() or column.dtype.is_float()):
        column = column.cast(nw.String)
    return _in_order_of_appearance(column)


def _in_order_of_appearance(column: nw.Series[Any]) -> tuple[Array, Array]:
    """Codes 0, 1, ... of the distinct items of a column without nulls, and the items."""
    # Look an item up once per run of equal rows, not once per row: tables are mostly sorted by series.
    changes = (column[1:] != column[:-1]).to_numpy()
    starts = np.concatenate((np.arange(min(len(column), 1)), np.flatnonzero(changes) + 1))
    frame = column[starts].alias("item").to_frame()
    distinct = frame.unique("item", maintain_order=True).with_row_index("code")
    matched = frame.with_row_index("row").join(distinct, on="item", how="left")
    codes = np.empty(len(frame), dtype=np.int32)
    codes[matched["row"].to_numpy()] = matched["code"].to_numpy()
    items = distinct["item"]
    # numpy's fixed-width text drops trailing NULs, so that two items could become one.
    names = np.array(items.to_list(), dtype=object) if items.dtype == nw.String else items.to_numpy()
    return np.repeat(codes, np.diff(starts, append=len(column))), names


def typed(column: nw.Series[Any]) -> nw.Series[Any]:
    """The column; a pandas object column of numbers or dates beside None gets the dtype it has in other libraries."""
    if not isinstance(column.dtype, nw.Object):
        return column
    there = ~column.is_null().to_numpy()
    items = column.drop_nulls().to_list()
    if items and all(
        isinstance(item, (bool, int, float, Decimal, np.bool_, np.integer, np.floating)) for item in items
    ):
        plain = np.full(len(column), np.nan)
    elif items and all(_is_plain_date(item) for item in items):
        plain = np.full(len(column), "NaT", dtype="datetime64[us]")
    else:
        return column
    plain[there] = items
    return nw.new_series(column.name, plain, backend=column.implementation)


def _is_plain_date(item: Any) -> bool:
    """Whether it is a date, or a datetime without time zone and nanoseconds (pandas' may have both)."""
    zone, beyond = getattr(item, "tzinfo", None), getattr(item, "nanosecond", 0)
    return isinstance(item, datetime.date) and zone is None and not beyond


def as_times(
    column: nw.Series[Any], unit: str | None, known: TableFormat | None
) -> tuple[Array, Kind, str | None, str | None]:
    """Times as float64: numbers as they are, datetimes as `unit`s since 1970, durations as `unit`s."""
    column, zone = _zoned(column)
    dtype = column.dtype
    kind: Kind = "number"
    if isinstance(dtype, (nw.Datetime, nw.Date)):
        kind = "datetime"
    elif isinstance(dtype, nw.Duration):
        kind = "duration"
    if known is not None and kind != known.kind:
        raise TypeError(
            f"column {column.name!r} (time) holds {type_name(column)}, but like= held {known.kind}s; convert the "
            "column."
        )
    if kind == "number":
        if unit is not None:
            raise ValueError(
                f"unit={unit!r} was given, but column {column.name!r} (time) holds {type_name(column)}; unit is for "
                "datetimes and durations. Convert the column, or leave unit out."
            )
        return as_numbers(column, role="time"), kind, None, None
    unit = unit or "s"
    if unit not in NANOSECONDS:
        raise ValueError(f"unit={unit!r} is not known; choose one of {list(NANOSECONDS)}.")
    if known is not None and (zone is None) != (known.time_zone is None):
        raise TypeError(
            f"column {column.name!r} (time) has {'no time zone' if zone is None else f'the time zone {zone}'}, but "
            f"like= had {known.time_zone or 'none'}; give both a zone, or neither."
        )
    return _microseconds(column) / (NANOSECONDS[unit] / 1000), kind, unit, zone


def _zoned(column: nw.Series[Any]) -> tuple[nw.Series[Any], str | None]:
    """The column and its time zone; a pandas column whose zone narwhals does not know is converted to UTC."""
    if not isinstance(column.dtype, nw.Unknown):
        return column, getattr(column.dtype, "time_zone", None)
    native = column.to_native()
    zone = getattr(getattr(native, "dtype", None), "tz", None)
    if zone is None:
        return column, None
    name = str(zone) if str(zone) in available_timezones() or re.fullmatch(r"UTC[+-]\d\d:\d\d", str(zone)) else "UTC"
    return nw.from_native(native.dt.tz_convert("UTC"), series_only=True), name


def _microseconds(column: nw.Series[Any]) -> Array:
    """Datetimes (since 1970, UTC) and durations in whole microseconds, NaN where they are missing."""
    if isinstance(column.dtype, nw.Date):
        column = column.cast(nw.Datetime("us"))
    # As integers in their own unit: other conversions fail in one library, or go through floats in another.
    ticks = column.drop_nulls().cast(nw.Int64).to_numpy()
    length = NANOSECONDS[getattr(column.dtype, "time_unit", "us")]
    found = np.full(len(column), np.nan)
    found[~column.is_null().to_numpy()] = ticks // 1000 if length == 1 else ticks * (length // 1000)
    return found


def is_number(column: nw.Series[Any]) -> bool:
    """Whether `as_numbers` can read the column."""
    return (column.dtype.is_numeric() and str(column.dtype) != "Float16") or isinstance(column.dtype, nw.Boolean)


def type_name(column: nw.Series[Any]) -> str:
    """The dtype of a column, as its library calls it where narwhals has no name."""
    if not isinstance(column.dtype, nw.Unknown):
        return str(column.dtype)
    native = column.to_native()
    return str(getattr(native, "dtype", None) or getattr(native, "type", "an unknown type"))


def as_numbers(column: nw.Series[Any], *, role: str) -> Array:
    """A numeric or boolean column as float64, NaN where it is null."""
    if is_number(column):
        return _as_float64(column)
    if column.null_count() == len(column):
        return np.full(len(column), np.nan)  # never observed: any dtype will do
    wanted = "numbers, datetimes (2024-12-31 12:00) or durations" if role == "time" else f"{NUMERIC} or text"
    example = next(iter(column.drop_nulls().to_list()), None)
    raise ArgumentTypeError(
        f"column {column.name!r} ({role}) holds {type_name(column)}, e.g. {example!r}; expected {wanted}. Convert it.",
        argument=role,
    )


def _as_float64(column: nw.Series[Any]) -> Array:
    # Integers beyond 2**53 lose digits here; measurements and times have none to lose.
    return np.asarray(column.cast(nw.Float64).to_numpy(), dtype=np.float64)


def is_text(column: nw.Series[Any]) -> bool:
    """Whether the column holds text: strings or categories."""
    return isinstance(column.dtype, _TEXT)


def categories_of(column: nw.Series[Any]) -> tuple[str, ...]:
    """The distinct values of a column of text, sorted."""
    return tuple(sorted(map(str, column.drop_nulls().cast(nw.String).unique().to_list())))


def channel_column(column: nw.Series[Any], known: TableColumn | None) -> TableColumn:
    """How a measured column is read: as numbers, or as indicators of these categories. `known` is from `like=`."""
    text, empty = is_text(column), column.null_count() == len(column)
    if known is not None:
        if not empty and text != (known.categories is not None):
            raise TypeError(_other_kind("column", column, known))
        return known
    categories = categories_of(column) if text and not empty else None
    if categories is not None and len(categories) > MOST_CATEGORIES:
        raise ArgumentError(
            f"column {column.name!r} (channels) is text with {len(categories)} different values, e.g. "
            f"{reprlib.repr(categories[0])}; at most {MOST_CATEGORIES} become indicators. Leave it out of ",
            Argument("channels"),
            ", or merge rare values.",
            argument="channels",
        )
    return TableColumn(column.name, categories)


def channel_indicators(column: nw.Series[Any], categories: tuple[str, ...]) -> Array:
    """One row of indicators per row of a column of text, NaN where it is missing; all 0 for an unknown category."""
    if column.null_count() == len(column):
        return np.full((len(column), len(categories)), np.nan, dtype=np.float32)
    ranks, seen = _ranks(column)
    found = _indicators(ranks, seen, categories).astype(np.float32)
    found[np.isnan(ranks)] = np.nan
    return found


def _other_kind(role: str, column: nw.Series[Any], known: TableColumn) -> str:
    before = "numbers" if known.categories is None else f"text, one of {list(known.categories)}"
    return f"{role} {column.name!r} holds {type_name(column)}, but like= held {before}; convert the column."


def static_features(
    column: nw.Series[Any], known: TableColumn | None, arranged: Any, starts: Array, ids: Array
) -> tuple[TableColumn, Array]:
    """One static column as features: the number of each series (NaN if missing), or one indicator per category."""
    text = is_text(column)
    if column.null_count() == len(column):
        if text and known is None:
            raise ArgumentError(f"static column {column.name!r} is empty; leave it out of ", Argument("static"), ".")
        text = known is not None and known.categories is not None
    elif known is not None and text != (known.categories is not None):
        raise TypeError(_other_kind("static column", column, known))
    if not text:
        number = arranged(as_numbers(column, role="static"))
        return TableColumn(column.name), _per_series(column.name, number, None, starts, ids)[:, None]
    # Text becomes ranks in sorted order, so that the same numeric check finds series with two different values.
    ranks, seen = _ranks(column)
    of_series = _per_series(column.name, arranged(ranks), seen, starts, ids)
    categories = tuple(seen) if known is None or known.categories is None else known.categories
    return TableColumn(column.name, categories), _indicators(of_series, seen, categories).astype(float)


def _ranks(column: nw.Series[Any]) -> tuple[Array, list[str]]:
    """For each row of a column of text its position among the sorted distinct values (NaN if missing); these values."""
    codes, items = _in_order_of_appearance(column.drop_nulls().cast(nw.String))
    seen = sorted(map(str, items))
    rank = {item: position for position, item in enumerate(seen)}
    ranks = np.full(len(column), np.nan)
    ranks[~column.is_null().to_numpy()] = np.array([rank[str(item)] for item in items], dtype=float)[codes]
    return ranks, seen


def _indicators(ranks: Array, seen: list[str], categories: tuple[str, ...]) -> Array:
    """Whether each of these values is each category; a missing or unknown value is none of them."""
    feature = {item: position for position, item in enumerate(categories)}
    features = np.array([*(feature.get(item, -1) for item in seen), -1])  # -1: no indicator
    chosen = features[np.where(np.isnan(ranks), len(seen), ranks).astype(int)]
    return np.asarray(chosen[:, None] == np.arange(len(categories)))


def _per_series(name: str, column: Array, labels: list[str] | None, starts: Array, ids: Array) -> Array:
    """The one value of each series, NaN if all are missing; refused where it varies within a series."""
    low, high = np.fmin.reduceat(column, starts), np.fmax.reduceat(column, starts)
    varies = np.flatnonzero(low < high)
    if len(varies):
        found = [float(low[varies[0]]), float(high[varies[0]])]
        first, second = found if labels is None else [labels[int(position)] for position in found]
        raise ValueError(
            f"static column {name!r} varies within series {series_name(ids, int(varies[0]))}: {first!r} and {second!r} "
            f"({len(varies)} such series). Make it one value per series, or move it to channels=."
        )
    return np.asarray(low)
