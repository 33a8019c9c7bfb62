"""Columns that give the label away: alone they predict it almost perfectly, follow from it, or lie after the end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata
from sklearn.tree import DecisionTreeClassifier
from torch import Tensor

from ..series import IrregularSeries, ragged
from ..tasks import BoostingProblem, Task
from .measured_columns import Measured, constant_within

Array = NDArray[Any]
MOST_CASES = 20_000  # cases that are looked at
# A column with one value per series that ranks the classes as well as this is hardly a measurement; one that varies
# over time may well be. The ranking must also be this many standard errors better than chance.
AREA_OF_CONSTANT, AREA_OF_VARYING, STANDARD_ERRORS = 0.9, 0.999, 3.7
CORRELATION_OF_CONSTANT, CORRELATION_OF_VARYING = 0.98, 0.995
ACCURACY = 0.98  # balanced, of a small tree, for several classes
FEWEST_CASES = 20
MOST_CODES = 20  # a column with at most so many values is a code: its values have no order
CASES_PER_CODE = 10
LEAST_CASES_OF_CODE, CHANCE = 20, 1e-9  # a code whose cases are all of one rarer class, by chance at most this likely
AFTER_THE_END, LIKE_THE_END = 0.995, 0.6  # share of series, and rank correlation with the time of the last row


class Leak(NamedTuple):
    """A column that gives the label away, and why we think so."""

    column: str
    reason: str


def leaks_of(
    series: IrregularSeries, columns: Iterable[Measured], targets: Tensor, task: Task, *, per_row: bool
) -> list[Leak]:
    """Find the columns that give the label away.

    A table with a single column is not judged: there is nothing else to learn from.

    Parameters
    ----------
    series, columns
        The series and the columns of their table.
    targets
        Encoded targets, one per case.
    task
        What they mean.
    per_row
        Whether there is one target per row.
    """
    columns = list(columns)
    problems = task.boosting_problems(targets)
    if len(columns) < 2 or problems is None:
        return []
    rng = np.random.default_rng(0)
    chosen = np.arange(len(targets))
    if len(chosen) > MOST_CASES:
        chosen = np.sort(rng.choice(chosen, MOST_CASES, replace=False))
    found = []
    for column in columns:
        constant = constant_within(column, series)
        strength, reason = 0.0, ""
        for problem in problems:
            truth = problem.targets.double().numpy()[chosen]
            for values in _summaries(column, series, constant=constant, per_row=per_row):
                strength, reason = max((strength, reason), _reason(values[chosen], truth, problem, constant=constant))
            if constant and not reason and problem.goal == "classification":
                reason = _one_sided(column, series, problem, per_row=per_row)
        if constant and not reason and not column.static:
            reason = _after_the_end(column, series)
        if reason:
            found.append(Leak(column.name, reason))
    return found


def _summaries(column: Measured, series: IrregularSeries, *, constant: bool, per_row: bool) -> Iterator[Array]:
    """What a column says of each case, as numbers: NaN where nothing was observed."""
    starts, lengths = series.offsets[:-1].numpy(), series.lengths.numpy()
    for k in range(column.values.shape[1]):
        values = column.values[:, k].astype(np.float64)
        if column.static:
            yield np.repeat(values, lengths) if per_row else values
            continue
        seen = ~np.isnan(values)
        if per_row:
            yield _carried_forward(values, seen, series)
            if k == 0:
                yield seen.astype(float)
            continue
        rows = np.arange(len(values))
        last = np.maximum.reduceat(np.where(seen, rows, -1), starts)
        count = np.add.reduceat(seen.astype(float), starts)
        yield np.where(count > 0, values[last], np.nan)
        if k == 0:
            yield (count > 0).astype(float)
        if not constant:
            first = np.minimum.reduceat(np.where(seen, rows, len(rows) - 1), starts)
            yield np.where(count > 0, values[first], np.nan)
            yield np.where(
                count > 0, np.add.reduceat(np.where(seen, values, 0.0), starts) / np.maximum(count, 1), np.nan
            )
            yield np.fmin.reduceat(values, starts)
            yield np.fmax.reduceat(values, starts)


def _carried_forward(values: Array, seen: Array, series: IrregularSeries) -> Array:
    """The last value observed up to each row of the same series."""
    rows = np.arange(len(values))
    last = np.maximum.accumulate(np.where(seen, rows, -1))
    begin = series.offsets[:-1].numpy()[ragged.series_of_rows(series.offsets).numpy()]
    return np.where(last >= begin, values[np.maximum(last, 0)], np.nan)


def _reason(values: Array, truth: Array, problem: BoostingProblem, *, constant: bool) -> tuple[float, str]:
    """How well these values predict the label, and that in words; 0 and empty if they do not give it away."""
    nothing = 0.0, ""
    there = ~np.isnan(values) & ~np.isnan(truth)
    x, y = values[there], truth[there]
    if len(x) < max(FEWEST_CASES, (~np.isnan(truth)).sum() / 2) or np.ptp(x) == 0 or np.ptp(y) == 0:
        return nothing
    if problem.goal == "regression":
        correlation = abs(float(np.corrcoef(rankdata(x), rankdata(y))[0, 1]))
        needed = CORRELATION_OF_CONSTANT if constant else CORRELATION_OF_VARYING
        return (correlation, f"its rank correlation with it is {correlation:.3f}") if correlation >= needed else nothing
    if len(problem.columns) == 1:
        area, error = _area(x, y > 0.5)
        good = area >= (AREA_OF_CONSTANT if constant else AREA_OF_VARYING) and area - 0.5 >= STANDARD_ERRORS * error
        return (area, f"alone it predicts the label with an AUROC of {area:.3f}") if good else nothing
    accuracy = _accuracy(x, y)
    words = f"alone it predicts the label with an accuracy of {accuracy:.3f}"
    return (accuracy, words) if accuracy >= ACCURACY else nothing


def _area(x: Array, yes: Array) -> tuple[float, float]:
    """AUROC of a column in its better direction, and its standard error under chance."""
    codes, place = np.unique(x, return_inverse=True)
    if 2 < len(codes) <= MOST_CODES and len(x) >= CASES_PER_CODE * len(codes):
        x = (np.bincount(place, yes) / np.bincount(place))[place]  # a code is as high as its share of positives
    n1, n0 = int(yes.sum()), int((~yes).sum())
    area = (rankdata(x)[yes].sum() - n1 * (n1 + 1) / 2) / (n1 * n0)
    return max(area, 1 - area), float(np.sqrt((n0 + n1 + 1) / (12 * n0 * n1)))


def _accuracy(x: Array, y: Array) -> float:
    """Balanced accuracy of a small decision tree on one column."""
    classes = len(np.unique(y))
    if len(x) < CASES_PER_CODE * classes:
        return 0.0
    tree = DecisionTreeClassifier(
        max_leaf_nodes=2 * classes, min_samples_leaf=5, class_weight="balanced", random_state=0
    )
    right = tree.fit(x[:, None], y).predict(x[:, None]) == y
    return float(np.mean([right[y == one].mean() for one in np.unique(y)]))


def _one_sided(column: Measured, series: IrregularSeries, problem: BoostingProblem, *, per_row: bool) -> str:
    """Whether all series with some value have the same, rarer label, as with a cause or a part of the outcome."""
    if per_row:
        return ""
    truth = problem.targets.double().numpy()
    rows = np.arange(len(series)) if column.static else series.offsets[:-1].numpy()
    for k, name in enumerate(column.names):
        x = column.values[:, k][rows].astype(np.float64)
        if not column.static:
            x = np.fmax.reduceat(column.values[:, k].astype(np.float64), rows)
        there = ~np.isnan(x) & ~np.isnan(truth)
        codes = np.unique(x[there])
        if not 2 <= len(codes) <= MOST_CODES:
            continue
        for code in codes:
            labels = truth[there & (x == code)]
            share = float((truth[there] == labels[0]).mean())
            alike = len(labels) >= LEAST_CASES_OF_CODE and bool((labels == labels[0]).all())
            if alike and share <= 0.5 and len(labels) * np.log(share) < np.log(CHANCE):
                value = name if "=" in name and code == 1 else f"{name} = {code:g}"
                return (
                    f"all {len(labels)} series with {value} have the same label, which {100 * share:.0f} % of all have"
                )
    return ""


def _after_the_end(column: Measured, series: IrregularSeries) -> str:
    """Whether a number is a time at or after the last row of its series, such as a time of death or of discharge."""
    if series.format.kind != "number" or column.values.shape[1] > 1 or len(series) < FEWEST_CASES:
        return ""
    x = np.fmax.reduceat(column.values[:, 0].astype(np.float64), series.offsets[:-1].numpy())
    there = ~np.isnan(x)
    last = series.times[series.offsets[1:] - 1].numpy()[there]
    if there.sum() < FEWEST_CASES or np.ptp(last) == 0 or np.ptp(x[there]) == 0:
        return ""
    after = float((x[there] >= last).mean())
    alike = float(np.corrcoef(rankdata(x[there]), rankdata(last))[0, 1])
    if after < AFTER_THE_END or alike < LIKE_THE_END:
        return ""
    return "it is a time at or after the last row of its series, so it tells how long a series will go on"
