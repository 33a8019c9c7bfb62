"""Predictions as a table."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars

from ..estimators import NeuralCDEClassifier
from ..series import IrregularSeries


def prediction_table(
    estimator: Any, series: IrregularSeries, id_column: str, label: str, truth: Any = None
) -> polars.DataFrame:
    """Predictions keyed by id, or by id and time where there is one a row."""
    columns: dict[str, Any] = {id_column: series.ids.tolist()}
    if estimator.per_row:
        columns = dict(series.to_long("polars").select(id_column, series.format.time).to_dict())
    if isinstance(estimator, NeuralCDEClassifier):
        p = estimator.predict_proba(series)
        columns[label] = estimator.classes_[p.argmax(1)].tolist()
        columns |= {f"p_{name}": p[:, k].tolist() for k, name in enumerate(estimator.classes_.tolist())}
    else:
        columns[label] = estimator.predict(series).tolist()
    if truth is not None:
        columns[f"true_{label}"] = np.asarray(truth).tolist()
    return polars.DataFrame(columns)
