"""The data sets on which the estimators' defaults are compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from benchmarks.data import PBC2, SPEECH, folder, read_letters, read_pbc2, read_speech
from benchmarks.speech import HOP, RATE, mfcc
from numpy.typing import NDArray

import neuralcde as nc
from neuralcde.datasets import icu_table

from . import against_boosting
from .character_trajectories.run import drop
from .experiment import Experiment
from .splits import split_positions


class Data(NamedTuple):
    """Series, their labels, scikit-learn's name of the score, groups to keep in one fold, number of folds."""

    series: nc.IrregularSeries
    labels: NDArray[Any]
    score: str
    groups: NDArray[Any] | None = None
    folds: int = 3


def letters() -> Data:
    """CharacterTrajectories with half of the observations dropped, without the test series of table 1."""
    experiment = Experiment.find("character_trajectories")
    found = read_letters(folder(), experiment.config["published"])
    data = experiment.config["settings"]["data"]
    split = split_positions(found.labels, data)
    pool = np.sort(np.concatenate([split.training, split.validation]))
    return Data(drop(found.strokes, 0.5, seed=data["drop_seed"])[pool], found.labels[pool], "accuracy")


def stays(count: int = 1500) -> Data:
    """Synthetic ICU stays, generated like those of the demo with another seed."""
    frame = icu_table(count, seed=100)
    series = nc.IrregularSeries.from_long(frame.drop("outcome"), id="stay", time="hour", static=["age"])
    outcome = dict(zip(frame["stay"], frame["outcome"], strict=True))
    return Data(series, np.array([outcome[stay] for stay in series.ids.tolist()]), "roc_auc")


def sepsis_cases() -> Data:
    """800 stays of PhysioNet 2019 with sepsis in the first 72 hours and 2200 without, those hours alone.

    None of them is a test stay of `experiments.against_boosting`.
    """
    series, labels = against_boosting.stays()
    pool, rng = against_boosting.in_no_test(labels), np.random.default_rng(0)
    chosen = [rng.choice(pool[labels[pool] == k], size=n, replace=False) for k, n in ((1, 800), (0, 2200))]
    positions = np.sort(np.concatenate(chosen))
    return Data(series[positions], labels[positions], "roc_auc")


def speech(count: int = 1500) -> Data:
    """Clips of ten spoken words as 20 MFCC every 20 ms; all clips of a speaker are in one fold."""
    audio, words, speakers = _found(read_speech(), SPEECH)
    chosen = np.sort(np.random.default_rng(0).choice(len(words), size=min(count, len(words)), replace=False))
    values = mfcc(torch.from_numpy(audio[chosen]))
    times = torch.arange(values.shape[1], dtype=torch.float64) * HOP / RATE
    return Data(nc.IrregularSeries.from_padded(values, times), words[chosen], "accuracy", speakers[chosen])


def cirrhosis() -> Data:
    """PBC2: visits in the first two years of patients who were still followed up then; the target is death later.

    A patient who was transplanted later, or whose follow-up ended, counts as not known to have died.
    """
    series, died = _found(read_pbc2(landmark=2.0), PBC2)
    return Data(series, died, "roc_auc", folds=5)


# Centre of the bump of each of three channels, per class, on a clock from 0 to 10.
CENTRES = (
    *((2.5, 5.0, 7.5), (2.5, 7.5, 5.0), (5.0, 2.5, 7.5), (5.0, 7.5, 2.5), (7.5, 2.5, 5.0), (7.5, 5.0, 2.5)),
    *((2.5, 2.5, 7.5), (7.5, 7.5, 2.5), (5.0, 5.0, 5.0), (2.5, 7.5, 2.5)),
)


def short_series(count: int = 300, seed: int = 0) -> Data:
    """Made-up series of 8 to 20 rows in ten classes, which differ by the order and the timing of three bumps.

    Times are irregular, a tenth of the values is missing, and a bump varies in height, width and time.
    """
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(count) % len(CENTRES))
    pairs = []
    for label in labels:
        times = rng.uniform(0.4, 1.6, rng.integers(8, 21)).cumsum()
        times *= 10 / times[-1]
        centres = np.array(CENTRES[label]) + rng.uniform(-0.5, 0.5) + rng.normal(0, 0.35, 3)
        heights, widths = rng.uniform(0.8, 1.4, 3), rng.uniform(0.9, 1.4, 3)
        values = heights * np.exp(-(((times[:, None] - centres) / widths) ** 2)) + rng.normal(0, 0.15, (len(times), 3))
        pairs.append((times, np.where(rng.random(values.shape) < 0.1, np.nan, values)))
    return Data(nc.IrregularSeries.from_list(pairs), labels, "accuracy", folds=5)


DATA: dict[str, Callable[[], Data]] = {
    "letters": letters,
    "stays": stays,
    "sepsis": sepsis_cases,
    "speech": speech,
    "pbc2": cirrhosis,
    "short": short_series,
}


def _found(data: Any, file: str) -> Any:
    if data is None:
        raise FileNotFoundError(f"there is no {file} in {folder()}; set NEURALCDE_DATA to the folder that has it.")
    return data
