"""CharacterTrajectories: dropped rows, splits, scaling, paths."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.data import Letters, read_letters
from numpy.typing import NDArray

import neuralcde as nc
from neuralcde.tasks import classification_task

from ..experiment import Parts, Settings
from ..models import make_path
from ..splits import split_positions


def prepare(config: dict[str, Any], folder: Path, column: float, settings: Settings) -> Parts:
    """Letters without a share `column` of their observations, split and scaled, as paths."""
    letters = read_letters(folder, config["published"])
    padded = settings["data"].get("padded", False)
    strokes = pad(letters.strokes, config["published"]["longest"]) if padded else letters.strokes
    series = drop(strokes, column, seed=settings["data"]["drop_seed"])
    split = split_positions(letters.labels, settings["data"])
    task = classification_task(letters.labels)
    targets = task.encode(letters.labels)
    scaler = nc.SeriesScaler(scale=settings["path"]["scale"]).fit(series[split.training])
    path = make_path(scaler.transform(series).with_channels(), settings)
    training, validation, test = (nc.PathDataset(path[part], targets[part]) for part in split)
    return Parts(digest(letters), task, training, validation, test)


def digest(letters: Letters) -> str:
    """Hash that identifies the source of the data: the sources have the letters in different orders."""
    lengths = [len(stroke) for stroke in letters.strokes]
    return hashlib.sha256(repr((letters.labels.tolist(), lengths)).encode()).hexdigest()[:12]


def pad(strokes: list[NDArray[np.float32]], rows: int) -> list[NDArray[np.float32]]:
    """Pad every series to `rows` rows by repeating its last row, as in the paper's released code."""
    return [np.pad(stroke, ((0, rows - len(stroke)), (0, 0)), mode="edge") for stroke in strokes]


def drop(strokes: list[NDArray[np.float32]], share: float, *, seed: int) -> nc.IrregularSeries:
    """Drop a random fraction `share` of the rows of every series; rows dropped at 30 % are also dropped at 50 %."""
    generator, pairs = np.random.default_rng(seed), []
    for stroke in strokes:
        order = generator.permutation(len(stroke))
        kept = np.sort(order[round(share * len(stroke)) :])
        pairs.append((kept.astype(np.float64), stroke[kept]))
    return nc.IrregularSeries.from_list(pairs, channels=["x", "y", "force"])
