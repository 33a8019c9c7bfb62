"""The test metric on parts of the test: by time, and by groups of static features."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..estimators.path_estimator import PathEstimator
from ..figures import GREY, LINE, Drawing, draw, number, short
from ..series import IrregularSeries, ragged
from ..series.clock import unit_of
from ..series.clock_features import has_common_origin
from ..series.table_format import TableFormat
from ..series.tables import static_columns
from ..tasks import Task, metric_title
from .bootstrap import intervals

Array = NDArray[Any]
FEWEST = 20  # series of a part of the test
MOST_SERIES = 2000  # for the metric by time, a random part of more is predicted at the times
TIMES = 8  # about so many times
STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)  # between two times, times a power of 10
MOST_FEATURES, MOST_GROUPS = 8, 6


def metric_of(task: Task, outputs: Tensor, targets: Tensor, counts: Array | None) -> dict[str, float | None]:
    """The task's metric and its confidence interval; None where it is undefined."""
    value = task.metrics(outputs, targets)[task.metric]
    low, high = intervals(task, outputs, targets, counts=counts).get(task.metric, (math.nan, math.nan))
    known = all(map(math.isfinite, (value, low, high)))
    return {"value": value if known else None, "low": low if known else None, "high": high if known else None}


# ---- by time ----


def metric_by_time(
    estimator: PathEstimator, held: IrregularSeries, outputs: Tensor, targets: Tensor
) -> dict[str, Any] | None:
    """The metric of predictions made at some times, for the series that go on at least until then.

    Times count from the origin of the table if the series have a common one, such as an admission, else from the start
    of each series. With a target per row, it is the metric of the rows since the time before.

    Returns
    -------
    dict or None
        "from_start": whether times count from the start of each series; "points": for each time the metric with its
        interval and the number of series. None if the series are too few or too short.
    """
    common = has_common_origin(held)
    first, last = held.times[held.offsets[:-1]].numpy(), held.times[held.offsets[1:] - 1].numpy()
    origin = np.zeros(len(held)) if common else first
    times = _round_times(np.asarray(last - origin), held.format)
    points = []
    if estimator.per_row:
        of_row = ragged.series_of_rows(held.offsets).numpy()
        since = held.times.numpy() - origin[of_row]
        for before, time in zip([-math.inf, *times], times, strict=False):
            rows = (since > before) & (since <= time)
            counts = np.bincount(of_row[rows], minlength=len(held))
            if (counts > 0).sum() >= FEWEST:
                chosen = torch.from_numpy(np.flatnonzero(rows))
                found = metric_of(estimator.task_, outputs[chosen], targets[chosen], counts[counts > 0])
                points.append(found | {"time": float(time), "series": int((counts > 0).sum())})
    elif times:
        drawn = np.arange(len(held))
        if len(drawn) > MOST_SERIES:
            drawn = np.sort(np.random.default_rng(0).choice(drawn, MOST_SERIES, replace=False))
        asked = origin[drawn, None] + np.asarray(times)
        known = (first[drawn, None] <= asked) & (asked <= last[drawn, None])
        at_times = estimator.outputs_at(held[drawn], asked)
        for k, time in enumerate(times):
            chosen = torch.from_numpy(np.flatnonzero(known[:, k]))
            if len(chosen) >= FEWEST:
                found = metric_of(estimator.task_, at_times[chosen, k], targets[drawn][chosen], None)
                points.append(found | {"time": float(time), "series": len(chosen)})
    points = [point for point in points if point["value"] is not None]
    return {"from_start": not common, "points": points} if len(points) > 1 else None


def _round_times(ends: Array, format: TableFormat) -> list[float]:
    """About `TIMES` evenly spaced times, round in the unit of the axis, up to the time that a tenth of series reach."""
    longest = float(np.quantile(ends, 0.9))
    if longest <= 0:
        return []
    factor, _ = unit_of(format, longest)
    exact = longest * factor / TIMES
    power = 10.0 ** math.floor(math.log10(exact))
    step = min((s * power for s in STEPS), key=lambda s: abs(math.log(s / exact)))
    return [step * k / factor for k in range(1, int(longest * factor / step + 1e-9) + 1)]


def time_figure(found: dict[str, Any], task: Task, format: TableFormat, *, per_row: bool) -> Drawing:
    """The metric over time, with its intervals."""
    points, title = found["points"], metric_title(task.metric)
    factor, unit = unit_of(format, points[-1]["time"])
    times = np.array([point["time"] for point in points]) * factor
    value, low, high = (np.array([point[key] for point in points]) for key in ("value", "low", "high"))

    def paint(axes: Any) -> None:
        axes.fill_between(times, low, high, color=GREY, alpha=0.25, linewidth=0)
        axes.plot(times, value, color=LINE, marker="o", markersize=3.5)
        axes.set(xlabel=f"{unit} since the start of the series" if found["from_start"] else unit, ylabel=title)

    what = (
        "Of the rows since the point before."
        if per_row
        else "Of predictions made at that time from what was known then, for the test series that go on until then."
    )
    see = (
        f"{what} Shaded: 95 % intervals. {number(points[0]['series'])} series at the first point, "
        f"{number(points[-1]['series'])} at the last."
    )
    return draw(f"{title} by time", see, paint)


# ---- by static features ----


def metric_by_group(
    estimator: PathEstimator, held: IrregularSeries, outputs: Tensor, targets: Tensor
) -> list[dict[str, Any]]:
    """The metric in groups of the test series: the values of a static feature, or thirds of a number's range.

    Groups of fewer than `FEWEST` series have none.
    """
    found: list[dict[str, Any]] = []
    counts = held.lengths.numpy() if estimator.per_row else None
    for name, column in static_columns(held.static.cpu().numpy(), held.format)[:MOST_FEATURES]:
        for group, chosen in _groups(column):
            if not chosen.any():
                continue
            if chosen.sum() < FEWEST:
                unknown = dict.fromkeys(("value", "low", "high"))
                found.append({"feature": name, "group": group, "series": int(chosen.sum())} | unknown)
                continue
            cases = np.repeat(chosen, counts) if counts is not None else chosen
            part = torch.from_numpy(np.flatnonzero(cases))
            of_part = None if counts is None else counts[chosen]
            metric = metric_of(estimator.task_, outputs[part], targets[part], of_part)
            found.append({"feature": name, "group": group, "series": int(chosen.sum())} | metric)
    return found


def _groups(column: Array) -> list[tuple[str, NDArray[np.bool_]]]:
    """The groups of one static column, named."""
    if column.dtype == object:
        values, counts = np.unique([str(item) for item in column if item is not None], return_counts=True)
        common = values[np.argsort(-counts, kind="stable")[:MOST_GROUPS]]
        groups = [(str(value), np.array([item == value for item in column])) for value in common]
        unknown = np.array([item is None for item in column])
    else:
        numbers = column.astype(np.float64)
        unknown = np.isnan(numbers)
        known = numbers[~unknown]
        different = np.unique(known)
        if len(different) <= MOST_GROUPS:
            groups = [(number(float(value), 4), numbers == value) for value in different]
        else:
            low, high = (float(f"{q:.3g}") for q in np.quantile(known, [1 / 3, 2 / 3]))
            groups = [
                (f"below {number(low, 4)}", numbers < low),
                (f"{number(low, 4)} to {number(high, 4)}", (numbers >= low) & (numbers <= high)),
                (f"above {number(high, 4)}", numbers > high),
            ]
    return [*groups, ("unknown", unknown)]


def group_rows(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The groups for the page: the name of a feature stands at its first group only.

    There are none if no group has a metric. `missing` says why a group has none.
    """
    if all(item["value"] is None for item in found):
        return []
    rows, before = [], None
    for item in found:
        name = short(item["feature"], 40) if item["feature"] != before else ""
        missing = f"fewer than {FEWEST} series" if item["series"] < FEWEST else "one class only"
        rows.append(item | {"feature": name, "missing": missing})
        before = item["feature"]
    return rows
