"""A table along one quantity, such as the threshold of an alarm, with a slider that shows any of its rows."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Column:
    """A column of a sliding table.

    Parameters
    ----------
    title
        Its heading.
    meaning
        One line that explains it.
    """

    title: str
    meaning: str


@dataclass(frozen=True)
class SlidingTable:
    """A table whose rows belong to increasing values of a quantity.

    The report shows some of the rows as a table, and any of them at the position of a slider. Without JavaScript the
    table remains.

    Parameters
    ----------
    title
        What the table is about.
    see
        Caption: how to read it.
    columns
        The first one is the quantity that the slider sets.
    rows
        Cells as text, in increasing order of the quantity.
    intervals
        The uncertainty of each cell as text; empty where it has none.
    shown
        Positions of the rows that are always shown.
    start
        Position at which the slider starts.
    """

    title: str
    see: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    intervals: tuple[tuple[str, ...], ...]
    shown: tuple[int, ...]
    start: int
