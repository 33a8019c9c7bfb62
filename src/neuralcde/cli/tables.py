"""Tables and labels of the command line: CSV, Parquet, Arrow."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars

from .errors import WrongUseError

MOST_CLASSES = 20  # a label with more different numbers is a quantity
ENDINGS = (".csv", ".parquet", ".arrow", ".feather")


def read_table(file: Path, *, text: Sequence[str] = (), codes: Sequence[str] = ()) -> polars.DataFrame:
    """A table from a file, by its ending.

    Of a CSV `text` are columns that are not numbers, so that 007 stays what it is; `codes` are such where a value starts with 0.
    """
    if not file.exists():
        raise WrongUseError(f"{file} does not exist.")
    ending = _ending(file)
    try:
        if ending == ".csv":
            frame = _read_csv(file, text, codes)
        else:
            frame = polars.read_parquet(file) if ending == ".parquet" else polars.read_ipc(file)
    except polars.exceptions.NoDataError:
        raise WrongUseError(f"{file} is empty.") from None
    except Exception as reason:
        first = str(reason).strip().splitlines()[0]
        raise WrongUseError(f"{file} cannot be read: {first}") from reason
    if frame.height == 0:
        raise WrongUseError(f"{file} has no rows.")
    decimals = [name for name, kind in frame.schema.items() if kind.is_decimal() and name not in text]
    return frame.with_columns(polars.col(decimals).cast(polars.Float64))


def _read_csv(file: Path, text: Sequence[str], codes: Sequence[str]) -> polars.DataFrame:
    """Types by the first rows; where later ones do not fit, by all of them. Columns of empty cells and numbers are numbers.

    Cells are apart by what is most frequent in the first line, quoted names aside: commas, tabs, or semicolons, as where 1,5 is a number.
    """
    with file.open(encoding="utf-8", errors="replace") as lines:
        separator = max(",;\t", key=re.sub('"[^"]*"', "", lines.readline()).count)
    options: dict[str, Any] = {
        "separator": separator,
        "decimal_comma": separator == ";",
        "null_values": ["", "NA", "N/A", "n/a", "<NA>", "#N/A", "NaN", "nan", "null", "NULL"],
        "try_parse_dates": True,
        "schema_overrides": dict.fromkeys(text, polars.String),
    }
    try:
        frame = polars.read_csv(file, infer_schema_length=10_000, **options)
    except polars.exceptions.ComputeError:
        frame = polars.read_csv(file, infer_schema_length=None, **options)
    for column in frame.iter_columns():
        if column.name not in text and column.dtype == polars.String:
            numbers = column.cast(polars.Float64, strict=False)
            if numbers.null_count() == column.null_count() and numbers.null_count() < len(column):
                frame = frame.with_columns(numbers)
    _warn_of_day_or_month(frame, file, options)
    return _with_codes(frame, file, codes, options)


def _with_codes(frame: polars.DataFrame, file: Path, names: Sequence[str], options: dict[str, Any]) -> polars.DataFrame:
    """The table with those of the columns as text that hold a few whole numbers, some of them written 01."""
    found = [frame[name] for name in names if name in frame.columns]
    whole = [column.name for column in found if column.dtype.is_integer() and column.n_unique() <= MOST_CLASSES]
    if not whole:
        return frame
    plain = {**options, "schema_overrides": dict.fromkeys(whole, polars.String)}
    written = polars.read_csv(file, columns=whole, **plain)
    return frame.with_columns(column for column in written.iter_columns() if column.str.contains(r"^\s*[+-]?0\d").any())


def _warn_of_day_or_month(frame: polars.DataFrame, file: Path, options: dict[str, Any]) -> None:
    """Say how dates were read that make sense with the day or with the month first, where no day beyond the 12th tells."""
    unclear = [c.name for c in frame.select(polars.selectors.temporal()).iter_columns() if _days_up_to_12(c)]
    if not unclear:
        return
    plain = {**options, "try_parse_dates": False, "schema_overrides": dict.fromkeys(unclear, polars.String)}
    for column in polars.read_csv(file, columns=unclear, n_rows=1000, **plain).iter_columns():
        example = next(iter(column.drop_nulls()), "")
        if re.match(r"\d{1,2}\D", example):
            warnings.warn(
                f"{file}: dates such as {example} in column {column.name!r} are read with the day first. If the month is first, write "
                "them as 2024-12-31.",
                stacklevel=2,
            )


def _days_up_to_12(column: polars.Series) -> bool:
    return column.dtype != polars.Time and bool((column.drop_nulls().dt.day() <= 12).all())


def write_table(frame: polars.DataFrame, file: Path) -> None:
    """A table into a file, by its ending; whole or not at all."""
    ending = _ending(file)
    part = file.with_name(f".{file.name}.part")
    try:
        if ending == ".csv":
            frame.write_csv(part)
        elif ending == ".parquet":
            frame.write_parquet(part)
        else:
            frame.write_ipc(part)
        part.replace(file)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _ending(file: Path) -> str:
    if file.suffix.lower() not in ENDINGS:
        raise WrongUseError(f"{file} is not one of {', '.join(ENDINGS)}.")
    return file.suffix.lower()


def need_columns(frame: polars.DataFrame, file: Path, **names: str | None) -> None:
    """Columns that options name must be there."""
    for option, name in names.items():
        if name is not None and name not in frame.columns:
            raise WrongUseError(
                f"--{option} {name}: {file} has no such column; it has {', '.join(frame.columns[:30])}."
            )
