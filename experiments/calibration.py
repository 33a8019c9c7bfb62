"""What calibration changes: log-loss and Brier score on test series, before and after.

`python -m experiments.calibration [--stays 5000] [--splits 3] [--methods isotonic temperature]` trains the default
classifier on made-up ICU stays, and on sepsis stays if the data set is there, with every method of `calibrate`. Each
split trains on 70 % of the stays. The program prints the log-loss on the other 30 % by the uncalibrated and by the
calibrated probabilities, and their mean difference; its standard error is over the stays that were tested, each with
the mean over the splits in which it was.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import numpy as np
from benchmarks.data import SEPSIS, folder, read_sepsis
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split

import neuralcde as nc

from .defaults_data import Data, stays
from .tables import Table

COLUMNS = ("log-loss", "calibrated", "difference", "standard error", "Brier score", "calibrated Brier score")


def measured(data: Data, method: str, splits: int = 1, **options: Any) -> list[float]:
    """The numbers of `COLUMNS`; the options are those of the classifier."""
    before, after = (np.full((splits, len(data.labels), 2), np.nan) for _ in range(2))
    for split in range(splits):
        training, test = train_test_split(
            np.arange(len(data.labels)), test_size=0.3, random_state=split, stratify=data.labels
        )
        model = nc.NeuralCDEClassifier(random_state=split, calibrate=method, **options)
        model.fit(data.series[training], data.labels[training])
        outputs, y = model.outputs(data.series[test]), model.task_.encode(data.labels[test]).numpy()
        for part, found in ((outputs, before), (model.calibrated(outputs), after)):
            found[split, test] = losses(model.task_.probabilities(part)[:, 1], y)
        if splits > 1:
            change = (after - before)[split, test, 0].mean()
            print(f"{method}, split {split}: the log-loss changes by {change:+.5f}", flush=True)
    tested = np.flatnonzero(~np.isnan(before[:, :, 0]).all(0))
    old, new = (np.nanmean(part[:, tested], axis=0) for part in (before, after))
    difference = (new - old)[:, 0]
    error = float(difference.std() / np.sqrt(len(difference)))
    loss, brier = old.mean(0)
    calibrated_loss, calibrated_brier = new.mean(0)
    return [*map(float, (loss, calibrated_loss, difference.mean(), error, brier, calibrated_brier))]


def losses(p: NDArray[Any], y: NDArray[Any]) -> NDArray[Any]:
    """Log-loss and squared error of the probability of each positive or negative."""
    return np.stack([-np.log(np.where(y == 1, p, 1 - p)), (p - y) ** 2], axis=-1)


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
    parser.add_argument("--stays", type=int, default=5000)
    parser.add_argument("--splits", type=int, default=1)
    parser.add_argument("--methods", nargs="+", default=["isotonic", "temperature"])
    parser.add_argument("--data", nargs="+", default=["made-up stays", "sepsis"])
    given = parser.parse_args()
    rows = []
    for name, data in data_sets(given.stays):
        for method in given.methods if name in given.data else ():
            rows.append([name, method, *(f"{number:.5f}" for number in measured(data, method, given.splits))])
            print(rows[-1], flush=True)
    print(Table("Log-loss before and after calibration", ["data", "method", *COLUMNS], rows).markdown())


if __name__ == "__main__":
    main()
