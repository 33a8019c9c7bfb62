"""Data in a few numbers, whatever their size."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..series import IrregularSeries
from ..series.tables import static_columns
from ..tasks import BinaryTask, MulticlassTask, Task

QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
BINS = 30
WIDE = 50.0  # a range of which the largest is so many times the smallest is drawn on a logarithmic axis


def summary_of_series(series: IrregularSeries) -> dict[str, Any]:
    """How many, how long, how far apart, how much of it is missing."""
    lengths = series.lengths.numpy()
    inside = np.ones(max(len(series.times) - 1, 0), dtype=bool)
    inside[series.offsets[1:-1].numpy() - 1] = False  # from the end of a series to the start of the next one
    gaps = series.times.diff().numpy()[inside]
    observed = [int((~series.values[:, k].isnan()).sum()) for k in range(series.channels)]
    return {
        "rows": len(series.times),
        "values": sum(observed),
        "lengths": distribution(lengths),
        "gaps": distribution(gaps) if len(gaps) else None,
        "channels": [
            {"name": name, "missing": 1 - count / len(series.times)}
            for name, count in zip(series.channel_names, observed, strict=True)
        ],
        "static": [
            {"name": name, "missing": float(np.mean([item is None or item != item for item in column.tolist()]))}
            for name, column in static_columns(series.static.numpy(), series.format)
        ],
    }


def summary_of_targets(task: Task, training: NDArray[Any], test: NDArray[Any]) -> dict[str, Any]:
    """How often each class or label is there; quantiles of numbers."""
    parts = {"training": task.encode(training), "test": task.encode(test)}
    if isinstance(task, BinaryTask | MulticlassTask):
        places = range(len(task.classes))
        return {name: [int((part == k).sum()) for k in places] for name, part in parts.items()}
    if task.kind == "multilabel":
        return {name: (part == 1).sum(0).tolist() for name, part in parts.items()}
    numbers = {"training": training, "test": test}
    return {
        name: [_quantiles(column) for column in np.asarray(part, dtype=float).reshape(len(part), -1).T]
        for name, part in numbers.items()
    }


def distribution(numbers: NDArray[Any]) -> dict[str, Any]:
    """Quantiles and a histogram; on a logarithmic axis where numbers are positive and differ widely."""
    low, high = float(numbers.min()), float(numbers.max())
    logarithmic = False
    if numbers.dtype.kind in "iu":
        width = -(-(high - low + 1) // BINS)  # so that every bar stands for as many whole numbers
        edges = np.arange(low, high + width + 1, width) - 0.5
    elif low == high:
        margin = abs(low) * 0.05 or 0.5
        edges = np.array([low - margin, low + margin])
    elif low > 0 and high > WIDE * low:
        logarithmic = True
        edges = np.geomspace(low, high, BINS + 1)
        edges[[0, -1]] = low, high
    else:
        edges = np.linspace(low, high, BINS + 1)
    counts, _ = np.histogram(numbers, edges)
    return {
        "quantiles": _quantiles(numbers),
        "edges": edges.tolist(),
        "counts": counts.tolist(),
        "logarithmic": logarithmic,
    }


def _quantiles(numbers: NDArray[Any]) -> list[float]:
    known = numbers[~np.isnan(numbers)]
    return np.quantile(known, QUANTILES).tolist() if len(known) else []
