"""The format of a long table: names of columns, kind and unit of times, categories of text columns."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Kind = Literal["number", "datetime", "duration"]

NANOSECONDS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "min": 60 * 10**9, "h": 3600 * 10**9, "D": 86400 * 10**9}


@dataclass(frozen=True)
class TableColumn:
    """A channel or static column of the table: numbers, or text with its categories."""

    name: str
    categories: tuple[str, ...] | None = None

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The channels or static features it becomes: itself, or one indicator per category."""
        if self.categories is None:
            return (self.name,)
        return tuple(f"{self.name}={category}" for category in self.categories)


@dataclass(frozen=True)
class TableFormat:
    """The format of the user's table, so that others are read alike and results come back in its terms."""

    id: str = "id"
    time: str = "time"
    kind: Kind = "number"
    unit: str | None = None
    time_zone: str | None = None
    static: tuple[TableColumn, ...] = field(default=())
    backend: str | None = None
    in_order: bool = True  # whether its rows were sorted by series and time
    text_channels: tuple[TableColumn, ...] = ()  # those of the measured columns that are text, with their categories

    @property
    def indicator_channels(self) -> frozenset[str]:
        """Names of the channels that are indicators of a category."""
        return frozenset(name for column in self.text_channels for name in column.feature_names)

    def channel_columns(self, channels: Iterable[str]) -> tuple[TableColumn, ...]:
        """The measured columns of the table that these channels came from, in the same order."""
        names = list(channels)
        whole = [column for column in self.text_channels if set(column.feature_names) <= set(names)]
        source = {name: column for column in whole for name in column.feature_names}
        return tuple(dict.fromkeys(source.get(name, TableColumn(name)) for name in names))

    def numeric_static(self, chosen: Iterable[bool]) -> list[str]:
        """Names of the static columns of numbers, of those whose features are chosen."""
        features = (column for column in self.static for _ in column.feature_names)
        pairs = zip(features, chosen, strict=False)
        return [column.name for column, wanted in pairs if wanted and column.categories is None]

    @property
    def clock(self) -> str:
        """Kind and unit of the times, for errors; series of one estimator must agree in it."""
        return "numbers" if self.kind == "number" else f"datetimes or durations in units of {self.unit!r}"

    @property
    def moments(self) -> str:
        """Kind, zone and unit of the times, for errors; series that are concatenated must agree in it."""
        if self.kind == "number":
            return "numbers"
        zone = "" if self.kind == "duration" else f" with{'out' if self.time_zone is None else ''} a time zone"
        return f"{self.kind}s{zone}, in units of {self.unit!r}"

    def show(self, time: float) -> str:
        """A time as the user would write it."""
        if self.kind == "number":
            return repr(time)
        if self.kind == "duration":
            return f"{time!r} {self.unit}"
        stamp = np.datetime64(round(time * self.microseconds), "us")
        return str(np.datetime_as_string(stamp, unit="auto")) + ("Z" if self.time_zone else "")

    def numbers(self, times: Any) -> NDArray[np.float64]:
        """Times as the user writes them (numbers, datetimes or durations) as the numbers that series hold."""
        asked = np.asarray(times)
        if asked.dtype.kind in "mM" and self.kind == "number":
            raise TypeError(
                f"times are {asked.dtype}, but those of the series are numbers; give numbers in their unit."
            )
        if asked.dtype.kind in "mMO" and self.kind != "number":
            stamps = _in_utc(asked, self.time_zone) if self.kind == "datetime" else asked.astype("timedelta64[us]")
            # As an integer, NaT would be a date 290,000 years ago.
            asked = np.where(np.isnat(stamps), np.nan, stamps.astype(np.int64) / self.microseconds)
        try:
            return np.asarray(asked, dtype=np.float64)
        except (TypeError, ValueError) as reason:
            wanted = "numbers in their unit"
            if self.kind == "datetime":
                zone = "" if self.time_zone is None else f", tz={self.time_zone!r}"
                wanted = f'datetimes, e.g. pandas.Timestamp("2026-01-31 12:00"{zone})'
            raise TypeError(
                f"times hold {asked.ravel()[0]!r}, but those of the series are {self.clock}; give {wanted}."
            ) from reason

    def number_of_text(self, text: str) -> float:
        """A date and time in ISO 8601 as the number that series hold.

        Text of digits is the date 20260131 or nothing: as a number of seconds since 1970, "2026" would pass unnoticed.
        """
        if text.isdecimal() and len(text) != len("20260131"):
            raise ValueError("it is not a date and time such as 2026-01-31T12:00")
        stamp = datetime.datetime.fromisoformat(text)
        if self.kind == "datetime" and self.time_zone is not None and stamp.tzinfo is None:
            raise ValueError(
                f"it has no time zone, but the table that was fitted had {self.time_zone}; write it as in "
                "2026-01-31T12:00+01:00 or 2026-01-31T12:00Z"
            )
        if self.kind == "datetime" and self.time_zone is None and stamp.tzinfo is not None:
            raise ValueError("it has a time zone, but the table that was fitted had none; leave it out")
        return float(self.numbers(stamp))

    @property
    def microseconds(self) -> float:
        """Microseconds per `unit`."""
        return NANOSECONDS[self.unit or "s"] / 1000


def _in_utc(stamps: NDArray[Any], zone: str | None) -> NDArray[Any]:
    """Datetimes as UTC without a zone. Whether they have a zone must agree with the fitted table."""
    objects = stamps.dtype == object
    items = [None if item != item else item for item in stamps.ravel()] if objects else []  # None: NaT
    known = [item for item in items if item is not None]
    aware = bool(known) and all(getattr(item, "tzinfo", None) is not None for item in known)
    if aware != (zone is not None) and (known or not objects):
        raise ValueError(
            f"times have {'a' if aware else 'no'} time zone, but the table that was fitted had {zone or 'none'}; "
            f"{'drop it' if aware else f'say which: .tz_localize({zone!r})'}."
        )
    if aware:
        items = [item and item.astimezone(datetime.UTC).replace(tzinfo=None) for item in items]
    if objects:
        stamps = np.array(items, dtype=object).reshape(stamps.shape)
    return stamps.astype("datetime64[us]")
