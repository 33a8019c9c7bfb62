"""Parse numbers with surrounding blanks, thousands separators, a decimal comma or a percent sign."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple

import polars

MISSING = (
    "",
    "#N/A N/A",
    *["NA", "N/A", "n/a", "<NA>", "#N/A", "#NA", "NaN", "nan", "-NaN", "-nan", "NaT", "null", "NULL"],
)
NONE = ("None", "none", "NONE")  # missing in a column of numbers; perhaps a category in a column of text
SAME = dict(zip("\u00a0\u2009\u202f\u2019\u2212", "   '-", strict=True))  # typographic blanks, apostrophe, minus
PERCENT = r"\s*%$"


class Reading(NamedTuple):
    """A number format: its decimal mark and its thousands separator."""

    decimal: str
    group: str

    @property
    def pattern(self) -> str:
        """Regular expression of a number: ungrouped, in groups of three digits, or grouped as in 12,34,567."""
        d, g = re.escape(self.decimal), re.escape(self.group)
        whole = rf"[0-9]+|[1-9][0-9]{{0,2}}(?:{g}[0-9]{{3}})+|[1-9][0-9]?(?:{g}[0-9]{{2}})+{g}[0-9]{{3}}"
        return _number(whole, d)

    def parse(self, cells: polars.Series) -> polars.Series:
        """Parse cells that match the pattern, as integers if all of them are."""
        return _parse(cells.str.replace_all(self.group, "", literal=True), self.decimal)


def _number(whole: str, decimal: str) -> str:
    return rf"^[+-]?(?:(?:(?:{whole})(?:{decimal}[0-9]*)?|{decimal}[0-9]+)(?:[eE][+-]?[0-9]+)?|(?i:inf|infinity))$"


READINGS = [Reading(decimal, group) for decimal in ".," for group in ",.' " if group != decimal]
PLAIN = {decimal: _number("[0-9]+", re.escape(decimal)) for decimal in ".,"}
ANY = "|".join(reading.pattern for reading in READINGS)


def decimal_marks(cells: Iterable[str]) -> set[str]:
    """The decimal marks of the cells that can be read in one way only; 1,234 can be read in two."""
    found: set[str] = set()
    for cell in set(cells):
        if "," in cell or "." in cell:
            marks = {reading.decimal for reading in READINGS if re.match(reading.pattern, cell.strip())}
            found |= marks if len(marks) == 1 else set()
    return found


def without_missing(column: polars.Series) -> polars.Series:
    """A column of text with nulls in place of empty cells and markers such as NA."""
    return _without(column, column.str.strip_chars(), MISSING)


def _without(column: polars.Series, stripped: polars.Series, words: tuple[str, ...]) -> polars.Series:
    return column.set(stripped.is_in(words), None)


def numeric_cells(column: polars.Series) -> tuple[polars.Series, polars.Series]:
    """The non-missing cells of a text column, in ASCII where they were typographic, and a mask of the numbers."""
    cells = _plain_characters(column).drop_nulls()
    return cells, cells.str.replace(PERCENT, "").str.contains(ANY)


def _plain_characters(column: polars.Series) -> polars.Series:
    cells = column.str.strip_chars()
    cells = _without(cells, cells, MISSING + NONE)
    return cells.str.replace_many(list(SAME), list(SAME.values()))


def read_numbers(column: polars.Series, decimal: str = ".") -> polars.Series | str | None:
    """Parse a column of text as numbers.

    `decimal` is the decimal mark of the file. A percent sign is dropped: 3% is read as 3.

    Returns
    -------
    polars.Series, str or None
        The parsed numbers; an error message if the cells are numbers in conflicting or ambiguous formats; None if some
        cell is not a number.
    """
    cells, numbers = numeric_cells(column)
    if not numbers.all() or not column.count():
        return None
    percent = cells.str.contains(PERCENT)
    if percent.any() and not percent.all():
        both = [*cells.filter(percent).unique(maintain_order=True)[:2], *cells.filter(~percent)[:1]]
        return f"the column {column.name} has numbers with and without %, e.g. {_examples(both)}"
    every = _plain_characters(column).str.replace(PERCENT, "")
    cells = every.drop_nulls()
    if cells.str.contains(PLAIN[decimal]).all():
        return _parse(every, decimal)
    fitting = [reading for reading in READINGS if cells.str.contains(reading.pattern).all()]
    if not fitting:
        examples = _examples(_of_different_readings(cells))
        return f"the column {column.name} has numbers that are written in different ways, e.g. {examples}"
    found = [reading.parse(every) for reading in fitting]
    for other in found[1:]:
        differs = (other != found[0]).fill_null(False)
        if differs.any():
            place = int(differs.arg_max() or 0)
            examples = _examples(cells.unique(maintain_order=True)[:3])
            return (
                f"the column {column.name} has numbers that can be read in two ways, e.g. {examples}: "
                f"{every[place]} may be {found[0][place]} or {other[place]}, and no value of the column settles it"
            )
    return found[0]


def _parse(cells: polars.Series, decimal: str) -> polars.Series:
    cells = cells.str.replace(decimal, ".", literal=True)
    whole = cells.cast(polars.Int64, strict=False)
    if whole.null_count() == cells.null_count():
        return whole
    return cells.cast(polars.Float64, strict=False)


def _of_different_readings(cells: polars.Series) -> list[str]:
    """Up to three example cells in different number formats."""
    different: dict[tuple[bool, ...], str] = {}
    for cell in islice(cells.unique(maintain_order=True), 10_000):
        fits = tuple(re.match(reading.pattern, cell) is not None for reading in READINGS)
        if not all(fits):  # plain digits fit every format
            different.setdefault(fits, cell)
    return list(different.values())[:3]


def _examples(cells: Iterable[str]) -> str:
    return ", ".join(map(repr, cells))
