"""What stands beside table 3 without being a run of the harness: gradient boosting, and the ensemble of our runs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier

import neuralcde as nc

from ..contestants import Job
from ..experiment import Experiment, Run
from ..lines import Line
from ..runs import outputs_file, table_runs

OURS = "ours"


def boosting(experiment: Experiment, data: Path, column: str, seed: int) -> dict[str, Line]:
    """Gradient boosting on statistics of every coefficient; it stops early on the validation clips."""
    settings = experiment.settings("neural_cde", column=column)
    parts = experiment.prepare(data, Run("neural_cde", column, seed, settings))
    tables = [(statistics_of(part.series), _targets(part)) for part in (parts.training, parts.validation, parts.test)]
    (X, y), (X_val, y_val), (X_test, y_test) = tables
    trees = HistGradientBoostingClassifier(
        learning_rate=0.1, max_iter=300, l2_regularization=1.0, early_stopping=True, random_state=seed
    )
    start = time.perf_counter()
    trees.fit(X, y, X_val=X_val, y_val=y_val)
    seconds = round(time.perf_counter() - start, 2)
    score = float((trees.predict(X_test) == y_test).mean())
    return {"boosting": {"test_accuracy": score, "test_series": len(y_test), "fit_seconds": seconds}}


def statistics_of(series: nc.IrregularSeries) -> NDArray[np.float32]:
    """Mean, deviation, minimum, maximum, first and last value of every coefficient, and of its changes; in halves, too.

    The halves of a clip tell what comes first.
    """
    data = [k for k, role in enumerate(series.roles) if role == "data"]
    frames = series.values[:, data].reshape(len(series), -1, len(data)).numpy()
    middle = frames.shape[1] // 2
    columns = []
    for part in (frames, frames[:, :middle], frames[:, middle:], np.diff(frames, axis=1)):
        columns += [part.mean(1), part.std(1), part.min(1), part.max(1), part[:, 0], part[:, -1]]
    return np.concatenate(columns, axis=1).astype(np.float32)


def ensemble(experiment: Experiment, data: Path, column: str, seed: int) -> dict[str, Line]:
    """The mean of the log-probabilities of all runs of ours; the seed makes no difference.

    Raises
    ------
    RuntimeError
        If a run is not done yet.
    """
    runs = [run for run in table_runs(experiment, [OURS], None, None) if run.column == column]
    files = [outputs_file(experiment, run) for run in runs]
    missing = [file for file in files if file is None or not file.exists()]
    if missing:
        raise RuntimeError(f"there is no {missing[0]}; run: python -m experiments {experiment.name} --model {OURS}")
    odds = []
    for file in files:
        assert file is not None
        with np.load(file) as kept:
            odds.append(torch.from_numpy(kept["test"]).log_softmax(-1))
    parts = experiment.prepare(data, runs[0])
    metrics = parts.task.metrics(torch.stack(odds).mean(0), parts.test.targets)  # type: ignore[arg-type]
    return {"ensemble": {"test_accuracy": metrics["accuracy"], "test_series": len(parts.test), "members": len(runs)}}


def _targets(part: nc.PathDataset) -> NDArray[Any]:
    assert part.targets is not None
    return part.targets.numpy()


JOBS = {"boosting": Job(("boosting",), boosting), "ensemble": Job(("ensemble",), ensemble)}
