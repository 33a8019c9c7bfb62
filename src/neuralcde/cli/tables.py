"""Read and write tables as CSV, Parquet or Arrow files."""

from __future__ import annotations

import contextlib
import io
import re
import warnings
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import polars

from .csv_text import CsvText, csv_text, long_row
from .errors import WrongUseError
from .file_contents import STREAM, check_contents
from .written_numbers import MISSING, read_numbers, without_missing

MOST_CLASSES = 20  # a label with more distinct numbers is a regression target
ENDINGS = (".csv", ".parquet", ".arrow", ".feather")


class Table(NamedTuple):
    """A table, and for each numeric column that cannot be parsed the reason. Such columns are text in the table."""

    frame: polars.DataFrame
    unreadable: dict[str, str]


def read_table(file: Path, *, text: Sequence[str] = (), codes: Sequence[str] = ()) -> polars.DataFrame:
    """Read a table from a file; numeric columns that cannot be parsed are text."""
    return read_columns(file, text=text, codes=codes).frame


def read_columns(
    file: Path, *, text: Sequence[str] = (), codes: Sequence[str] = (), categories: Sequence[str] = ()
) -> Table:
    """Read a table from a file, in the format of its extension. `*` and `[1]` in the path are not expanded.

    Parameters
    ----------
    file
        CSV, Parquet or Arrow.
    text
        Columns to read as text, so that 007 is not read as 7.
    codes
        Columns to read as text from a CSV file if they have few values and some have a leading zero, as in 01.
    categories
        Columns, in addition to `codes`, that stay text if they are text in a Parquet or Arrow file, even if they look
        like numbers.
    """
    ending = _ending(file)
    if not file.exists():
        raise WrongUseError(f"{file} does not exist.")
    try:
        # polars would expand patterns, ~ and URLs in a path, and a memory-mapped file may change while it is read
        content = file.read_bytes()
    except OSError as reason:
        raise WrongUseError(f"{file} cannot be read: {reason.strerror}.") from reason
    check_contents(content, file)
    if ending == ".csv":
        table = _read_csv(csv_text(content, file, text), file, text, codes)
    else:
        table = _with_numbers(_read_typed(content, file, ending), text, declared={*codes, *categories})
    if table.frame.height == 0:
        raise WrongUseError(f"{file} has no rows.")
    decimals = [name for name, kind in table.frame.schema.items() if kind.is_decimal() and name not in text]
    return table._replace(frame=table.frame.with_columns(polars.col(decimals).cast(polars.Float64)))


def _with_numbers(
    frame: polars.DataFrame, text: Collection[str], *, declared: Collection[str] = (), decimal: str = "."
) -> Table:
    """Parse the columns of text that hold numbers.

    Columns in `text` are unchanged. Columns in `declared` stay text, with nulls for missing values.
    """
    unreadable = {}
    for column in frame.iter_columns():
        if column.dtype == polars.String and column.name not in text:
            numbers = None if column.name in declared else read_numbers(column, decimal)
            if isinstance(numbers, str):
                unreadable[column.name] = numbers
            else:
                frame = frame.with_columns(without_missing(column) if numbers is None else numbers)
    return Table(frame, unreadable)


def nulls_for_missing(frame: polars.DataFrame, names: Collection[str]) -> polars.DataFrame:
    """The table with nulls in place of empty cells and markers such as NA, in those of these columns that are text."""
    text = [column for column in frame.iter_columns() if column.name in names and column.dtype == polars.String]
    return frame.with_columns(map(without_missing, text))


def _read_typed(content: bytes, file: Path, ending: str) -> polars.DataFrame:
    source = io.BytesIO(content)
    try:
        if ending == ".parquet":
            return polars.read_parquet(source)
        return polars.read_ipc_stream(source) if content.startswith(STREAM) else polars.read_ipc(source)
    except (Exception, polars.exceptions.PanicException) as reason:
        raise _damaged(file, reason) from reason


def _damaged(file: Path, reason: BaseException) -> WrongUseError:
    lines = str(reason).strip().splitlines()
    return WrongUseError(f"{file} cannot be read: {lines[0] if lines else type(reason).__name__}")


def _read_csv(text: CsvText, file: Path, words: Sequence[str], codes: Sequence[str]) -> Table:
    """Parse CSV text; types are inferred from the first rows, or from all if that fails. Blank lines are skipped."""
    options: dict[str, Any] = {
        "separator": text.separator,
        "decimal_comma": text.decimal_comma,
        "null_values": list(MISSING),
        "try_parse_dates": True,
        "new_columns": text.names,
        "schema_overrides": {name: polars.String for name in words if name in text.names},
    }
    try:
        frame = polars.read_csv(text.content, infer_schema_length=10_000, **options)
    except (Exception, polars.exceptions.PanicException):
        frame = _columns_of(text, file, infer_schema_length=None, **options)
    frame, unreadable = _with_numbers(frame, words, decimal="," if text.decimal_comma else ".")
    frame = _with_codes(frame, text, file, codes, options)
    _warn_of_day_or_month(frame, text, file, options)
    frame = frame.filter(~polars.all_horizontal(polars.all().is_null()))
    if any(frame[name].count() for name in text.unnamed):
        warnings.warn(
            f"{file}: columns without a name are left out, {len(text.unnamed)} of {frame.width}; name them in the "
            "first line to use them.",
            stacklevel=2,
        )
    return Table(frame.drop(text.unnamed), unreadable)


def _columns_of(text: CsvText, file: Path, **options: Any) -> polars.DataFrame:
    try:
        return polars.read_csv(text.content, **options)
    except (Exception, polars.exceptions.PanicException) as reason:
        long = long_row(text)
        raise (WrongUseError(f"{file}: {long}.") if long else _damaged(file, reason)) from reason


def _with_codes(
    frame: polars.DataFrame, text: CsvText, file: Path, names: Sequence[str], options: dict[str, Any]
) -> polars.DataFrame:
    """Make columns of codes text: those with few distinct integers, some of which are written with a leading zero."""
    found = [frame[name] for name in names if name in frame.columns]
    whole = [column.name for column in found if column.dtype.is_integer() and column.n_unique() <= MOST_CLASSES]
    if not whole:
        return frame
    plain = {**options, "schema_overrides": dict.fromkeys(whole, polars.String)}
    written = _columns_of(text, file, columns=whole, **plain)
    return frame.with_columns(column for column in written.iter_columns() if column.str.contains(r"^\s*[+-]?0\d").any())


def _warn_of_day_or_month(frame: polars.DataFrame, text: CsvText, file: Path, options: dict[str, Any]) -> None:
    """Warn how dates were read if no day is above 12, so that day and month could be exchanged."""
    unclear = [c.name for c in frame.select(polars.selectors.temporal()).iter_columns() if _days_up_to_12(c)]
    if not unclear:
        return
    plain = {**options, "try_parse_dates": False, "schema_overrides": dict.fromkeys(unclear, polars.String)}
    for column in _columns_of(text, file, columns=unclear, n_rows=1000, **plain).iter_columns():
        example = next(iter(column.drop_nulls()), "")
        if re.match(r"\d{1,2}\D", example):
            warnings.warn(
                f"{file}: dates such as {example} in column {column.name!r} are read with the day first. If the month "
                "is first, write them as 2024-12-31.",
                stacklevel=2,
            )


def _days_up_to_12(column: polars.Series) -> bool:
    return column.dtype != polars.Time and bool((column.drop_nulls().dt.day() <= 12).all())


def write_table(frame: polars.DataFrame, file: Path) -> None:
    """Write a table to a file atomically, in the format of its extension."""
    ending = _ending(file)
    part = file.with_name(f".{file.name}.part")
    try:
        with part.open("wb") as out:  # polars would expand a ~ in the path
            if ending == ".csv":
                frame.write_csv(out)
            elif ending == ".parquet":
                frame.write_parquet(out)
            else:
                frame.write_ipc(out)
        part.replace(file)
    except BaseException as reason:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        if isinstance(reason, OSError) and reason.filename == str(part):
            reason.filename = str(file)  # the part is no file that the user knows
        raise


def _ending(file: Path) -> str:
    if file.suffix.lower() not in ENDINGS:
        raise WrongUseError(f"{file} is not one of {', '.join(ENDINGS)}.")
    return file.suffix.lower()


def need_columns(frame: polars.DataFrame, file: Path, **names: str | None) -> None:
    """Refuse options that name a column which the table does not have."""
    for option, name in names.items():
        if name is not None and name not in frame.columns:
            raise WrongUseError(
                f"--{option} {name}: {file} has no such column; it has {', '.join(frame.columns[:30])}."
            )
