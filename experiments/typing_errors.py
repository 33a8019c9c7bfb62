"""What typing errors do to predictions: one observed value in a thousand is multiplied by a thousand.

`python -m experiments.typing_errors` trains the default classifier on made-up ICU stays, and on 6,000 sepsis stays if
the data set is there. It prints the AUROC on test series without and with the errors, how far a single probability
moves, and how many series get a probability beyond 0.999 by an error.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from benchmarks.data import SEPSIS, folder, read_sepsis
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split

import neuralcde as nc

from .defaults_data import Data, stays
from .tables import Table

SHARE, FACTOR, SEPSIS_STAYS, CERTAIN = 1e-3, 1000.0, 6000, 0.999


def with_errors(series: nc.IrregularSeries, seed: int = 0) -> nc.IrregularSeries:
    """The series with `SHARE` of the observed values, and at least one, multiplied by `FACTOR`."""
    values = series.values.clone()
    row, channel = (~values.isnan()).nonzero(as_tuple=True)
    count = max(1, round(SHARE * len(row)))
    wrong = torch.from_numpy(np.random.default_rng(seed).choice(len(row), size=count, replace=False))
    values[row[wrong], channel[wrong]] *= FACTOR
    return dataclasses.replace(series, values=values)


def measured(data: Data, **options: Any) -> dict[str, float]:
    """AUROC without and with errors, and what the errors do to single probabilities."""
    training, test = train_test_split(np.arange(len(data.labels)), test_size=0.3, random_state=0, stratify=data.labels)
    model = nc.NeuralCDEClassifier(random_state=0, **options).fit(data.series[training], data.labels[training])
    clean = data.series[test]
    before, after = (model.predict_proba(part)[:, 1] for part in (clean, with_errors(clean)))
    positive = data.labels[test] == model.classes_[1]
    return {
        "AUROC": float(roc_auc_score(positive, before)),
        "AUROC with errors": float(roc_auc_score(positive, after)),
        "largest change": float(np.abs(after - before).max()),
        "largest probability": float(before.max()),
        "largest probability with errors": float(after.max()),
        "driven beyond 0.999": int((certain(after) & ~certain(before)).sum()),
    }


def certain(probabilities: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which cases are all but decided, either way."""
    return np.maximum(probabilities, 1 - probabilities) > CERTAIN


def data_sets() -> Iterator[tuple[str, Data]]:
    """The made-up stays, and the sepsis stays if they are there."""
    yield "made-up stays", stays()
    found = read_sepsis(72)
    if found is None:
        print(f"sepsis is skipped: there is no {SEPSIS} in {folder()}; set NEURALCDE_DATA to the folder that has it.")
        return
    kept: NDArray[Any] = np.flatnonzero(found.in_paper)
    chosen = np.sort(np.random.default_rng(0).choice(kept, size=min(SEPSIS_STAYS, len(kept)), replace=False))
    yield "sepsis", Data(found.series[chosen], found.in_72_hours[chosen], "roc_auc")


def table(results: dict[str, dict[str, float]]) -> Table:
    """One row per data set."""
    names = list(next(iter(results.values())))
    rows = [[name, *(_text(found[column]) for column in names)] for name, found in results.items()]
    return Table("Test series with one observed value in 1,000 multiplied by 1,000", ["data", *names], rows)


def _text(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.4f}"


if __name__ == "__main__":
    print(table({name: measured(data) for name, data in data_sets()}).markdown())
