"""Times as a figure shows them: the user's numbers, or for dates and durations the unit that fits."""

from __future__ import annotations

from dataclasses import dataclass

from ..series.table_format import TableFormat

UNITS = (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0), ("seconds", 1.0))
FAR = 50.0  # a clock that starts so many spans away from zero is read from its start


@dataclass(frozen=True)
class Clock:
    """From times of a series to numbers on an axis: shift, then multiply.

    Parameters
    ----------
    start
        What is shown as zero.
    factor
        Numbers on the axis for a unit of the user's.
    unit
        What is counted.
    since
        The start as the user would write it; empty where the axis shows the user's own numbers.
    """

    start: float
    factor: float
    unit: str
    since: str

    @property
    def label(self) -> str:
        """Of the axis."""
        return f"{self.unit} since start" if self.since else self.unit


def clock_of(format: TableFormat, first: float, last: float) -> Clock:
    """The clock of a series that lasts from `first` to `last`."""
    span = last - first
    if format.kind == "number":
        if abs(first) <= FAR * span or span == 0:
            return Clock(0.0, 1.0, format.time, "")
        return Clock(first, 1.0, format.time, f"{format.time} {format.show(first)}")
    factor, unit = unit_of(format, span)
    start = format.show(first)
    return Clock(first, factor, unit, start[:16].replace("T", " ") if format.kind == "datetime" else start)


def unit_of(format: TableFormat, span: float) -> tuple[float, str]:
    """The unit in which a time of this length is a handful or more: how many of it are one of the user's, and its name."""
    if format.kind == "number":
        return 1.0, format.time
    second = format.microseconds / 1e6
    name, size = next((unit for unit in UNITS if span * second >= 3 * unit[1]), UNITS[-1])
    return second / size, name
