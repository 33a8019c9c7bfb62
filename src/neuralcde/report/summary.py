"""Summary statistics of a data set."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..series import IrregularSeries
from ..series.tables import static_columns
from ..tasks import QUANTILES

BINS = 30
WIDE = 50.0  # ratio of the largest to the smallest number above which bins are logarithmic


def summary_of_series(series: IrregularSeries) -> dict[str, Any]:
    """Counts, lengths of series, gaps between rows, and fractions of missing values."""
    lengths = series.lengths.numpy()
    inside = np.ones(max(len(series.times) - 1, 0), dtype=bool)
    inside[series.offsets[1:-1].numpy() - 1] = False  # differences across the boundary of two series are not gaps
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


def distribution(numbers: NDArray[Any]) -> dict[str, Any]:
    """Quantiles and a histogram; its bins are logarithmic if the numbers are positive and vary widely."""
    low, high = float(numbers.min()), float(numbers.max())
    logarithmic = False
    if numbers.dtype.kind in "iu":
        width = -(-(high - low + 1) // BINS)  # every bin covers the same number of integers
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
        "quantiles": np.quantile(numbers, QUANTILES).tolist(),
        "edges": edges.tolist(),
        "counts": counts.tolist(),
        "logarithmic": logarithmic,
    }
