"""The `.ts` files of the UEA & UCR time series classification archive."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

UNSUPPORTED = {"timestamps": "with timestamps", "targetlabel": "for regression"}


def read_ts(file: Path) -> tuple[list[NDArray[np.float32]], list[str]]:
    """Read series of shape (rows, channels), with NaN for missing values, and the class of each.

    Lines that start with @ describe the data: classes, number of dimensions, length of the series. After @data, every
    line is one series: dimensions separated by colons, their values by commas, and the class at the end.

    Raises
    ------
    ValueError
        If the file is malformed; the message names the file and the line.
    """
    header: dict[str, str] = {}
    series: list[NDArray[np.float32]] = []
    labels: list[str] = []
    started = False
    with file.open(encoding="utf-8", errors="replace") as lines:
        for number, raw in enumerate(lines, start=1):
            line = raw.strip()
            if not line or line.startswith("#"):
                continue
            try:
                if started:
                    values, label = _read_series(line, header)
                    series.append(values)
                    labels.append(label)
                elif not line.startswith("@"):
                    raise ValueError("expected a line that starts with @ before @data.")
                else:
                    name, _, value = line[1:].partition(" ")
                    started = name.lower() == "data"
                    header[name.lower()] = value.strip()
                    _check_header(header, started=started)
            except ValueError as reason:
                raise ValueError(f"{file}, line {number}: {reason}") from None
    if not started or not series:
        raise ValueError(f"{file} has {'no series after' if started else 'no line'} @data; it is cut short.")
    return series, labels


def _check_header(header: dict[str, str], *, started: bool) -> None:
    for name, what in UNSUPPORTED.items():
        if header.get(name, "false").lower().startswith("true"):
            raise ValueError(f"@{name} true: files {what} are not read here.")
    for name in ("dimensions", "serieslength"):
        if name in header and not header[name].isdigit():
            raise ValueError(f"@{name} must be a number, got {header[name]!r}.")
    if started and header.get("classlabel", "").split()[:1] != ["true"]:
        raise ValueError("there is no '@classLabel true ...' before @data; the series have no classes.")


def _read_series(line: str, header: dict[str, str]) -> tuple[NDArray[np.float32], str]:
    *dimensions, label = line.split(":")
    label = label.strip()
    classes = header["classlabel"].split()[1:]
    if not dimensions:
        raise ValueError("no ':' and so no class at the end; the line is cut short.")
    if classes and label not in classes:
        raise ValueError(f"the class {label!r} is not among those of @classLabel: {' '.join(classes)}.")
    wanted = int(header.get("dimensions", len(dimensions)))
    if header.get("univariate", "").lower() == "true":
        wanted = 1
    if len(dimensions) != wanted:
        raise ValueError(f"{len(dimensions)} dimensions, expected {wanted}.")
    columns = [_numbers(text) for text in dimensions]
    lengths = {len(column) for column in columns}
    if len(lengths) > 1:
        raise ValueError(f"the dimensions have different lengths: {', '.join(str(len(c)) for c in columns)}.")
    if header.get("equallength", "").lower() == "true" and lengths != {int(header.get("serieslength", *lengths))}:
        raise ValueError(f"{len(columns[0])} values, but @seriesLength is {header['serieslength']}.")
    return np.stack(columns, axis=1), label


def _numbers(text: str) -> NDArray[np.float32]:
    return np.array(["nan" if value.strip() == "?" else value for value in text.split(",")], dtype=np.float32)
