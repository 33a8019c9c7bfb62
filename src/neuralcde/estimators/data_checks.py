"""Checks of a table before training: columns that are not measurements, or that are known only after the outcome."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..contracts import ArgumentTypeError, warn_user
from ..series import IrregularSeries
from ..tasks import Task, classification_task, regression_task
from .group_columns import is_group_column
from .inputs import as_targets, known_targets, where_known
from .leaks import Leak, leaks_of
from .measured_columns import Measured, columns_of, constant_within, has_one_value, of_each_series

Array = NDArray[Any]
FEWEST_SERIES = 30  # with fewer, distinct whole numbers may be chance
RARE_SHARE = 0.01  # a channel observed in fewer series than that share,
RARE_COUNT = 5  # or in fewer than that number, is almost never observed
DENSE = 0.5  # row numbers are at least that dense between their least and their greatest
MOST_CLASSES = 20  # more distinct numbers are a quantity
NAMED = 5  # most columns in one sentence

Kind = Literal["outcome", "number", "constant", "rare", "single", "group"]


class DataWarning(UserWarning):
    """A table holds columns that are probably not measurements, or give the label away."""


class Finding(NamedTuple):
    """Something about a table that a person should look at before training.

    Parameters
    ----------
    kind
        "outcome": columns that give the label away; "number": numbers of rows or series; "constant": channels that are
        constant within every series; "rare": channels that were almost never observed; "single": channels with one
        value only; "group": columns that name groups of series, or groups with series in both training and test.
    columns
        The columns of the table.
    text
        What was found, and what to do, in a sentence or two.
    """

    kind: Kind
    columns: tuple[str, ...]
    text: str

    def __str__(self) -> str:
        return self.text


def check_data(series: IrregularSeries, y: Any, *, per_row: bool = False, task: Task | None = None) -> list[Finding]:
    """Look for columns that should not be channels: they give the label away, count rows, are constant or empty.

    `fit` does it for series from a long table, and warns of columns that give the label away, number rows or series, or
    name groups while no `groups` are given. The command line prints all. A column is named once, for the worst reason.

    Parameters
    ----------
    series
        The training series.
    y
        Their targets, as for `fit`.
    per_row
        Whether there is one target per row.
    task
        What the targets mean; inferred from y if None.

    Returns
    -------
    list of Finding
        Named tuples of a kind, the columns and a sentence; empty if there is nothing to say.

    Examples
    --------
    >>> import numpy as np, neuralcde as nc
    >>> rng, dead = np.random.default_rng(0), np.arange(60) % 2
    >>> pairs = [(np.arange(4.0), np.stack([rng.normal(size=4), np.full(4, 9.0 * d)], 1)) for d in dead]
    >>> series = nc.IrregularSeries.from_list(pairs, channels=["pulse", "days on ward 9"])
    >>> [(finding.kind, finding.columns) for finding in nc.check_data(series, dead)]
    [('outcome', ('days on ward 9',))]
    """
    if not isinstance(series, IrregularSeries):
        raise ArgumentTypeError(
            f"series must be an IrregularSeries, got {type(series).__module__}.{type(series).__name__}. Read a table "
            "first: IrregularSeries.from_long(frame, id=..., time=...).",
            argument="series",
        )
    targets = as_targets(y, series, per_row=per_row, allow_missing=True)
    known = where_known(targets)
    columns = list(columns_of(series))
    findings = []
    if known.any() and len(set(map(str, targets[known].tolist()))) > 1:
        task = task or _likely_task(known_targets(targets))
        leaks = leaks_of(series, columns, task.encode(targets), task, per_row=per_row)
        findings += [_outcome(leak) for leak in leaks]
    numbers = [name for name in (_number_of(column, series) for column in columns) if name]
    if numbers:
        findings.append(_numbers(numbers))
    named = {name for item in findings for name in item.columns}
    for column in columns:
        values = None if column.name in named else of_each_series(column, series)
        if values is not None and is_group_column(column.name, values):
            findings.append(group_finding(column.name, values))
    named |= {name for item in findings for name in item.columns}
    rest = [column for column in columns if column.name not in named and not column.static]
    constant = tuple(column.name for column in rest if constant_within(column, series, repeated=True))
    if constant:
        words = (
            "is constant within every series: it is a static feature"
            if len(constant) == 1
            else ("are constant within every series: they are static features")
        )
        findings.append(Finding("constant", constant, f"{_quoted(constant)} {words}, not a measurement over time."))
    rare = tuple(column.name for column in rest if _is_rare(column, series))
    if rare:
        verb = "was" if len(rare) == 1 else "were"
        findings.append(
            Finding(
                "rare", rare, f"{_quoted(rare)} {verb} observed in fewer than {_least(series)} of {len(series)} series."
            )
        )
    single = tuple(column.name for column in rest if column.name not in rare and has_one_value(column))
    if single:
        verb, its = ("has", "its") if len(single) == 1 else ("have", "their")
        text = f"{_quoted(single)} {verb} one value only: nothing can be learnt from {its} values, only from when they "
        findings.append(Finding("single", single, f"{text}were observed."))
    return findings


def group_finding(name: str, values: Array) -> Finding:
    """The finding of a column that names groups of series; `values` are its values, one per series."""
    known = [value for value in values.tolist() if value is not None and value == value]
    _, counts = np.unique(np.asarray(known), return_counts=True)
    text = (
        f"{name!r} seems to name what series have in common, such as the patient of several stays: "
        f"{int((counts > 1).sum())} of its {len(counts)} values occur in several series. With series of one group in "
        "both training and test, the test results are too good. Split by groups."
    )
    return Finding("group", (name,), text)


def _likely_task(y: Array) -> Task:
    """Regression for numbers that are not whole or are many, else classification."""
    many = y.dtype.kind in "iuf" and (len(np.unique(y)) > MOST_CLASSES or bool((y != np.round(y)).any()))
    return regression_task(y) if many else classification_task(y)


def check_groups(groups: Any, training: Array, test: Array) -> list[Finding]:
    """Whether a group, such as a patient with several stays, has series in both training and test."""
    groups = np.asarray(groups)
    both = np.isin(groups[test], groups[training])
    if not both.any():
        return []
    example = groups[test][both][0]
    text = (
        f"{int(both.sum())} of {len(test)} test series are of a group that training series are of too, e.g. "
        f"{example!r}: the test results are too good. Keep groups together in the split."
    )
    return [Finding("group", (), text)]


def warn_of_outcomes(series: IrregularSeries, y: Any, *, per_row: bool, task: Task, grouped: bool) -> None:
    """Warn of columns of a table that give the label away, count rows, or name groups unless these are given.

    Other series have no columns to name.
    """
    if series.format.backend is None:
        return
    kinds = ("outcome", "number") if grouped else ("outcome", "number", "group")
    found = [item for item in check_data(series, y, per_row=per_row, task=task) if item.kind in kinds]
    if found:
        fix = {"group": ": pass groups= to fit."}
        told = [item.text.removesuffix(".") + fix.get(item.kind, ".") for item in found]
        warn_user(" ".join(told), DataWarning)


def _number_of(column: Measured, series: IrregularSeries) -> str:
    """The name of a column that numbers the rows of the table or the series; empty for any other."""
    values = column.values[:, 0]
    if column.values.shape[1] > 1 or len(series) < FEWEST_SERIES or np.isnan(values).any():
        return ""
    if not column.static and constant_within(column, series):
        values = values[series.offsets[:-1].numpy()]
    elif not column.static and len(values) == len(series):
        return ""
    whole = bool((values == np.round(values)).all())
    if not whole or len(np.unique(values)) < len(values) or np.ptp(values) * DENSE > len(values):
        return ""
    return column.name


def _numbers(names: list[str]) -> Finding:
    one = len(names) == 1
    words = (
        "numbers the rows or the series of the table: it is no measurement"
        if one
        else ("number the rows or the series of the table: they are no measurements")
    )
    return Finding("number", tuple(names), f"{_quoted(names)} {words}. Leave {'it' if one else 'them'} out.")


def _is_rare(column: Measured, series: IrregularSeries) -> bool:
    seen = np.add.reduceat((~np.isnan(column.values[:, 0])).astype(int), series.offsets[:-1].numpy()) > 0
    return len(series) >= FEWEST_SERIES and int(seen.sum()) < _least(series)


def _least(series: IrregularSeries) -> int:
    return max(RARE_COUNT, int(np.ceil(RARE_SHARE * len(series))))


def _outcome(leak: Leak) -> Finding:
    text = f"{leak.column!r} gives the label away: {leak.reason}. If it is known only after the outcome, leave it out."
    return Finding("outcome", (leak.column,), text)


def _quoted(names: Any) -> str:
    shown = [repr(name) for name in names[:NAMED]]
    if len(names) > NAMED:
        return f"{', '.join(shown)} and {len(names) - NAMED} more"
    return " and ".join(filter(None, [", ".join(shown[:-1]), shown[-1]]))
