"""Tables and labels of the command line: CSV, Parquet, Arrow."""

from __future__ import annotations

from pathlib import Path

import polars


class WrongUseError(Exception):
    """What the user gave cannot be used; the message says what is wrong and how to mend it."""


def read_table(file: Path) -> polars.DataFrame:
    """A table from a file, by its ending."""
    if not file.exists():
        raise WrongUseError(f"{file} does not exist.")
    readers = {
        ".csv": lambda: polars.read_csv(file, infer_schema_length=10_000, null_values=["", "NA", "NaN", "nan", "null"]),
        ".parquet": lambda: polars.read_parquet(file),
        ".arrow": lambda: polars.read_ipc(file),
        ".feather": lambda: polars.read_ipc(file),
    }
    if file.suffix.lower() not in readers:
        raise WrongUseError(f"{file} is not one of {', '.join(readers)}.")
    try:
        frame = readers[file.suffix.lower()]()
    except polars.exceptions.NoDataError:
        raise WrongUseError(f"{file} is empty.") from None
    except Exception as reason:
        first = str(reason).strip().splitlines()[0]
        raise WrongUseError(f"{file} cannot be read: {first}") from reason
    if frame.height == 0:
        raise WrongUseError(f"{file} has no rows.")
    return frame


def write_table(frame: polars.DataFrame, file: Path) -> None:
    """A table into a file, by its ending; whole or not at all."""
    part = file.with_name(f".{file.name}.part")
    try:
        if file.suffix.lower() == ".parquet":
            frame.write_parquet(part)
        elif file.suffix.lower() in (".arrow", ".feather"):
            frame.write_ipc(part)
        else:
            frame.write_csv(part)
        part.replace(file)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def need_columns(frame: polars.DataFrame, file: Path, **names: str | None) -> None:
    """Columns that options name must be there."""
    for option, name in names.items():
        if name is not None and name not in frame.columns:
            raise WrongUseError(
                f"--{option} {name}: {file} has no such column; it has {', '.join(frame.columns[:30])}."
            )
