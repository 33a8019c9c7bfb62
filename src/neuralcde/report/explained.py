"""What moves the predictions: importances over test series, and the examples explained."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import numpy as np

from ..contracts import ArgumentError
from ..estimators.path_estimator import PathEstimator
from ..explanations import Explanation
from ..series import FarValueWarning, IrregularSeries

MOST_SERIES, MOST_OBSERVATIONS = 200, 30_000  # test series for the importances, drawn at random
LISTED = 40  # most columns
SEED = 0


def importances_of(estimator: PathEstimator, held: IrregularSeries) -> dict[str, Any] | None:
    """How much each column moves the predictions for some of the test series; None if they cannot be explained.

    Returns
    -------
    dict or None
        "series": how many were explained; "unit": of the figures; "columns": name, kind and figures, largest first.
    """
    order = np.random.default_rng(SEED).permutation(len(held))[:MOST_SERIES]
    observations = np.add.reduceat(held.observed.sum(1).numpy(), held.offsets[:-1].numpy())[order]
    chosen = np.sort(order[: max(1, int((observations.cumsum() <= MOST_OBSERVATIONS).sum()))])
    try:
        explanation = estimator.explain(held[chosen])
    except ArgumentError:  # the path is not causal
        return None
    found = [item._asdict() for item in explanation.importances()[:LISTED]]
    return {"series": len(chosen), "unit": explanation.unit, "columns": found}


def importance_rows(found: dict[str, Any]) -> list[dict[str, Any]]:
    """The importances for the page, with the length of a bar from 0 to 1."""
    longest = max((item["net"] for item in found["columns"]), default=0.0) or 1.0
    return [item | {"share": item["net"] / longest} for item in found["columns"]]


def explanation_of_examples(estimator: PathEstimator, examples: IrregularSeries, label: str) -> Explanation | None:
    """The explanation of the examples, its scores named after the label; None on a path that is not causal."""
    if not len(examples) or estimator.preparation_.scheme.causality == "none":
        return None
    with warnings.catch_warnings():  # fit has warned already, and the page lists these values
        warnings.simplefilter("ignore", FarValueWarning)
        explanation = estimator.explain(examples)
    return dataclasses.replace(explanation, names=tuple(estimator.task_.score_names(label)))


def channels_of_terms(explanation: Explanation) -> list[int]:
    """Positions of the observed channels, those whose terms are the largest first.

    Of a column of text it is the category that varies most.
    """
    series = explanation.series
    place = {name: k for k, name in enumerate(series.channel_names)}
    columns = {column.name: column for column in series.format.channel_columns(series.channel_names)}
    spread = np.nan_to_num([np.nanstd(part) if (~np.isnan(part)).any() else 0.0 for part in series.values.numpy().T])
    ranked = sorted(explanation.importances(), key=lambda item: -item.moved)
    found = []
    for item in ranked:
        if item.kind == "channel":
            channels = [place[name] for name in columns[item.column].feature_names]
            found.append(max(channels, key=lambda k: float(spread[k])))
    return [k for k in found if bool(series.observed[:, k].any())]
