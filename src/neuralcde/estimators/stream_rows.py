"""Rows of streams as the user writes them, {channel: value}, as arrays in the order of the training table."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..contracts import ArgumentError, ArgumentTypeError
from ..series.far_values import UsualRange
from ..series.table_format import TableColumn
from .preparation import Preparation

LARGEST = {"float32": float(torch.finfo(torch.float32).max), "float64": float(torch.finfo(torch.float64).max)}
LONGEST_ID = 256  # characters of text, and bits of a whole number
Values = NDArray[np.float64]


class RowReader:
    """Reads ids, times, values and static features of rows; errors name the stream, the channel and the fix.

    Parameters
    ----------
    preparation
        The preparation of the estimator, which has the format of the training table.
    """

    def __init__(self, preparation: Preparation):
        scaler, self.format = preparation.scaler, preparation.format
        self.largest = LARGEST[preparation.dtype]
        channels, static = scaler.channel_names_in_, scaler.static_names_in_
        self.channels = _Columns("channel", self.format.channel_columns(channels), scaler.usual_, preparation.dtype)
        self.static_names = tuple(static)
        columns = self.format.static or tuple(TableColumn(name) for name in static)
        self.static = _Columns("static feature", columns, scaler.static_usual_, preparation.dtype)

    def values(self, id: Hashable, given: Mapping[str, Any]) -> Values:
        """The values of a row, NaN for channels that are not given."""
        return self.channels.read(id, given, self.largest)

    def static_features(self, id: Hashable, given: Mapping[str, Any]) -> Values:
        """The static features of a stream, NaN for those that are not given."""
        return self.static.read(id, given, self.largest)

    def many(
        self, ids: Iterable[Hashable], times: Any, values: Any
    ) -> tuple[list[Hashable], NDArray[np.float64], Values]:
        """The ids, times and values of many rows, at most one per stream."""
        names = [checked_id(id) for id in ids]
        rows = np.ascontiguousarray(values, dtype=np.float64)
        given = self.format.numbers(self._dates_of(times))
        if rows.shape != (len(names), self.channels.size) or given.shape != (len(names),):
            raise ArgumentError(
                f"values have shape {rows.shape} and times {given.shape} for {len(names)} ids; expected "
                f"({len(names)}, {self.channels.size}) and ({len(names)},).",
                argument="values",
            )
        if len(set(names)) < len(names):
            raise ArgumentError("ids holds a stream twice; push its rows one after the other.", argument="ids")
        if not np.isfinite(given).all() or (np.abs(rows) > self.largest).any():
            raise ArgumentError("times and values must be finite, or NaN for values not observed.", argument="values")
        return names, given, rows

    def many_static(self, count: int, static: Any) -> Values:
        """The static features of many streams."""
        found = np.asarray(static, dtype=np.float64)
        if found.shape != (count, self.static.size):
            raise ArgumentError(
                f"static has shape {found.shape}; expected ({count}, {self.static.size}): one row per id, with "
                f"{', '.join(self.static_names) or 'no features'}.",
                argument="static",
            )
        if (np.abs(found) > self.largest).any():
            raise ArgumentError("static must be finite, or NaN for features that are unknown.", argument="static")
        return found

    def time(self, id: Hashable, t: Any) -> float:
        """A time as the number that series hold."""
        given = t
        if type(t) is not float and (type(t) is not int or self.format.kind != "number"):
            try:
                t = self._number_of(t)
            except (TypeError, ValueError, OverflowError) as reason:
                raise ArgumentTypeError(
                    f"stream {id!r}: t={reprlib.repr(t)} is not a time like those of the training table "
                    f"({self.format.clock}): {reason}",
                    argument="t",
                ) from reason
        try:
            number = float(t)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            raise ArgumentError(f"stream {id!r}: t={reprlib.repr(given)} is not finite.", argument="t")
        return number

    def _dates_of(self, times: Any) -> Any:
        """The same times, with numbers in place of text if they are dates as text."""
        if self.format.kind == "datetime" and not isinstance(times, str):
            asked = np.asarray(times)
            if asked.ndim == 1 and asked.size and all(isinstance(t, str) for t in asked):
                return [self.format.number_of_text(t) for t in asked]
        return times

    def _number_of(self, t: Any) -> float:
        if isinstance(t, bool | np.bool_):
            raise TypeError("it is a truth value")
        if isinstance(t, str) and self.format.kind == "datetime":
            return self.format.number_of_text(t)
        return float(self.format.numbers(t))


class _Columns:
    """Columns of a table, each a number or an indicator per category, and the limits of usual values."""

    def __init__(self, kind: str, columns: Iterable[TableColumn], usual: Sequence[UsualRange | None], dtype: str):
        self.kind, self.size, self.names, self.dtype = kind, len(usual), {}, dtype
        self.columns: list[str] = []  # of each number
        for column in columns:
            self.names[column.name] = len(self.columns), column.categories
            self.columns += [column.name] * len(column.feature_names)
        limits = [(-math.inf, math.inf) if one is None else (one.lowest, one.highest) for one in usual]
        self.lowest, self.highest = np.array(limits).reshape(-1, 2).T.astype(dtype)

    def is_far(self, rows: Values) -> NDArray[np.bool_]:
        """Which values are far outside the range of the training series."""
        given = rows.astype(self.dtype)
        return (given < self.lowest) | (given > self.highest)

    def far(self, row: Values) -> dict[str, float]:
        """The far values of a row, by column."""
        return {self.columns[place]: float(row[place]) for place in self.is_far(row).nonzero()[0].tolist()}

    def read(self, id: Hashable, given: Mapping[str, Any], largest: float) -> Values:
        """One row of numbers."""
        found = np.full(self.size, np.nan)
        if not isinstance(given, Mapping):
            raise ArgumentTypeError(
                f"stream {id!r}: expected a {self.kind} -> value dictionary, got {type(given).__name__}.",
                argument="values",
            )
        for name, value in given.items():
            place = self.names.get(name)
            if place is None:
                known = ", ".join(map(repr, list(self.names)[:8])) + ", ..." * (len(self.names) > 8)
                raise ArgumentError(
                    f"stream {id!r}: there is no {self.kind} {reprlib.repr(name)}; the model knows {known or 'none'}.",
                    argument="values",
                )
            start, categories = place
            if value is None:
                continue
            if categories is not None:
                if _is_missing(value):
                    continue
                if not isinstance(value, str):
                    raise ArgumentTypeError(
                        f"stream {id!r}: {self.kind} {name!r} is text, such as {categories[0]!r}, got "
                        f"{reprlib.repr(value)}.",
                        argument="values",
                    )
                found[start : start + len(categories)] = [value == category for category in categories]
                continue
            number = value if type(value) is float else self._number(id, name, value)
            if -largest <= number <= largest or number != number:
                found[start] = number
            else:
                raise ArgumentError(
                    f"stream {id!r}: {self.kind} {name!r} is {number}; leave it out if it was not observed.",
                    argument="values",
                )
        return found

    def _number(self, id: Hashable, name: str, value: Any) -> float:
        if isinstance(value, int | np.number | np.bool_):
            try:
                return float(value)
            except OverflowError:
                return math.inf
        if _is_missing(value):
            return math.nan
        raise ArgumentTypeError(
            f"stream {id!r}: {self.kind} {name!r} is {reprlib.repr(value)}; expected a number.", argument="values"
        )


def _is_missing(value: Any) -> bool:
    """Whether it is a missing cell of a table: NaN, or pandas.NA."""
    return type(value).__name__ == "NAType" or (isinstance(value, float | np.floating) and bool(value != value))


def checked_id(id: Any) -> Hashable:
    """An id of a stream: a number or text."""
    if isinstance(id, np.generic):
        id = id.item()
    if isinstance(id, bool) or not isinstance(id, int | float | str) or id != id:
        raise ArgumentTypeError(f"id={reprlib.repr(id)} is not an id; ids are numbers or text.", argument="id")
    if isinstance(id, str) and (not id or len(id) > LONGEST_ID):
        raise ArgumentError(f"id has {len(id)} characters; ids have 1 to {LONGEST_ID}.", argument="id")
    if isinstance(id, int) and id.bit_length() > LONGEST_ID:  # Python refuses to write, and so to save, long ones
        raise ArgumentError(f"id has {id.bit_length()} bits; whole numbers have at most {LONGEST_ID}.", argument="id")
    return id
