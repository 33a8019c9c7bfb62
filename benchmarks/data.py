"""Readers of the real data sets, from the folder NEURALCDE_DATA, or ../shared/data beside the clone."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray

import neuralcde as nc

from .uea import read_ts

PACK = "character_trajectories.npz"
ARCHIVE = ("CharacterTrajectories_TRAIN.ts", "CharacterTrajectories_TEST.ts")
SEPSIS, PBC2, SPEECH = "sepsis2019.npz", "pbc2.csv", "speech_commands_v2test_part1.npz"


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


class Cirrhosis(NamedTuple):
    """PBC2: the visits of each patient up to a landmark, and whether the patient died after it."""

    series: nc.IrregularSeries
    died: NDArray[np.int64]


class Speech(NamedTuple):
    """Speech Commands: clips of one second at 16 kHz (clips, 16000), the word of each, and who spoke it."""

    audio: NDArray[np.int16]
    words: NDArray[Any]
    speakers: NDArray[Any]


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


def read_sepsis(hours: float | None = None) -> Sepsis | None:
    """The PhysioNet 2019 challenge (40,336 stays, 34 channels, 5 static features); None where the file is absent.

    With `hours`, only the rows up to this hour of the stay; a stay may be left without rows.
    """
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
            channel_names=tuple(pack["feature_names"].tolist()),
            static_names=tuple(pack["static_names"].tolist()),
            roles=("data",) * pack["values"].shape[1],
        )
        series = series if hours is None else rows_until(series, hours)
        return Sepsis(series, pack["y72"].astype(int), pack["keep_paper"].astype(bool))


def rows_until(series: nc.IrregularSeries, time: float) -> nc.IrregularSeries:
    """The rows up to a time; unlike `series.until`, no row is added at it."""
    early = series.times <= time
    counts = torch.segment_reduce(early.double(), "sum", lengths=series.lengths).long()
    offsets = torch.nn.functional.pad(counts.cumsum(0), (1, 0))
    return dataclasses.replace(series, times=series.times[early], values=series.values[early], offsets=offsets)


def read_pbc2(landmark: float = 2.0) -> Cirrhosis | None:
    """Primary biliary cirrhosis (312 patients of the Mayo Clinic); None where the file is absent.

    The series are the visits in the first `landmark` years, of the patients who were alive, not transplanted and still
    followed up at that time. The target is 1 if the patient is known to have died later. Columns that hold the outcome
    (`years`, `status`, `status2`) and the row number are left out. Text columns become indicators.
    """
    file = folder() / PBC2
    if not file.exists():
        return None
    table = pl.read_csv(file, null_values="NA").filter((pl.col("years") > landmark) & (pl.col("year") <= landmark))
    visits = table.drop("sno.", "years", "status", "status2")
    series = nc.IrregularSeries.from_long(visits, id="id", time="year", static=["drug", "age", "sex"])
    died = dict(zip(table["id"], table["status2"], strict=True))
    return Cirrhosis(series, np.array([died[patient] for patient in series.ids.tolist()]))


def read_speech() -> Speech | None:
    """The first part of the test set of Speech Commands 0.02, ten words; None where the file is absent.

    A clip is named "word/speaker_nohash_number.wav".
    """
    file = folder() / SPEECH
    if not file.exists():
        return None
    with np.load(file) as pack:
        speakers = np.array([name.split("/")[1].split("_")[0] for name in pack["name"].tolist()])
        return Speech(pack["audio"], pack["classes"][pack["y"]], speakers)


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
