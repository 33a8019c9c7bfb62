"""Check and normalise the text of a CSV file before polars parses it.

This covers the encoding, line ends, separator, column names, quotes and decimal mark.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import io
import re
import shlex
from collections import Counter
from collections.abc import Collection, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .errors import WrongUseError
from .written_numbers import decimal_marks

BLOCK = 2**24  # bytes; quotes are checked in blocks, so that the array of their positions stays small
QUOTE = ord('"')
SAMPLE = 1000  # number of rows from which the decimal mark is inferred


class CsvText(NamedTuple):
    """The text of a CSV file in UTF-8, checked, and how to parse it."""

    content: bytes
    separator: str
    names: list[str]
    unnamed: list[str]  # placeholder names of columns whose header cell is empty
    decimal_comma: bool


def csv_text(content: bytes, file: Path, text: Collection[str] = ()) -> CsvText:
    """Return the checked text of a CSV file.

    The checks are needed because polars silently drops or merges rows with unpaired quotes, and silently renames
    duplicate columns.

    Parameters
    ----------
    content
        Bytes of the file.
    file
        Path of the file, for error messages.
    text
        Columns that hold text. They are ignored when the decimal mark is inferred.

    Raises
    ------
    WrongUseError
        If the file is not valid CSV in UTF-8 or UTF-16, or if column names are missing or repeated.
    """
    content = _in_utf8(content, file)
    if b"\n" not in content:
        content = content.replace(b"\r", b"\n")
    if content[:1] in (b"\n", b"\r"):
        content = content.lstrip(b"\r\n")
    separator = _separator(content)
    _check_quotes(content, separator, file)
    rows = _rows(content, separator)
    sample: list[str] = []
    try:
        # the text holds no NUL, so a placeholder with NUL cannot clash with a real name
        names = [name.strip() or f"\0{place}" for place, name in enumerate(next(rows, []))]
        for row in islice(rows, SAMPLE):
            sample.extend(cell for name, cell in zip(names, row, strict=False) if name not in text)
    except csv.Error as reason:  # a cell of more than 128 KB
        if not sample:
            raise WrongUseError(f"{file} cannot be read as CSV: {reason}.") from reason
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise WrongUseError(f"{file} has two columns that are called {repeated[0]!r}; rename one of them.")
    unnamed = [name for name in names if name.startswith("\0")]
    if len(unnamed) == len(names):
        raise WrongUseError(f"{file}: the first line names no columns; it must have the name of each.")
    return CsvText(content, separator, names, unnamed, _has_decimal_comma(sample, separator))


def long_row(text: CsvText) -> str | None:
    """Describe the first row that has more cells than the header, or return None."""
    rows = _rows(text.content, text.separator)
    width = len(next(rows))
    with contextlib.suppress(csv.Error):  # a cell of more than 128 KB
        for number, row in enumerate(rows, start=1):
            if len(row) > width:
                return f"row {number} has {len(row)} cells, but the header names {width} columns"
    return None


def _in_utf8(content: bytes, file: Path) -> bytes:
    """Convert to UTF-8 without a byte order mark.

    UTF-16, which Excel writes as "Unicode text", is recognised by its byte order mark.
    """
    fix = f"Save it as UTF-8, e.g. iconv -f {{}} -t UTF-8 < {shlex.quote(str(file))} > utf8.csv"
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        try:
            content = content.decode("utf-16").encode()
        except UnicodeError as reason:
            raise WrongUseError(f"{file} starts as UTF-16 and is damaged: {reason}.") from reason
    content = content.removeprefix(codecs.BOM_UTF8)
    if b"\0" in content:
        raise WrongUseError(
            f"{file} holds a NUL byte in line {_line(content, content.index(0))}: it is not text, or not in UTF-8. "
            f"{fix.format('UTF-16LE')}"
        )
    if not content.isascii():
        try:
            content.decode()
        except UnicodeDecodeError as reason:
            line, byte = _line(content, reason.start), content[reason.start]
            raise WrongUseError(
                f"{file} is not in UTF-8: byte 0x{byte:02x} in line {line}. {fix.format('WINDOWS-1252')}"
            ) from None
    return content


def _separator(content: bytes) -> str:
    """The most frequent candidate character in the header, outside quoted names."""
    first = io.BytesIO(content).readline().decode(errors="replace")
    return max(",;\t|", key=re.sub('"[^"]*"', "", first).count)


def _check_quotes(content: bytes, separator: str, file: Path) -> None:
    """Refuse a quote inside an unquoted cell, and a quote that is never closed.

    Quotes alternate between opening and closing. An opening quote must follow a separator or a line end, and a closing
    quote must precede one. A quote inside a quoted cell is doubled: the first of the two counts as closing, the second
    as opening, so a quote may also stand next to another quote.
    """
    if b'"' not in content:
        return
    text = np.frombuffer(content, dtype=np.uint8)
    neighbours = np.zeros(256, dtype=bool)
    neighbours[[*separator.encode(), *b'\r\n"']] = True
    before = 0  # number of quotes in earlier blocks
    last = 0
    for start in range(0, len(text), BLOCK):
        places = start + np.flatnonzero(text[start : start + BLOCK] == QUOTE)
        opens, closes = (places[before % 2 :: 2], places[1 - before % 2 :: 2])
        wrong = np.concatenate(
            (
                opens[(opens > 0) & ~neighbours[text[np.maximum(opens - 1, 0)]]],
                closes[(closes < len(text) - 1) & ~neighbours[text[np.minimum(closes + 1, len(text) - 1)]]],
            )
        )
        if len(wrong):
            _refuse_quote(content, int(wrong.min()), separator, file)
        before += len(places)
        last = int(opens[-1]) if len(opens) else last
    if before % 2:
        raise WrongUseError(
            f"{file}: the quote that opens in line {_line(content, last)} is never closed; close it, or remove it."
        )


def _refuse_quote(content: bytes, place: int, separator: str, file: Path) -> None:
    ends = re.compile(rb"[\r\n" + re.escape(separator.encode()) + b"]")
    start = max(
        (match.end() for match in ends.finditer(content, max(0, place - 200), place)), default=max(0, place - 200)
    )
    stop = ends.search(content, place)
    cell = content[start : stop.start() if stop else None][:80].decode(errors="replace")
    doubled = cell.strip('"').replace('"', '""')
    raise WrongUseError(
        f'{file}, line {_line(content, place)}: a quote inside the cell {cell}; write it as "{doubled}", '
        "or without the quote."
    )


def _line(content: bytes, place: int) -> int:
    return content.count(b"\n", 0, place) + 1


def _rows(content: bytes, separator: str) -> Iterator[list[str]]:
    return csv.reader(io.TextIOWrapper(io.BytesIO(content), "utf-8", newline=""), delimiter=separator)


def _has_decimal_comma(cells: list[str], separator: str) -> bool:
    """Whether numbers have a decimal comma, as in 1,5.

    Cells that can be read in one way only decide. If there are none, a semicolon as separator means a decimal comma. If
    commas separate the cells, there is no decimal comma.
    """
    marks = decimal_marks(cells)
    return separator != "," and (marks == {","} or (separator == ";" and marks != {"."}))
