"""The columns of a table as the arrays of the channels and static features that they became."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..series import IrregularSeries

Array = NDArray[Any]

FEWEST_REPEATS = 5  # series in which a constant channel was observed more than once,
REPEATS = 0.2  # and the share of those with several rows


class Measured(NamedTuple):
    """A column of the table, as the values of its channels or static features.

    Parameters
    ----------
    name
        The column.
    values
        One row per row of the series, or per series for a static column.
    names
        The channels or static features it became.
    static
        Whether it has one value per series.
    """

    name: str
    values: Array
    names: tuple[str, ...]
    static: bool


def columns_of(series: IrregularSeries) -> Iterator[Measured]:
    """The measured and the static columns of the table that the series came from."""
    place = {name: k for k, name in enumerate(series.channel_names)}
    values = series.values.detach().cpu().numpy()
    for column in series.format.channel_columns(series.channel_names):
        chosen = [place[name] for name in column.feature_names]
        yield Measured(column.name, values[:, chosen], column.feature_names, static=False)
    static = series.static.detach().cpu().numpy()
    if not series.format.static:
        for k, name in enumerate(series.static_names):
            yield Measured(name, static[:, [k]], (name,), static=True)
        return
    start = 0
    for column in series.format.static:
        stop = start + len(column.feature_names)
        yield Measured(column.name, static[:, start:stop], column.feature_names, static=True)
        start = stop


def of_each_series(column: Measured, series: IrregularSeries) -> Array | None:
    """The value of a column for each series, NaN if unknown; None for a column that varies within a series.

    A column of text has the name of the channel of its category, and None if unknown.
    """
    if not constant_within(column, series):
        return None
    values = column.values.astype(np.float64)
    if not column.static:
        values = np.fmax.reduceat(values, series.offsets[:-1].numpy())
    if column.values.shape[1] == 1:
        return np.asarray(values[:, 0])
    known = np.nan_to_num(values).any(1)
    names: Array = np.array([*column.names, None], dtype=object)
    return np.asarray(names[np.where(known, np.nan_to_num(values).argmax(1), len(column.names))])


def has_one_value(column: Measured) -> bool:
    """Whether a column was observed, and always with the same value."""
    low, high = np.fmin.reduce(column.values), np.fmax.reduce(column.values)
    return bool(np.isfinite(low).all() and (low == high).all())


def constant_within(column: Measured, series: IrregularSeries, *, repeated: bool = False) -> bool:
    """Whether a channel has one value per series, and differs between series.

    With `repeated`, enough series must have observed it more than once.
    """
    if column.static:
        return True
    starts = series.offsets[:-1].numpy()
    low, high = np.fmin.reduceat(column.values, starts), np.fmax.reduceat(column.values, starts)
    there = ~np.isnan(low)
    if not there.any() or bool((low[there] != high[there]).any()) or np.ptp(low[there]) == 0:
        return False
    if not repeated:
        return True
    count = np.add.reduceat(~np.isnan(column.values[:, 0]), starts)
    longer = int((series.lengths > 1).sum())
    return int((count > 1).sum()) >= max(FEWEST_REPEATS, REPEATS * longer)
