"""Tables of predictions."""

from __future__ import annotations

import dataclasses
import datetime
import warnings
import zoneinfo
from typing import Any

import numpy as np
import polars
import torch
from torch import Tensor

from ..estimators.path_estimator import PathEstimator
from ..explanations import Explanation
from ..series import FarValueWarning, IrregularSeries
from ..series.table_format import TableFormat
from ..tasks import Task
from .errors import WrongUseError


def prediction_table(
    estimator: PathEstimator, series: IrregularSeries, outputs: Tensor, id_column: str, label: str, truth: Any = None
) -> polars.DataFrame:
    """Table of predictions with one row per id, or one per id and time if the estimator predicts per row."""
    columns: dict[str, Any] = {id_column: series.ids.tolist()}
    if estimator.per_row:
        columns = dict(series.to_long("polars").select(id_column, series.format.time).to_dict())
    columns |= estimator.task_.prediction_columns(outputs, label)
    if truth is not None:
        columns[f"true_{label}"] = np.asarray(truth).tolist()
    return polars.DataFrame(columns)


def times_of(text: str, form: TableFormat) -> list[Any]:
    """The times of --at: numbers, or datetimes in the zone of the table if its times are datetimes."""
    found: list[Any] = []
    for item in text.split(","):
        try:
            found.append(_time_of(item.strip(), form))
        except ValueError as reason:
            wanted = "ISO datetimes, e.g. 2026-01-31T12:00" if form.kind == "datetime" else "numbers, e.g. 6,12,24"
            raise WrongUseError(f"--at {text}: {item.strip()!r} is not one of {wanted}.") from reason
    return found


def _time_of(item: str, form: TableFormat) -> Any:
    if form.kind != "datetime":
        return float(item)
    stamp = datetime.datetime.fromisoformat(item)
    if form.time_zone is not None and stamp.tzinfo is None:
        return stamp.replace(tzinfo=zoneinfo.ZoneInfo(form.time_zone))
    return stamp


def table_over_time(
    estimator: PathEstimator, series: IrregularSeries, outputs: Tensor, times: list[Any], label: str
) -> polars.DataFrame:
    """Table of predictions at times, one row per id and time; null where a series had not begun."""
    form, flat = series.format, outputs.flatten(0, 1)
    columns: dict[str, Any] = {
        form.id: np.repeat(np.asarray(series.ids, dtype=object), len(times)).tolist(),
        form.time: times * len(series),
    }
    begun = ~flat.isnan().any(1)
    place = begun.long().cumsum(0) - 1
    for name, values in estimator.task_.prediction_columns(flat[begun], label).items():
        columns[name] = [values[k] if known else None for known, k in zip(begun.tolist(), place.tolist(), strict=True)]
    return polars.DataFrame(columns)


def explanation_table(
    estimator: PathEstimator, series: IrregularSeries, label: str, times: list[Any] | None
) -> polars.DataFrame:
    """Table of the terms of predictions; with times, those of the predictions at each time, in a column "at"."""
    names = tuple(estimator.task_.score_names(label))
    if times is None:
        explanation = dataclasses.replace(explained(estimator, series), names=names)
        terms: polars.DataFrame = explanation.to_long("polars")
        return terms
    parts: list[polars.DataFrame] = []
    for time, number in zip(times, series.format.numbers(times).tolist(), strict=True):
        begun = (series.times[series.offsets[:-1]] <= number).numpy()
        if begun.any():
            explanation = dataclasses.replace(explained(estimator, series[begun].until(number)), names=names)
            parts.append(explanation.to_long("polars").insert_column(1, polars.lit(time).alias("at")))
    if not parts:
        raise WrongUseError("--explain: no series had begun at the times of --at; give later ones.")
    return polars.concat(parts)


def explained(estimator: PathEstimator, series: IrregularSeries) -> Explanation:
    """The explanation, without a second warning of values that the predictions have warned of."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FarValueWarning)
        found: Explanation = estimator.explain(series)
        return found


def without_formulas(frame: polars.DataFrame) -> polars.DataFrame:
    """Put an apostrophe before column names and text that a spreadsheet would run as a formula, such as =1+1."""
    formula = r"^\s*[=+\-@\x{FF1D}\x{FF0B}\x{FF0D}\x{FF20}]|^[\t\r\n]"  # also the full-width forms
    text = polars.selectors.string()
    frame = frame.with_columns(polars.when(text.str.contains(formula)).then("'" + text).otherwise(text).name.keep())
    names = polars.Series(frame.columns)
    return frame.rename({name: f"'{name}" for name in names.filter(names.str.contains(formula))})


def check_names(task: Task, id_column: str, time: str, label: str) -> None:
    """Refuse names of the id, time or label column that clash with a column of the prediction table."""
    empty = torch.zeros(0, task.outputs)
    own = task.prediction_columns(empty, "").keys() - {""}  # e.g. of the probabilities
    taken = {*task.prediction_columns(empty, label), f"true_{label}"}
    for option, name, others in (("id", id_column, taken), ("time", time, taken), ("label", label, own)):
        if name in others:
            raise WrongUseError(f"--{option} {name}: predictions have a column of that name; rename it in the table.")
