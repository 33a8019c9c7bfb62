"""Speech Commands as in section 4.3 of the paper: MFCC of one-second clips, splits, scaling, paths."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.data import Speech, read_all_speech
from benchmarks.speech import deltas, mfcc

import neuralcde as nc
from neuralcde.tasks import classification_task

from ..experiment import Parts, Settings
from ..models import make_path
from ..splits import split_positions
from . import models as models  # registers the models of this experiment


def prepare(config: dict[str, Any], folder: Path, column: str, settings: Settings) -> Parts:
    """The clips as MFCC, split by speaker or at random, scaled, as paths; or as series for models that build paths."""
    speech, data = read_all_speech(folder), settings["data"]
    check(speech, config["published"], folder)
    groups = speech.speakers if column == "speaker" else None
    split = split_positions(speech.words, data, groups=groups)
    series = coefficients(speech, settings)
    series = nc.SeriesScaler(scale=settings["path"]["scale"]).fit(series[split.training]).transform(series)
    series = series.with_channels()
    task = classification_task(speech.words)
    targets = task.encode(speech.words)
    build = None if data.get("series", False) else functools.partial(make_path, settings=settings)
    parts = (nc.PathDataset(series[part], targets[part], build=build) for part in split)
    return Parts(digest(speech), task, *parts)


def coefficients(speech: Speech, settings: Settings) -> nc.IrregularSeries:
    """The MFCC of every clip at times 0, 1, 2, ..., with the slopes of the coefficients if `deltas`."""
    data = settings["data"]
    names = ("window", "hop", "filters", "coefficients", "centred")
    values = mfcc(torch.from_numpy(np.ascontiguousarray(speech.audio)), **{name: data[name] for name in names})
    if data.get("deltas", False):
        values = torch.cat([values, deltas(values)], dim=2)
    return nc.IrregularSeries.from_padded(values, torch.arange(float(values.shape[1]), dtype=torch.float64))


def check(speech: Speech, published: dict[str, Any], folder: Path) -> None:
    """Raise `ValueError` if these are neither all clips of the archive nor those of our packs."""
    found = (len(speech.words), len(set(speech.words.tolist())))
    if found[0] not in published["clips"] or found[1] != published["words"]:
        raise ValueError(
            f"the data in {folder} are not Speech Commands 0.02: found {found[0]} clips of {found[1]} words, expected "
            f"{' or '.join(map(str, published['clips']))} of {published['words']}."
        )


def digest(speech: Speech) -> str:
    """Hash that identifies the clips and their order."""
    facts = (speech.words.tolist(), speech.speakers.tolist())
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:12]
