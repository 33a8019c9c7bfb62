"""What a long table looked like: the names of its columns, the kind of its times, the categories of its text."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

Kind = Literal["number", "datetime", "duration"]

NANOSECONDS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "min": 60 * 10**9, "h": 3600 * 10**9, "D": 86400 * 10**9}


@dataclass(frozen=True)
class StaticColumn:
    """A static column of the table: a number, or text with the categories it was seen with."""

    name: str
    categories: tuple[str, ...] | None = None

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The features it becomes: itself, or one indicator a category."""
        if self.categories is None:
            return (self.name,)
        return tuple(f"{self.name}={category}" for category in self.categories)


@dataclass(frozen=True)
class TableFormat:
    """What the user's table looked like, so that another can be read alike and results be given back in its terms."""

    id: str = "id"
    time: str = "time"
    kind: Kind = "number"
    unit: str | None = None
    time_zone: str | None = None
    static: tuple[StaticColumn, ...] = field(default=())
    backend: str | None = None
    in_order: bool = True  # whether its rows came by series and time, as the series hold them

    @property
    def clock(self) -> str:
        """What a time counts."""
        return "numbers" if self.kind == "number" else f"datetimes or durations in units of {self.unit!r}"

    def show(self, time: float) -> str:
        """A time as the user would write it."""
        if self.kind == "number":
            return repr(time)
        if self.kind == "duration":
            return f"{time!r} {self.unit}"
        stamp = np.datetime64(round(time * self.microseconds), "us")
        return str(np.datetime_as_string(stamp, unit="auto")) + ("Z" if self.time_zone else "")

    @property
    def microseconds(self) -> float:
        """The length of `unit`."""
        return NANOSECONDS[self.unit or "s"] / 1000
