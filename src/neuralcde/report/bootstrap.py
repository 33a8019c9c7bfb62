"""How sure a test metric is: bootstrap over series, all resamples at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..tasks import BinaryTask, MulticlassTask, RegressionTask, Task

Array = NDArray[Any]
Metric = Callable[[Array], Array]  # from weights (resamples, targets) to a number a resample
LEVEL = 0.95
CELLS_AT_ONCE = 4_000_000
SEED = 0


def resamples(targets: int) -> int:
    """How many resamples are drawn: a thousand, and fewer where there are so many targets that it would take long."""
    return int(np.clip(50_000_000 // max(targets, 1), 200, 1000))


def intervals(
    task: Task, outputs: Tensor, targets: Tensor, *, counts: Array | None = None
) -> dict[str, tuple[float, float]]:
    """The interval that holds each metric in `LEVEL` of the resamples: as many series, drawn with replacement.

    A resample is a weight a series, how often it was drawn, so that scores are sorted once and not a thousand times.
    Resamples without a value (of one class only) do not count.

    Parameters
    ----------
    task, outputs, targets
        Of the test series.
    counts
        How many targets each series has, where it is not one: a series is drawn as a whole.
    """
    metrics = weighted_metrics(task, outputs, targets)
    generator = np.random.default_rng(SEED)
    series = len(targets) if counts is None else len(counts)
    of_target = slice(None) if counts is None else np.repeat(np.arange(series), counts)
    found: dict[str, list[Array]] = {name: [] for name in metrics}
    at_once = max(1, CELLS_AT_ONCE // max(len(targets), 1))
    number = resamples(len(targets))
    for start in range(0, number, at_once):
        draws = [generator.integers(series, size=series) for _ in range(min(at_once, number - start))]
        weights = np.stack([np.bincount(draw, minlength=series) for draw in draws]).astype(float)
        with np.errstate(divide="ignore", invalid="ignore"):
            for name, metric in metrics.items():
                found[name].append(metric(weights[:, of_target]))
    tail = 50 * (1 - LEVEL)
    result = {}
    for name, parts in found.items():
        values = np.concatenate(parts)
        values = values[np.isfinite(values)]
        if len(values):
            low, high = np.percentile(values, [tail, 100 - tail])
            result[name] = (float(low), float(high))
    return result


def weighted_metrics(task: Task, outputs: Tensor, targets: Tensor) -> dict[str, Metric]:
    """The task's metrics as functions of the weights of the targets; with weights of one they are `task.metrics`."""
    truth = targets.double().cpu().numpy()
    if isinstance(task, RegressionTask):
        scales = np.asarray(task.scales)
        return _of_numbers(outputs.detach().double().cpu().numpy() * scales, truth * scales)
    p: Array = task.probabilities(outputs)  # type: ignore[attr-defined]
    if isinstance(task, BinaryTask | MulticlassTask):
        known = ~np.isnan(truth)
        place = np.nan_to_num(truth).astype(int)
        least = np.finfo(float).eps
        of_truth = np.clip(p[np.arange(len(p)), place], least, 1 - least)
        right = (p[:, 1] > 0.5) == place if isinstance(task, BinaryTask) else p.argmax(1) == place
        metrics: dict[str, Metric] = {
            "accuracy": lambda w: _mean(w, right, known),
            "log_loss": lambda w: _mean(w, -np.log(of_truth), known),
        }
        if isinstance(task, BinaryTask):
            return metrics | _of_scores(p[:, 1], truth)
        return metrics | {"balanced_accuracy": lambda w: _balanced(w * known, right, place, len(task.classes))}
    labels = [_of_scores(p[:, k], truth[:, k])["auroc"] for k in range(truth.shape[1])]
    known = ~np.isnan(truth)
    right = (p > 0.5) == (truth > 0.5)
    return {
        "auroc": lambda w: _mean_of_known(np.stack([label(w) for label in labels])),
        "accuracy": lambda w: (w @ (right & known).sum(1)) / (w @ known.sum(1)),
    }


def _mean(weights: Array, values: Array, known: Array) -> Array:
    mean: Array = (weights @ np.where(known, values, 0.0)) / (weights @ known.astype(float))
    return mean


def _mean_of_known(values: Array) -> Array:
    """Over the first axis; NaN where there is none."""
    known = np.isfinite(values)
    mean: Array = np.where(known, values, 0.0).sum(0) / known.sum(0)
    return mean


def _balanced(weights: Array, right: Array, place: Array, classes: int) -> Array:
    recalls = []
    for k in range(classes):
        there = weights[:, place == k]
        recalls.append(there @ right[place == k] / there.sum(1))
    return _mean_of_known(np.stack(recalls))


def _of_scores(scores: Array, truth: Array) -> dict[str, Metric]:
    """Area under the ROC curve and average precision; equal scores are one step of the curves."""
    order = np.argsort(-scores, kind="stable")
    order = order[~np.isnan(truth[order])]
    positive = truth[order] > 0.5
    starts = np.flatnonzero(np.r_[True, np.diff(scores[order]) != 0]) if len(order) else np.zeros(0, dtype=int)

    def steps(weights: Array) -> tuple[Array, Array]:
        """Positives and negatives at every step, from the highest score down."""
        drawn = weights[:, order]
        if not len(starts):
            return drawn, drawn
        return np.add.reduceat(drawn * positive, starts, axis=1), np.add.reduceat(drawn * ~positive, starts, axis=1)

    def auroc(weights: Array) -> Array:
        yes, no = steps(weights)
        below = no.sum(1, keepdims=True) - no.cumsum(1) + no / 2
        area: Array = (yes * below).sum(1) / (yes.sum(1) * no.sum(1))
        return area

    def average_precision(weights: Array) -> Array:
        yes, no = steps(weights)
        found = yes.cumsum(1)
        precision = found / np.maximum(found + no.cumsum(1), 1e-300)
        average: Array = (yes * precision).sum(1) / yes.sum(1)
        return np.where(no.sum(1) > 0, average, np.nan)

    return {"auroc": auroc, "average_precision": average_precision}


def _of_numbers(found: Array, truth: Array) -> dict[str, Metric]:
    known = ~np.isnan(truth)
    error = np.where(known, found - truth, 0.0)
    middle = np.where(known, truth, 0.0).sum(0) / np.maximum(known.sum(0), 1)
    centred = np.where(known, truth - middle, 0.0)  # sums of squares of large numbers lose digits

    def mean(weights: Array, values: Array) -> Array:
        share: Array = (weights @ values) / (weights @ known.astype(float))
        return share

    def r2(weights: Array) -> Array:
        spread = mean(weights, centred**2) - mean(weights, centred) ** 2
        explained: Array = (1 - mean(weights, error**2) / spread).mean(1)
        return explained

    return {
        "r2": r2,
        "rmse": lambda w: np.sqrt(mean(w, error**2)).mean(1),
        "mae": lambda w: mean(w, np.abs(error)).mean(1),
    }
