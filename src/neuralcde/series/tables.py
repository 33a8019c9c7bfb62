"""Long tables (one row per series and time) to ragged arrays, and back.

Frames of pandas, polars and pyarrow are read through narwhals. There is no loop over series: ids become codes, rows
are sorted once by (code, time), and columns are copied one by one into the result.
"""

from __future__ import annotations

from collections.abc import Collection
from importlib.util import find_spec
from itertools import accumulate
from typing import Any, Literal, NamedTuple
from zoneinfo import available_timezones

import narwhals as nw
import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ..contracts import Argument, warn_user
from .arrays import ROWS_AT_ONCE, Rows
from .columns import (
    MOST_CATEGORIES,
    Array,
    as_numbers,
    as_times,
    categories_of,
    channel_column,
    channel_indicators,
    is_number,
    is_text,
    series_codes,
    static_features,
    type_name,
    typed,
)
from .ragged import series_name, series_of_rows
from .table_format import TableColumn, TableFormat

Duplicates = Literal["error", "mean", "last"]


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
    static: Collection[str],
    channels: Collection[str] | None,
    unit: str | None,
    dtype: torch.dtype,
    known: TableFormat | None,
) -> Table:
    """Read a long table. `known` fixes the kind of times and the categories of text columns."""
    table = _as_frame(frame)
    if known is not None and channels is not None:
        _check_columns(table, id=id, time=time, static=static, channels=None)  # names the columns as they came
        table = _with_missing_channels(table, channels)
    _check_columns(table, id=id, time=time, static=static, channels=channels)
    if len(table) == 0:
        raise ValueError("frame has no rows; expected at least one observation.")
    codes, ids = series_codes(table[id])
    times, kind, unit, zone = as_times(typed(table[time]), unit, known)
    wrong = np.flatnonzero(~np.isfinite(times))
    if len(wrong):
        raise ValueError(
            f"series {series_name(ids, int(codes[wrong[0]]))} has {time}={times[wrong[0]]} in row {wrong[0]} of the "
            f"table ({len(wrong)} such rows); times must be finite. Drop those rows, or correct them."
        )
    wanted = set(table.columns) - {id, time} if channels is None else {*static, *channels}
    columns = {name: typed(table[name]) for name in table.columns if name in wanted}
    names = _channel_columns(columns, static) if channels is None else tuple(map(str, channels))
    fitted = {} if known is None else {column.name: column for column in known.text_channels}
    measured = [
        channel_column(columns[name], None if known is None else fitted.get(name, TableColumn(name))) for name in names
    ]
    channel_names = tuple(name for column in measured for name in column.feature_names)
    first = list(accumulate((len(column.feature_names) for column in measured), initial=0))  # channel of each column
    numeric = {k: columns[c.name] for k, c in zip(first, measured, strict=False) if c.categories is None}

    # Tables that are sorted already, by series and then by time, are not sorted again.
    ordered = bool(np.all((codes[1:] > codes[:-1]) | ((codes[1:] == codes[:-1]) & (times[1:] >= times[:-1]))))
    order = None if ordered else np.lexsort((times, codes))

    def arranged(column: Array) -> Array:
        return column if order is None else column[order]

    values = np.empty((len(times), len(channel_names)), dtype=np.float32 if dtype == torch.float32 else np.float64)
    block = ROWS_AT_ONCE if order is None else len(times)  # a block of rows stays in the cache
    with np.errstate(over="ignore"):  # infinities are reported with the series they are in
        for start in range(0, len(times), block):
            rows = slice(start, start + block)
            for position, column in numeric.items():
                values[rows, position] = arranged(as_numbers(column[rows], role="channels"))
    for position, text in zip(first, measured, strict=False):
        if text.categories is not None:
            indicators = arranged(channel_indicators(columns[text.name], text.categories))
            values[:, position : position + indicators.shape[1]] = indicators
    if values.dtype == np.float32:
        _warn_of_merged(values, numeric)
    lengths = np.bincount(codes, minlength=len(ids))
    starts = np.concatenate(([0], np.cumsum(lengths)[:-1]))
    remembered = {} if known is None else {column.name: column for column in known.static}
    found = [static_features(columns[name], remembered.get(name), arranged, starts, ids) for name in static]
    return Table(
        # A copy: `times` may be the memory of the frame, and a frozen series must not change with it.
        times=np.array(times) if order is None else times[order],
        values=values,
        lengths=lengths,
        ids=ids,
        static=np.concatenate([np.empty((len(ids), 0)), *(features for _, features in found)], axis=1),
        channel_names=channel_names,
        format=TableFormat(
            id,
            time,
            kind,
            unit,
            zone,
            static=tuple(column for column, _ in found),
            backend=str(table.implementation.value),
            in_order=ordered,
            text_channels=tuple(column for column in measured if column.categories is not None),
        ),
    )


def _with_missing_channels(table: nw.DataFrame[Any], channels: Collection[str]) -> nw.DataFrame[Any]:
    """The table with empty columns for the channels that it lacks, and a warning; unchanged if it lacks all."""
    missing = [name for name in channels if name not in table.columns]
    if len(missing) == len(channels) or len(table) == 0:
        return table
    return _with_empty_columns(table, missing)


def with_optional_columns(frame: Any, names: Collection[str]) -> Any:
    """A table with empty columns for those of these that it lacks, and a warning."""
    table = _as_frame(frame)
    missing = [name for name in names if name not in table.columns]
    return _with_empty_columns(table, missing).to_native() if missing and len(table) else frame


def _with_empty_columns(table: nw.DataFrame[Any], missing: Collection[str]) -> nw.DataFrame[Any]:
    if not missing:
        return table
    one = len(missing) == 1
    warn_user(
        f"the table has no column{'' if one else 's'} {', '.join(map(repr, missing))}: "
        f"{'its' if one else 'their'} values are not observed."
    )
    return table.with_columns(nw.lit(None, dtype=nw.Float64).alias(name) for name in missing)


def check_agrees(
    known: TableFormat,
    known_channels: Collection[str],
    *,
    id: str | None,
    time: str | None,
    static: Collection[str],
    channels: Collection[str] | None,
    unit: str | None,
) -> None:
    """Refuse columns and units that differ from those of an earlier table; what was not given agrees."""
    for name, given, wanted in (
        ("id", id, known.id),
        ("time", time, known.time),
        ("static", None if len(static) == 0 else static, [column.name for column in known.static]),
        ("channels", channels, known_channels),
        ("unit", unit, known.unit),
    ):
        if isinstance(wanted, list) and given is not None and not isinstance(given, str):
            given = list(map(str, given))  # tuples and arrays of names are legitimate as well
        if given is not None and given != wanted:
            raise ValueError(f"{name}={given!r} differs from like=, which has {name}={wanted!r}; leave {name} out.")


def _warn_of_merged(values: Array, columns: dict[int, nw.Series[Any]]) -> None:
    """Warn of channels that become constant in float32, where 1e12 and 1e12 + 9 are the same number."""
    merged = []
    for position, column in columns.items():
        if not _is_constant(values[:ROWS_AT_ONCE, position]):  # most channels vary within one block
            continue
        if _is_constant(values[:, position]) and not _is_constant(as_numbers(column, role="channels"), ulps=4):
            merged.append(column.name)
    if merged:
        warn_user(
            [
                f"the channels {merged} vary by less than float32 can resolve at their size, and become constant; read "
                "them with ",
                Argument("dtype", torch.float64, option="--dtype float64"),
                ", or subtract a constant first.",
            ]
        )


def _is_constant(column: Array, ulps: int = 0) -> bool:
    """Whether all observed values of a column are equal, up to so many units in the last place."""
    low, high = np.fmin.reduce(column, initial=np.nan), np.fmax.reduce(column, initial=np.nan)
    if np.isinf(low) or np.isinf(high):  # reported with the series it is in
        return False
    with np.errstate(over="ignore"):
        return not high - low > ulps * np.spacing(np.fmax(abs(low), abs(high)))


def write_series(
    rows: Rows,
    static: Float[Tensor, "series features"],
    ids: Array,
    *,
    channels: dict[str, int],
    format: TableFormat,
    backend: Any,
) -> Any:
    """Ragged rows as a long table; `channels` maps the names to write to their columns in the values."""
    distinct, counts = np.unique(ids, return_counts=True)
    if len(distinct) != len(ids):
        twice = series_name(distinct, int(counts.argmax()))
        raise ValueError(
            f"to_long needs distinct ids, but {twice} occurs {counts.max()} times, and a long table could not tell "
            "these series apart. Give them new ids: dataclasses.replace(series, ids=np.arange(len(series)))."
        )
    of_row = series_of_rows(rows.offsets).cpu().numpy()
    times, values, features = (part.detach().cpu().numpy() for part in (rows.times, rows.values, static))
    columns = measured_columns(values, channels, format)
    columns += [(name, column[of_row]) for name, column in static_columns(features, format)]
    return write_long(ids[of_row], times, columns, format=format, backend=backend)


def write_long(ids: Array, times: Array, columns: list[tuple[str, Array]], *, format: TableFormat, backend: Any) -> Any:
    """A data frame of these columns in the given library; times are in the user's own terms."""
    names = [format.id, format.time, *(name for name, _ in columns)]
    repeated = [name for name in names if names.count(name) > 1]
    if repeated:
        raise ValueError(
            f"to_long would write two columns {repeated[0]!r}; its columns are {names}. Rename the channels or static "
            "features."
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
    # Not observed is null where the library has nulls; pandas keeps NaN.
    numeric = [name for name, column in columns if column.dtype != object]
    if numeric:
        frame = frame.with_columns(nw.col(*numeric).fill_nan(None))
    if format.time_zone is not None:
        known = str(library) != "polars" or format.time_zone in available_timezones()  # pandas also has UTC+01:00
        zone = format.time_zone if known else "UTC"
        stamp = nw.col(format.time).dt.replace_time_zone("UTC").dt.convert_time_zone(zone)
        frame = frame.with_columns(stamp)
    return frame.to_native()


def _channel_text(indicators: Array, categories: tuple[str, ...]) -> Array:
    """The category of each row: None where none was observed, "other" where all indicators of the row are 0."""
    other = "other"
    while other in categories:  # so that it is read as an unknown category again
        other += " category"
    labels = np.array([*categories, other, None], dtype=object)
    chosen = np.where((indicators > 0).any(1), indicators.argmax(1), len(categories))
    return np.asarray(labels[np.where(np.isnan(indicators).all(1), len(categories) + 1, chosen)])


def measured_columns(values: Array, channels: dict[str, int], format: TableFormat) -> list[tuple[str, Array]]:
    """The measured columns that the channels came from; `channels` maps names to columns of the values."""
    columns = []
    for column in format.channel_columns(channels):
        block = values[:, [channels[name] for name in column.feature_names]]
        written = block[:, 0] if column.categories is None else _channel_text(block, column.categories)
        columns.append((column.name, written))
    return columns


def static_columns(static: Array, format: TableFormat) -> list[tuple[str, Array]]:
    """The columns that the features came from: numbers as they are, indicators as text again."""
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
            f"frame must be a pandas, polars or pyarrow table, got {type(frame).__module__}.{type(frame).__name__}."
            f"{hint} "
            "For arrays use IrregularSeries.from_list or IrregularSeries.from_padded."
        ) from None


def _check_columns(
    table: nw.DataFrame[Any], *, id: str, time: str, static: Collection[str], channels: Collection[str] | None
) -> None:
    unnamed = [name for name in table.columns if not isinstance(name, str)]
    if unnamed:
        raise TypeError(
            f"frame has columns named {unnamed}; names must be text: frame.columns = frame.columns.astype(str)."
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
        raise ValueError("channels is empty; name at least one column, or leave channels=None for all others.")


def _channel_columns(columns: dict[str, nw.Series[Any]], static: Collection[str]) -> tuple[str, ...]:
    """Names of the columns of numbers, and of text with few categories; a warning names the others."""
    chosen, left_out = [], []
    for name, column in columns.items():
        if name in static:
            continue
        categories = len(categories_of(column)) if is_text(column) else 0
        if is_number(column) or 0 < categories <= MOST_CATEGORIES:
            chosen.append(name)
        else:
            count = f", {categories} different values" if categories else ""
            left_out.append(f"{name!r} ({type_name(column)}{count})")
    others = ", ".join(left_out)
    expected = f"numbers, or text with at most {MOST_CATEGORIES} different values"
    if not chosen:
        raise ValueError(
            f"frame has no column for the channels ({expected}) besides id, time and static"
            + (f", only {others}. Convert one of them to numbers." if others else "; add one.")
        )
    if others:
        warn_user(
            [
                f"columns left out, because they are not {expected}: {others}. Convert them, name text in ",
                Argument("static"),
                " if it has one value per series, or choose with ",
                Argument("channels"),
                ".",
            ]
        )
    return tuple(chosen)
