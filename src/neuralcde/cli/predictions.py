"""Tables of predictions."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars
import torch
from torch import Tensor

from ..estimators.path_estimator import PathEstimator
from ..series import IrregularSeries
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
