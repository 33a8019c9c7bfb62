"""Reader of the PhysioNet 2019 challenge as it is published: one .psv file per stay, one line per hour."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

STATIC = ("Age", "Gender", "Unit1", "Unit2", "HospAdmTime")
HOUR, LABEL = "ICULOS", "SepsisLabel"


class Stays(NamedTuple):
    """The stays in the order of their ids: those of rows [offsets[i], offsets[i + 1]) belong to stay i."""

    ids: NDArray[np.str_]
    names: tuple[str, ...]
    hours: NDArray[np.float64]  # per row
    values: NDArray[np.float32]  # (rows, channels), NaN where nothing was measured
    labels: NDArray[np.int8]  # per row: 1 from six hours before sepsis was found
    offsets: NDArray[np.int64]
    static: NDArray[np.float32]  # (stays, 5)


def psv_files(folder: Path) -> list[Path]:
    """The files of all stays below a folder, in the order of their names: `p000001.psv`, ..."""
    return sorted(folder.glob("**/p[0-9]*.psv"), key=lambda file: file.name)


def read_psv(files: Sequence[Path]) -> Stays:
    """The stays of these files.

    Raises
    ------
    ValueError
        If a file has other columns than the first one, or no rows; or if an hour does not follow the one before it.
    """
    names: tuple[str, ...] = ()
    numbers, lengths, static = [], [], []
    for file in files:
        table = pl.read_csv(file, separator="|", null_values=["NaN"], infer_schema_length=0)
        if missing := [name for name in (*STATIC, HOUR, LABEL) if name not in table.columns]:
            raise ValueError(f"{file} has no column {', '.join(missing)}; it is not a file of the 2019 challenge.")
        channels = tuple(name for name in table.columns if name not in (*STATIC, HOUR, LABEL))
        names = names or channels
        if channels != names:
            raise ValueError(f"{file} has the columns {', '.join(channels)}, but {files[0]} has {', '.join(names)}.")
        block = table.select(HOUR, LABEL, *names, *STATIC).cast(pl.Float64).fill_null(np.nan).to_numpy()
        if not len(block) or (np.diff(block[:, 0]) != 1).any():
            raise ValueError(f"{file}: the hours {HOUR} must be consecutive, and at least one.")
        static.append(block[0, -len(STATIC) :])
        numbers.append(block[:, : -len(STATIC)])
        lengths.append(len(block))
    rows = np.concatenate(numbers)
    return Stays(
        np.array([file.stem for file in files]),
        names,
        np.ascontiguousarray(rows[:, 0]),
        np.ascontiguousarray(rows[:, 2:], dtype=np.float32),
        rows[:, 1].astype(np.int8),
        np.concatenate([[0], np.cumsum(lengths)]),
        np.array(static, dtype=np.float32),
    )
