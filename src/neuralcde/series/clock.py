"""Time axes of figures: the numbers of the table, or a suitable unit for dates and durations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from .table_format import TableFormat

UNITS = (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0), ("seconds", 1.0))
FAR = 50.0  # times are shown relative to the start if they are this many times the duration away from zero


@dataclass(frozen=True)
class Clock:
    """Conversion from the times of a series to the numbers on an axis: (time - start) * factor.

    Parameters
    ----------
    start
        Time at which the axis is zero.
    factor
        Number of axis units per unit of the table's times.
    unit
        Name of the axis unit.
    since
        The start in the format of the table; empty if the axis shows the times of the table unchanged.
    """

    start: float
    factor: float
    unit: str
    since: str

    def on_axis(self, times: NDArray[Any]) -> NDArray[Any]:
        """Times of the series as numbers on the axis."""
        found: NDArray[Any] = (times - self.start) * self.factor
        return found

    @property
    def label(self) -> str:
        """Label of the axis."""
        return f"{self.unit} since start" if self.since else self.unit


def clock_of(format: TableFormat, first: float, last: float) -> Clock:
    """The time axis for a series observed from `first` to `last`."""
    span = last - first
    if format.kind == "number":
        if abs(first) <= FAR * span or span == 0:
            return Clock(0.0, 1.0, format.time, "")
        return Clock(first, 1.0, format.time, f"{format.time} {format.show(first)}")
    factor, unit = unit_of(format, span)
    start = format.show(first)
    return Clock(first, factor, unit, start[:16].replace("T", " ") if format.kind == "datetime" else start)


def unit_of(format: TableFormat, span: float) -> tuple[float, str]:
    """Choose the largest unit in which a span is at least 3.

    Returns
    -------
    factor, name
        Number of these units per unit of the table's times, and the name of the unit.
    """
    if format.kind == "number":
        return 1.0, format.time
    second = format.microseconds / 1e6
    name, size = next((unit for unit in UNITS if span * second >= 3 * unit[1]), UNITS[-1])
    return second / size, name
