"""Bootstrap confidence intervals of test metrics, with series as the unit of resampling."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..tasks import Task

Array = NDArray[Any]
LEVEL = 0.95
CELLS_AT_ONCE = 4_000_000
SEED = 0


def resamples(targets: int) -> int:
    """Number of bootstrap resamples: 1000, or fewer (at least 200) if there are so many targets that it takes long."""
    return int(np.clip(50_000_000 // max(targets, 1), 200, 1000))


def resampled(task: Task, outputs: Tensor, targets: Tensor, *, counts: Array | None = None) -> dict[str, Array]:
    """The metrics of bootstrap resamples of the test series, one value per resample; NaN where a metric is undefined.

    A resample draws as many series as there are, with replacement. It is represented by weights: the number of times
    each series was drawn. The draws depend on the number of series alone, so that two models are compared on the same
    resamples.

    Parameters
    ----------
    task
        The task that defines the metrics.
    outputs, targets
        Raw outputs and encoded targets of the test series.
    counts
        Number of targets per series; None if each series has one. A series is drawn together with all its targets.
    """
    generator = np.random.default_rng(SEED)
    series = len(targets) if counts is None else len(counts)
    of_target = slice(None) if counts is None else np.repeat(np.arange(series), counts)
    found: dict[str, list[Array]] = {}
    at_once = max(1, CELLS_AT_ONCE // max(len(targets), 1))
    number = resamples(len(targets))
    for start in range(0, number, at_once):
        draws = [generator.integers(series, size=series) for _ in range(min(at_once, number - start))]
        weights = np.stack([np.bincount(draw, minlength=series) for draw in draws]).astype(float)
        with np.errstate(divide="ignore", invalid="ignore"):
            for name, values in task.resampled_metrics(outputs, targets, weights[:, of_target]).items():
                found.setdefault(name, []).append(values)
    return {name: np.concatenate(parts) for name, parts in found.items()}


def differences(found: Mapping[str, Array], others: Mapping[str, Array]) -> dict[str, Array]:
    """Resampled metrics minus those of another model on the same resamples; not finite where either is not."""
    with np.errstate(invalid="ignore"):
        return {name: values - others[name] for name, values in found.items() if name in others}


def percentile_intervals(found: Mapping[str, Array]) -> dict[str, tuple[float, float]]:
    """Percentile intervals at `LEVEL` of resampled metrics; none for a metric that is undefined in all resamples."""
    tail = 50 * (1 - LEVEL)
    result = {}
    for name, values in found.items():
        finite = values[np.isfinite(values)]
        if len(finite):
            low, high = np.percentile(finite, [tail, 100 - tail])
            result[name] = (float(low), float(high))
    return result


def intervals(
    task: Task, outputs: Tensor, targets: Tensor, *, counts: Array | None = None
) -> dict[str, tuple[float, float]]:
    """Percentile intervals at `LEVEL` of each metric over bootstrap resamples of the test series.

    The parameters are those of `resampled`.
    """
    return percentile_intervals(resampled(task, outputs, targets, counts=counts))
