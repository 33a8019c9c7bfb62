"""Readers of the real data sets, from the folder NEURALCDE_DATA, or ../shared/data beside the clone."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

import neuralcde as nc

from .uea import read_ts

PACK = "character_trajectories.npz"
ARCHIVE = ("CharacterTrajectories_TRAIN.ts", "CharacterTrajectories_TEST.ts")
SEPSIS = "sepsis2019.npz"


def folder() -> Path:
    """The data folder; it may not exist."""
    return Path(os.environ.get("NEURALCDE_DATA", Path(__file__).parents[2] / "shared" / "data"))


class Letters(NamedTuple):
    """CharacterTrajectories: the strokes of each letter (rows, channels), and which letter it is."""

    strokes: list[NDArray[np.float32]]
    labels: NDArray[Any]


class Sepsis(NamedTuple):
    """PhysioNet 2019: hourly records of stays, and two facts of each stay."""

    series: nc.IrregularSeries
    in_72_hours: NDArray[np.int64]  # 1 where sepsis was found in the first 72 hours
    in_paper: NDArray[np.bool_]  # whether the paper's experiment has the stay


def read_letters(folder: Path, published: dict[str, int] | None = None) -> Letters:
    """CharacterTrajectories, from our pack or from the two files of the UEA & UCR archive, pooled.

    With `published`, the numbers of series and classes and the longest series must be these.

    Raises
    ------
    FileNotFoundError
        If there is neither; the message says what to download.
    ValueError
        If the data are not the published ones.
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
    if published is not None and found != published:
        raise ValueError(f"the data in {folder} are not CharacterTrajectories: found {found}, published {published}.")
    return letters


def read_sepsis() -> Sepsis | None:
    """The PhysioNet 2019 challenge (40,336 stays, 34 channels); None where the file is absent."""
    file = folder() / SEPSIS
    if not file.exists():
        return None
    with np.load(file) as pack:
        series = nc.IrregularSeries(
            times=torch.from_numpy(pack["iculos"].astype(np.float64)),
            values=torch.from_numpy(pack["values"]),
            offsets=torch.from_numpy(pack["offsets"].astype(np.int64)),
            static=torch.from_numpy(pack["static"].astype(np.float32)),
            ids=pack["patient_id"],
            channel_names=tuple(f"channel {i}" for i in range(pack["values"].shape[1])),
            static_names=tuple(f"static {i}" for i in range(pack["static"].shape[1])),
            roles=("data",) * pack["values"].shape[1],
        )
        return Sepsis(series, pack["y72"].astype(int), pack["keep_paper"].astype(bool))


def _archive_file(folder: Path, name: str) -> Path:
    for place in (folder, folder / "CharacterTrajectories"):
        if (place / name).exists():
            return place / name
    raise FileNotFoundError(
        f"there is neither {PACK} nor {name} in {folder}. Download CharacterTrajectories from the UEA & UCR archive, "
        "https://www.timeseriesclassification.com (Datasets, multivariate), and unpack it so that "
        f"{folder / 'CharacterTrajectories' / ARCHIVE[0]} and {ARCHIVE[1]} are there; or say where they are with "
        "--data DIR or NEURALCDE_DATA."
    )
