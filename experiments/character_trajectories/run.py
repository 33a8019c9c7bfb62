"""CharacterTrajectories: reading, dropping, scaling."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import neuralcde as nc
from neuralcde.tasks import classification_task

from ..experiment import Parts, Settings
from ..models import make_path
from ..splits import split_positions
from ..uea import read_ts

PACK = "character_trajectories.npz"
ARCHIVE = ("CharacterTrajectories_TRAIN.ts", "CharacterTrajectories_TEST.ts")


class Letters(NamedTuple):
    """All letters: their strokes (rows, channels), and which letter each is."""

    strokes: list[NDArray[np.float32]]
    labels: NDArray[Any]


def prepare(config: dict[str, Any], folder: Path, column: float, settings: Settings) -> Parts:
    """Letters without a share `column` of their observations, split and scaled, as paths."""
    letters = read(folder, config["published"])
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


def read(folder: Path, published: dict[str, int]) -> Letters:
    """All letters, from our pack or from the archive's two files; both halves of the archive are pooled.

    Raises
    ------
    FileNotFoundError
        Where there is neither; it says what to download.
    ValueError
        Where the data are not those that were published.
    """
    if (folder / PACK).exists():
        with np.load(folder / PACK, allow_pickle=False) as pack:
            strokes = [block[:length] for block, length in zip(pack["X"], pack["length"], strict=True)]
            letters = Letters(strokes, pack["classes"][pack["y"]])
    else:
        halves = [read_ts(_archive_file(folder, name)) for name in ARCHIVE]
        letters = Letters([x for half in halves for x in half[0]], np.array([y for half in halves for y in half[1]]))
    found = {
        "series": len(letters.strokes),
        "classes": len(set(letters.labels.tolist())),
        "longest": max(len(stroke) for stroke in letters.strokes),
    }
    if found != published:
        raise ValueError(f"the data in {folder} are not CharacterTrajectories: found {found}, published {published}.")
    return letters


def digest(letters: Letters) -> str:
    """What tells the sources apart: they hold the letters in different orders."""
    lengths = [len(stroke) for stroke in letters.strokes]
    return hashlib.sha256(repr((letters.labels.tolist(), lengths)).encode()).hexdigest()[:12]


def pad(strokes: list[NDArray[np.float32]], rows: int) -> list[NDArray[np.float32]]:
    """All of them with so many rows, the last one repeated, as in the released code."""
    return [np.pad(stroke, ((0, rows - len(stroke)), (0, 0)), mode="edge") for stroke in strokes]


def drop(strokes: list[NDArray[np.float32]], share: float, *, seed: int) -> nc.IrregularSeries:
    """Series without a share of their rows, drawn for each by itself; what goes at 30 % goes at 50 % too."""
    generator, pairs = np.random.default_rng(seed), []
    for stroke in strokes:
        order = generator.permutation(len(stroke))
        kept = np.sort(order[round(share * len(stroke)) :])
        pairs.append((kept.astype(np.float64), stroke[kept]))
    return nc.IrregularSeries.from_list(pairs, channels=["x", "y", "force"])


def _archive_file(folder: Path, name: str) -> Path:
    for place in (folder, folder / "CharacterTrajectories"):
        if (place / name).exists():
            return place / name
    raise FileNotFoundError(
        f"there is neither {PACK} nor {name} in {folder}. Download CharacterTrajectories from the UEA & UCR archive, "
        "https://www.timeseriesclassification.com (Datasets, multivariate), and unpack it so that "
        f"{folder / 'CharacterTrajectories' / ARCHIVE[0]} and {ARCHIVE[1]} are there; or say where they are with --data DIR "
        "or NEURALCDE_DATA."
    )
