"""Metrics: their names in words, and their values for weighted cases.

A bootstrap resample is a vector of weights: the number of times each case was drawn. The functions here take many
resamples at once, as `weights` of shape (resamples, cases), and sort the scores once rather than once per resample.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class MetricText(NamedTuple):
    """How a metric is described to people; `larger_is_better` is None where an intermediate value is the best."""

    title: str
    meaning: str
    larger_is_better: bool | None


METRICS = {
    "auroc": MetricText(
        "AUROC", "area under the ROC curve: the chance that a positive is ranked above a negative", True
    ),
    "average_precision": MetricText("Average precision", "area under the precision-recall curve", True),
    "accuracy": MetricText("Accuracy", "share of right answers", True),
    "balanced_accuracy": MetricText("Balanced accuracy", "recall per class, averaged over classes", True),
    "log_loss": MetricText("Log-loss", "mean negative log-likelihood of the true class", False),
    "brier": MetricText(
        "Brier score", "mean squared difference between the probability and the outcome (0 or 1)", False
    ),
    "calibration_slope": MetricText(
        "Calibration slope", "1 is ideal; below 1 the probabilities are too extreme, above 1 too cautious", None
    ),
    "r2": MetricText("R²", "share of the variance explained", True),
    "rmse": MetricText("RMSE", "root mean squared error, in the target's units", False),
    "mae": MetricText("MAE", "mean absolute error, in the target's units", False),
}


def metric_title(name: str) -> str:
    """The title of a metric; that of an unknown one is its name."""
    return METRICS[name].title if name in METRICS else name.replace("_", " ")


OF_ONE_CLASS = ("average_precision",)  # metrics that differ between the two classes of a binary task


def metric_title_of(name: str, subject: str) -> str:
    """The title of a metric, with the class that it is about if it is about one."""
    return f"{metric_title(name)} of {subject}" if subject and name in OF_ONE_CLASS else metric_title(name)


def weighted_mean(weights: Array, values: Array, known: Array) -> Array:
    """Mean over the known cases, one per resample."""
    mean: Array = (weights @ np.where(known, values, 0.0)) / (weights @ known.astype(float))
    return mean


def mean_where_finite(values: Array) -> Array:
    """Mean over the first axis, ignoring what is not finite; NaN where nothing is."""
    known = np.isfinite(values)
    mean: Array = np.where(known, values, 0.0).sum(0) / known.sum(0)
    return mean


def weighted_log_loss(weights: Array, of_truth: Array, known: Array) -> Array:
    """Log-loss, given the probability of the true class; clipped as scikit-learn does."""
    least = np.finfo(float).eps
    return weighted_mean(weights, -np.log(np.clip(of_truth, least, 1 - least)), known)


def weighted_balanced_accuracy(weights: Array, right: Array, truth: Array, classes: int) -> Array:
    """Recall per class, averaged over the classes that were drawn."""
    recalls = []
    for k in range(classes):
        there = weights[:, truth == k]
        recalls.append(there @ right[truth == k] / there.sum(1))
    return mean_where_finite(np.stack(recalls))


def weighted_ranking(weights: Array, scores: Array, truth: Array) -> tuple[Array, Array]:
    """Area under the ROC curve and average precision; equal scores are one step of the curves.

    Parameters
    ----------
    weights
        (resamples, cases).
    scores, truth
        (cases,); a truth of NaN is unknown.
    """
    order = np.argsort(-scores, kind="stable")
    order = order[~np.isnan(truth[order])]
    drawn, positive = weights[:, order], truth[order] > 0.5
    yes, no = drawn * positive, drawn * ~positive
    if len(order):  # sums over equal scores, from the highest score down
        starts = np.flatnonzero(np.r_[True, np.diff(scores[order]) != 0])
        yes, no = np.add.reduceat(yes, starts, axis=1), np.add.reduceat(no, starts, axis=1)
    below = no.sum(1, keepdims=True) - no.cumsum(1) + no / 2
    area: Array = (yes * below).sum(1) / (yes.sum(1) * no.sum(1))
    found = yes.cumsum(1)
    precision = found / np.maximum(found + no.cumsum(1), 1e-300)
    average: Array = (yes * precision).sum(1) / yes.sum(1)
    return area, np.where(no.sum(1) > 0, average, np.nan)


def weighted_errors(weights: Array, found: Array, truth: Array) -> dict[str, Array]:
    """R², RMSE and MAE of predictions (cases, targets), averaged over targets."""
    known = ~np.isnan(truth)
    error = np.where(known, found - truth, 0.0)
    middle = np.where(known, truth, 0.0).sum(0) / np.maximum(known.sum(0), 1)
    centred = np.where(known, truth - middle, 0.0)  # sums of squares of large numbers lose digits

    def mean(values: Array) -> Array:
        share: Array = (weights @ values) / (weights @ known.astype(float))
        return share

    square = mean(error**2)
    spread = mean(centred**2) - mean(centred) ** 2
    return {
        "r2": (1 - square / spread).mean(1),
        "rmse": np.sqrt(square).mean(1),
        "mae": mean(np.abs(error)).mean(1),
    }
