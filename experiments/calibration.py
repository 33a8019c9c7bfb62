"""What calibration changes: log-loss and Brier score on test series, before and after.

`python -m experiments.calibration [--stays 6000] [--methods isotonic temperature]` trains the default classifier on
made-up ICU stays, and on sepsis stays if the data set is there, 70 % of each, with every method of `calibrate`. It
prints the log-loss on the other 30 % by the uncalibrated and by the calibrated probabilities, their mean difference
with its standard error over the test series, and the Brier scores.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import numpy as np
from benchmarks.data import SEPSIS, folder, read_sepsis
from sklearn.model_selection import train_test_split

import neuralcde as nc

from .defaults_data import Data, stays
from .tables import Table

COLUMNS = ("log-loss", "calibrated", "difference", "standard error", "Brier score", "calibrated Brier score")


def measured(data: Data, method: str, **options: Any) -> list[float]:
    """The numbers of `COLUMNS`; the options are those of the classifier."""
    training, test = train_test_split(np.arange(len(data.labels)), test_size=0.3, random_state=0, stratify=data.labels)
    model = nc.NeuralCDEClassifier(random_state=0, calibrate=method, **options)
    model.fit(data.series[training], data.labels[training])
    outputs, truth = model.outputs(data.series[test]), model.task_.encode(data.labels[test])
    both = [model.task_.probabilities(part)[:, 1] for part in (outputs, model.calibrated(outputs))]
    y = truth.numpy()
    loss = [-np.log(np.where(y == 1, p, 1 - p)) for p in both]
    difference = loss[1] - loss[0]
    brier = [float(np.mean((p - y) ** 2)) for p in both]
    error = float(difference.std() / np.sqrt(len(difference)))
    return [float(loss[0].mean()), float(loss[1].mean()), float(difference.mean()), error, *brier]


def data_sets(count: int) -> Iterator[tuple[str, Data]]:
    """The made-up stays, and so many sepsis stays if they are there."""
    yield "made-up stays", stays()
    found = read_sepsis(72)
    if found is None:
        print(f"sepsis is skipped: there is no {SEPSIS} in {folder()}; set NEURALCDE_DATA to the folder that has it.")
        return
    kept = np.flatnonzero(found.in_paper)
    chosen = np.sort(np.random.default_rng(0).choice(kept, size=min(count, len(kept)), replace=False))
    yield "sepsis", Data(found.series[chosen], found.in_72_hours[chosen], "roc_auc")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--stays", type=int, default=6000)
    parser.add_argument("--methods", nargs="+", default=["isotonic", "temperature"])
    parser.add_argument("--data", nargs="+", default=["made-up stays", "sepsis"])
    given = parser.parse_args()
    rows = []
    for name, data in data_sets(given.stays):
        for method in given.methods if name in given.data else ():
            rows.append([name, method, *(f"{number:.5f}" for number in measured(data, method))])
            print(rows[-1], flush=True)
    print(Table("Log-loss before and after calibration", ["data", "method", *COLUMNS], rows).markdown())


if __name__ == "__main__":
    main()
