"""Small fitted runs of every kind of task, saved in folders that a report can be made from."""

from pathlib import Path

import numpy as np

import neuralcde as nc
from neuralcde.report import record_run

SMALL = {"max_epochs": 2, "hidden": 4, "width": 4, "random_state": 0}
NASTY = '<script>alert("x")</script> & $x^2$ -->'


def series_of(count, *, channels=("pulse", NASTY), seed=0):
    """Series of 2 to 9 rows with missing values, two static features, and names that contain HTML."""
    rng = np.random.default_rng(seed)
    pairs = []
    for k in range(count):
        times = np.sort(rng.uniform(0, 10, 2 + k % 8))
        values = np.sin(times)[:, None] * (1 + np.arange(len(channels))) * (1 + k % 3) + rng.normal(
            0, 0.1, (len(times), len(channels))
        )
        values[rng.random(values.shape) < 0.3] = np.nan
        pairs.append((times, values))
    static = np.stack([np.arange(count) % 50 + 20.0, np.where(np.arange(count) % 4 == 0, np.nan, 1.0)], 1)
    return nc.IrregularSeries.from_list(
        pairs,
        ids=[f"<b>{k}</b>" for k in range(count)],
        channels=list(channels),
        static=static,
        static_names=["age", "unit"],
    )


def targets_of(kind, series):
    """Targets of one kind; for "rows", one array per series."""
    place = np.arange(len(series))
    if kind == "binary":
        return np.where(place % 3 == 0, NASTY, "well")
    if kind == "multiclass":
        return np.array(["low", NASTY, "high"])[place % 3]
    if kind == "labels":
        return np.stack([place % 2, place % 3 == 0], 1).astype(int)
    if kind == "regression":
        return (place % 3) + 0.01 * place
    if kind == "targets":
        return np.stack([place % 3, 1e6 * (place % 2)], 1).astype(float)
    rows = np.empty(len(series), dtype=object)
    rows[:] = [(np.arange(n) > n // 2).astype(float) for n in series.lengths.tolist()]
    return rows


def fitted(kind, folder, *, count=60, **options):
    """Fit, save and record a run; returns the estimator, the series and the positions of the test series."""
    series = options.pop("series", None) or series_of(count)
    targets = targets_of(kind, series)
    test = np.arange(0, len(series), 4)
    training = np.setdiff1d(np.arange(len(series)), test)
    regression = kind in ("regression", "targets")
    options = SMALL | options | ({"per_row": True} if kind == "rows" else {})
    estimator = (nc.NeuralCDERegressor if regression else nc.NeuralCDEClassifier)(**options)
    y = targets[training]
    estimator.fit(series[training], list(y) if kind == "rows" else y)
    Path(folder).mkdir(exist_ok=True)
    estimator.save(folder)
    record_run(folder, estimator, series, targets, test=test)
    return estimator, series, test
