"""The baseline: gradient boosting on summary statistics of the series, on the same data and the same split."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier

import neuralcde as nc
from neuralcde.tasks import Task

from .experiment import Experiment, Run
from .lines import Lines
from .provenance import provenance


def measure_baseline(experiment: Experiment, data: Path) -> None:
    """Write one line of results per configured column."""
    config = experiment.config
    with Lines(experiment.file("baseline")) as lines:
        for column in config["baseline"]["columns"]:
            run = Run("baseline", column, 0, config["settings"])
            parts = experiment.prepare(data, run)
            start = time.perf_counter()
            model = HistGradientBoostingClassifier(random_state=0)
            model.fit(statistics_of(parts.training), parts.training.targets.numpy())  # type: ignore[union-attr]
            outputs = torch.from_numpy(np.log(model.predict_proba(statistics_of(parts.test)).clip(1e-12)))
            score = _score(parts.task, outputs, parts.test, config["metric"])
            line = {config["column"]: column, f"test_{config['metric']}": score, "test_series": len(parts.test)}
            lines.append({**line, "seconds": round(time.perf_counter() - start, 2), **provenance()})
            print(f"gradient boosting, {config['column']} {column}: {score:.4f}", flush=True)


def statistics_of(data: nc.PathDataset) -> NDArray[np.float64]:
    """Features of each series: statistics of every data channel, number of rows, and duration.

    The statistics are mean, standard deviation, minimum, maximum, first and last value, and mean and standard deviation
    of the differences between consecutive rows.
    """
    rows = []
    for series in data.series:
        measured = [k for k, role in enumerate(series.roles) if role == "data"]
        values = series.values[:, measured].double().numpy()
        changes = np.diff(values, axis=0) if len(values) > 1 else np.zeros_like(values)
        columns = [values.mean(0), values.std(0), values.min(0), values.max(0), values[0], values[-1]]
        columns += [changes.mean(0), changes.std(0), [len(values), float(series.times[-1] - series.times[0])]]
        rows.append(np.concatenate(columns))
    return np.asarray(rows)


def _score(task: Task, outputs: torch.Tensor, test: nc.PathDataset, metric: str) -> float:
    assert test.targets is not None
    return task.metrics(outputs, test.targets)[metric]
