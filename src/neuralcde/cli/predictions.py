"""Predictions as a table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import polars
from torch import Tensor

from ..estimators.path_estimator import PathEstimator
from ..series import IrregularSeries
from ..tasks import BinaryTask, MulticlassTask, MultilabelTask
from .errors import WrongUseError


def prediction_table(
    estimator: PathEstimator, series: IrregularSeries, outputs: Tensor, id_column: str, label: str, truth: Any = None
) -> polars.DataFrame:
    """Predictions keyed by id, or by id and time where there is one a row."""
    columns: dict[str, Any] = {id_column: series.ids.tolist()}
    if estimator.per_row:
        columns = dict(series.to_long("polars").select(id_column, series.format.time).to_dict())
    task = estimator.task_
    decoded = task.decode(outputs)
    several = decoded.ndim > 1  # targets or labels, numbered
    columns |= (
        {f"{label}_{k}": decoded[:, k].tolist() for k in range(decoded.shape[1])}
        if several
        else {label: decoded.tolist()}
    )
    if isinstance(task, MultilabelTask):
        columns |= {f"p_{k}": p.tolist() for k, p in enumerate(task.probabilities(outputs).T)}
    if isinstance(task, BinaryTask | MulticlassTask):
        p = task.probabilities(outputs)
        columns |= {f"p_{name}": p[:, k].tolist() for k, name in enumerate(task.classes)}
    if truth is not None:
        columns[f"true_{label}"] = np.asarray(truth).tolist()
    return polars.DataFrame(columns)


def without_formulas(frame: polars.DataFrame) -> polars.DataFrame:
    """The table with an apostrophe before names and text that a spreadsheet would run as a formula, such as =1+1."""
    formula = r"^\s*[=+\-@\x{FF1D}\x{FF0B}\x{FF0D}\x{FF20}]|^[\t\r\n]"  # also as wide as a Chinese character
    text = polars.selectors.string()
    frame = frame.with_columns(polars.when(text.str.contains(formula)).then("'" + text).otherwise(text).name.keep())
    names = polars.Series(frame.columns)
    return frame.rename({name: f"'{name}" for name in names.filter(names.str.contains(formula))})


def check_names(id_column: str, time: str, label: str, classes: Iterable[Any]) -> None:
    """The columns of predictions must differ from each other, and from those that say what they are for."""
    probabilities = {f"p_{name}" for name in classes}
    taken = {label, f"true_{label}", *probabilities}
    for option, name, others in (("id", id_column, taken), ("time", time, taken), ("label", label, probabilities)):
        if name in others:
            raise WrongUseError(f"--{option} {name}: predictions have a column of that name; rename it in the table.")
