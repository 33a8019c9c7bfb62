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

from .psv import STATIC, psv_files, read_psv
from .uea import read_ts
from .wav import read_wavs, wav_folder

PACK = "character_trajectories.npz"
ARCHIVE = ("CharacterTrajectories_TRAIN.ts", "CharacterTrajectories_TEST.ts")
SEPSIS, PBC2, SPEECH = "sepsis2019.npz", "pbc2.csv", "speech_commands_v2test_part1.npz"
SPEECH_PACKS = "speech_commands*.npz"
WORDS = ("yes", "no", "up", "down", "left", "right", "on", "off", "stop", "go")


def folder() -> Path:
    """The data folder; it may not exist."""
    return Path(os.environ.get("NEURALCDE_DATA", Path(__file__).parents[2] / "shared" / "data"))


class Letters(NamedTuple):
    """CharacterTrajectories: the strokes of each letter (rows, channels), and which letter it is."""

    strokes: list[NDArray[np.float32]]
    labels: NDArray[Any]


class Sepsis(NamedTuple):
    """PhysioNet 2019: hourly records of stays, and three facts of each stay."""

    series: nc.IrregularSeries
    in_72_hours: NDArray[np.int64]  # 1 where sepsis was found in the first 72 hours
    in_paper: NDArray[np.bool_]  # whether the paper's experiment has the stay
    onset: NDArray[np.float64]  # the first hour whose label is positive; infinity if none is


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


def read_sepsis(hours: float | None = None, *, where: Path | None = None) -> Sepsis | None:
    """The PhysioNet 2019 challenge (40,336 stays, 34 channels, 5 static features); None where it is absent.

    It is read from our pack, or from the .psv files below the data folder, in the order of the ids in both cases.
    With `hours`, only the rows up to this hour of the stay; a stay may be left without rows.
    """
    where = where or folder()
    if (where / SEPSIS).exists():
        with np.load(where / SEPSIS) as pack:
            hour, offsets, labels = pack["iculos"].astype(np.float64), pack["offsets"], pack["sepsis_label"]
            facts = pack["y72"].astype(int), pack["keep_paper"].astype(bool)
            values, static, ids = pack["values"], pack["static"].astype(np.float32), pack["patient_id"]
            names, static_names = tuple(pack["feature_names"].tolist()), tuple(pack["static_names"].tolist())
    elif files := psv_files(where):
        ids, names, hour, values, labels, offsets, static = read_psv(files)
        facts, static_names = facts_of_stays(hour, labels, offsets), STATIC
    else:
        return None
    series = nc.IrregularSeries(
        times=torch.from_numpy(hour),
        values=torch.from_numpy(values),
        offsets=torch.from_numpy(offsets.astype(np.int64)),
        static=torch.from_numpy(static),
        ids=ids,
        channel_names=names,
        static_names=static_names,
        roles=("data",) * len(names),
    )
    onset = np.minimum.reduceat(np.where(labels > 0, hour, np.inf), offsets[:-1])
    return Sepsis(series if hours is None else rows_until(series, hours), *facts, onset)


def facts_of_stays(
    hour: NDArray[np.float64], labels: NDArray[Any], offsets: NDArray[np.int64], hours: float = 72.0
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Whether a label of a stay is positive in the first `hours`, and whether the paper's experiment has the stay.

    It has those with more than two hours on a grid that starts at hour 1, whatever the first recorded hour.
    """
    early = hour <= hours
    positive = np.maximum.reduceat(np.where(early, labels, 0), offsets[:-1]).astype(int)
    last = np.maximum.reduceat(np.where(early, hour, 0.0), offsets[:-1])
    return positive, last > 2


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
    """The first part of the test set of Speech Commands 0.02, ten words; None where the file is absent."""
    file = folder() / SPEECH
    return _speech_packs([file]) if file.exists() else None


def read_all_speech(where: Path) -> Speech:
    """All clips of ten words of Speech Commands: from the folders of the published archive, or from our packs.

    The archive has 34,975 clips of one second. Names, and so the order, are the same in archive and packs: by word,
    then by file.

    Raises
    ------
    FileNotFoundError
        If there is neither; the message says what to download.
    """
    archive = wav_folder(where, WORDS)
    if archive is not None:
        audio, names = read_wavs(archive, WORDS)
        return Speech(audio, *_words_and_speakers(names))
    packs = sorted(where.glob(SPEECH_PACKS))
    if not packs:
        raise FileNotFoundError(
            f"there are neither folders of .wav files ({', '.join(WORDS)}) nor {SPEECH_PACKS} in {where}. Download "
            "http://download.tensorflow.org/data/speech_commands_v0.02.tar.gz and unpack it so that "
            f"{where / 'speech_commands_v0.02' / WORDS[0]} is a folder of .wav files; or say where it is with --data "
            "DIR or NEURALCDE_DATA."
        )
    return _speech_packs(packs)


def _speech_packs(packs: list[Path]) -> Speech:
    """The clips of several packs, by word, then by file."""
    clips, names = [], []
    for file in packs:
        with np.load(file) as pack:
            clips.append(pack["audio"])
            names += pack["name"].tolist()
    order = sorted(range(len(names)), key=lambda k: (WORDS.index(names[k].split("/")[0]), names[k]))
    audio = np.concatenate(clips)[order] if len(packs) > 1 else clips[0]
    names = [names[k] for k in order] if len(packs) > 1 else names
    return Speech(audio, *_words_and_speakers(names))


def _words_and_speakers(names: list[str]) -> tuple[NDArray[Any], NDArray[Any]]:
    """A clip is named "word/speaker_nohash_number.wav"."""
    parts = [name.split("/") for name in names]
    return np.array([word for word, _ in parts]), np.array([file.split("_")[0] for _, file in parts])


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
