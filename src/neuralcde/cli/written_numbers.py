"""Numbers as people write them: blanks around them, thousands separators, a decimal comma, a percent sign."""

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
NONE = ("None", "none", "NONE")  # missing among numbers; among text it may be a word, as in none, mild, severe
SAME = dict(zip("\u00a0\u2009\u202f\u2019\u2212", "   '-", strict=True))  # typographic blanks, apostrophe, minus
PERCENT = r"\s*%$"


class Reading(NamedTuple):
    """A way to read digits with marks among them; digits without any are read alike in all of them."""

    decimal: str
    group: str

    @property
    def pattern(self) -> str:
        """What a number looks like: in groups of three, or as in 12,34,567, or ungrouped."""
        d, g = re.escape(self.decimal), re.escape(self.group)
        whole = rf"[0-9]+|[1-9][0-9]{{0,2}}(?:{g}[0-9]{{3}})+|[1-9][0-9]?(?:{g}[0-9]{{2}})+{g}[0-9]{{3}}"
        return _number(whole, d)

    def parse(self, cells: polars.Series) -> polars.Series:
        """The numbers of cells that match; whole ones as integers."""
        return _parse(cells.str.replace_all(self.group, "", literal=True), self.decimal)


def _number(whole: str, decimal: str) -> str:
    return rf"^[+-]?(?:(?:(?:{whole})(?:{decimal}[0-9]*)?|{decimal}[0-9]+)(?:[eE][+-]?[0-9]+)?|(?i:inf|infinity))$"


READINGS = [Reading(decimal, group) for decimal in ".," for group in ",.' " if group != decimal]
PLAIN = {decimal: _number("[0-9]+", re.escape(decimal)) for decimal in ".,"}
ANY = "|".join(reading.pattern for reading in READINGS)


def decimal_marks(cells: Iterable[str]) -> set[str]:
    """The decimal marks of those cells that have one reading only; 1,234 has two."""
    found: set[str] = set()
    for cell in set(cells):
        if "," in cell or "." in cell:
            marks = {reading.decimal for reading in READINGS if re.match(reading.pattern, cell.strip())}
            found |= marks if len(marks) == 1 else set()
    return found


def without_missing(column: polars.Series) -> polars.Series:
    """A column of text with nulls where cells say NA, or nothing, between blanks."""
    return _without(column, column.str.strip_chars(), MISSING)


def _without(column: polars.Series, stripped: polars.Series, words: tuple[str, ...]) -> polars.Series:
    return column.set(stripped.is_in(words), None)


def numeric_cells(column: polars.Series) -> tuple[polars.Series, polars.Series]:
    """The cells of a column of text in plain characters, without those that are missing, and which of them are numbers."""
    cells = _plain_characters(column).drop_nulls()
    return cells, cells.str.replace(PERCENT, "").str.contains(ANY)


def _plain_characters(column: polars.Series) -> polars.Series:
    cells = column.str.strip_chars()
    cells = _without(cells, cells, MISSING + NONE)
    return cells.str.replace_many(list(SAME), list(SAME.values()))


def read_numbers(column: polars.Series, decimal: str = ".") -> polars.Series | str | None:
    """The numbers of a column of text; or what keeps them from being read; or None where it is text.

    `decimal` is the decimal mark of the file. 3% is 3: the number as it is written.
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
    """Cells that do not share a reading: the first one, and others that it does not fit."""
    different: dict[tuple[bool, ...], str] = {}
    for cell in islice(cells.unique(maintain_order=True), 10_000):
        fits = tuple(re.match(reading.pattern, cell) is not None for reading in READINGS)
        if not all(fits):  # digits alone fit all
            different.setdefault(fits, cell)
    return list(different.values())[:3]


def _examples(cells: Iterable[str]) -> str:
    return ", ".join(map(repr, cells))
