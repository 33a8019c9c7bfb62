"""The PhysioNet 2019 challenge as in section 4.2 of the paper: hourly rows, splits, scaling, intensity, paths."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from benchmarks.data import SEPSIS, read_sepsis
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

import neuralcde as nc
from neuralcde.series import ragged
from neuralcde.tasks import BinaryTask

from ..experiment import Parts, Settings
from ..models import make_path
from ..splits import Split, split_positions

UNITS = [2, 3]  # static features Unit1 and Unit2, which are missing in many stays


class Stays(NamedTuple):
    """The stays of the paper's experiment: the rows of the first hours, and when sepsis was found."""

    series: nc.IrregularSeries
    labels: NDArray[np.int64]  # 1 where sepsis was found in these hours
    onset: NDArray[np.float64]  # the first hour with a positive label, at any time; infinity if there is none

    def at(self, positions: NDArray[Any]) -> Stays:
        """Some of the stays."""
        return Stays(self.series[positions], self.labels[positions], self.onset[positions])


def read_stays(folder: Path, published: dict[str, int]) -> Stays:
    """The stays that the paper's experiment has, their rows up to its last hour.

    Raises
    ------
    FileNotFoundError
        If the data are not in the folder; the message says what to download.
    ValueError
        If they are not the published ones.
    """
    found = read_sepsis(published["hours"], where=folder)
    if found is None:
        raise FileNotFoundError(
            f"there is neither {SEPSIS} nor a .psv file in {folder} or below it. Download the training data of the "
            "PhysioNet 2019 challenge, https://physionet.org/content/challenge-2019/1.0.0/ (sets A and B), and unpack "
            f"it so that {folder / 'training_setA' / 'p000001.psv'} is there; or say where it is with --data DIR or "
            "NEURALCDE_DATA."
        )
    kept = np.flatnonzero(found.in_paper)
    stays = Stays(found.series[kept], found.in_72_hours[kept], found.onset[kept])
    counts = {
        "stays": len(kept),
        "positive": int(stays.labels.sum()),
        "channels": stays.series.channels,
        "hours": int(stays.series.times.max()),
    }
    if counts != published:
        raise ValueError(f"the data in {folder} are not those of the challenge: found {counts}, expected {published}.")
    return stays


def split_of(stays: Stays, data: Settings) -> Split:
    """The split of the table, for the table `data` of settings; with `share` only a part of the stays."""
    split = split_positions(stays.labels, data)
    share = data.get("share", 1.0)
    if share == 1:
        return split
    rng = np.random.default_rng(data["split_seeds"][0])
    return Split(*(np.sort(rng.permutation(part)[: round(share * len(part))]) for part in split))


def prepare(config: dict[str, Any], folder: Path, column: str, settings: Settings) -> Parts:
    """The stays in hourly rows from hour 1 on, scaled, with or without observational intensity, as paths."""
    stays, data = read_stays(folder, config["published"]), settings["data"]
    split = split_of(stays, data)
    series = hourly(stays.series)
    series = dataclasses.replace(series, static=torch.nan_to_num(series.static, nan=0.0))
    series = nc.SeriesScaler(scale=settings["path"]["scale"]).fit(series[split.training]).transform(series)
    if data["static_intensity"]:
        series = with_known_units(series, stays.series.static)
    series = series.with_channels(counts=data.get("counts"))
    build = functools.partial(paper_path, settings=settings)
    task = BinaryTask(classes=(0, 1), positive_weight=settings["task"]["positive_weight"])
    targets = task.encode(stays.labels)
    parts = (nc.PathDataset(series[part], targets[part], build=build) for part in split)
    return Parts(digest(stays), task, *parts)


def hourly(series: nc.IrregularSeries) -> nc.IrregularSeries:
    """The series with a row at every hour from 1 to the last one; in the new rows nothing is observed."""
    ends = series.times[series.offsets[1:] - 1].long()
    offsets = torch.nn.functional.pad(ends.cumsum(0), (1, 0))
    owner = ragged.series_of_rows(offsets)
    hours = torch.arange(len(owner)) - offsets[owner] + 1
    values = series.values.new_full((len(owner), series.channels), torch.nan)
    values[offsets[ragged.series_of_rows(series.offsets)] + series.times.long() - 1] = series.values
    return dataclasses.replace(series, times=hours.double(), values=values, offsets=offsets)


def with_known_units(series: nc.IrregularSeries, static: Float[Tensor, "stays features"]) -> nc.IrregularSeries:
    """The series with two more static features: whether each of the two units is known."""
    known = (~static[:, UNITS].isnan()).to(series.static.dtype)
    names = tuple(f"{series.static_names[k]} known" for k in UNITS)
    return dataclasses.replace(
        series, static=torch.cat([series.static, known], 1), static_names=series.static_names + names
    )


def paper_path(series: nc.IrregularSeries, settings: Settings) -> nc.ControlPath:
    """The paths of a batch; with `ends = "imputed"`, natural cubic splines as the released code makes them."""
    if settings["path"].get("ends", "held") == "imputed":
        return imputed_ends(series, settings["path"]["grid"])
    return make_path(series, settings)


def imputed_ends(series: nc.IrregularSeries, hours: int) -> nc.ControlPath:
    """Natural cubic splines with made-up observations at the ends of a grid of so many hours, as in the released code.

    Each channel gets its first value at hour 1 and its last one at the last hour of the grid, and the spline goes
    through these, too. Ours are constant before the first and after the last observation. The path ends with the last
    row of the series.
    """
    count = len(series)
    owner, row = ragged.series_of_rows(series.offsets), series.times.long() - 1
    grid = series.values.new_full((count, hours, series.channels), torch.nan)
    grid[owner, row] = series.values
    observed = ~grid.isnan()
    place = torch.arange(hours)[:, None]
    first = torch.where(observed, place, hours).amin(1, keepdim=True).clamp(max=hours - 1)
    last = torch.where(observed, place, -1).amax(1, keepdim=True).clamp(min=0)
    beginning, end = grid.gather(1, first)[:, 0], grid.gather(1, last)[:, 0]  # NaN where never observed
    data, counts, time = (
        [k for k, own in enumerate(series.roles) if own == role] for role in ("data", "count", "time")
    )
    grid[:, 0, data], grid[:, -1, data] = beginning[:, data], end[:, data]
    after = place > last  # the stay is over: its counts stay, and time goes on
    grid[..., counts] = torch.where(after[..., counts], end[:, None, counts], grid[..., counts])
    grid[..., time] = torch.arange(1.0, hours + 1)[:, None]
    whole = dataclasses.replace(
        series,
        times=torch.arange(1.0, hours + 1, dtype=torch.float64).repeat(count),
        values=grid.flatten(0, 1),
        offsets=torch.arange(count + 1) * hours,
    )
    path = nc.natural_cubic(whole)
    pieces = torch.ones(len(row), dtype=torch.bool)
    pieces[series.offsets[1:] - 1] = False  # a piece begins at every row but the last
    kept = owner * (hours - 1) + row
    return dataclasses.replace(path, series=series, coefficients=path.coefficients[kept[pieces]])


def digest(stays: Stays) -> str:
    """Hash that identifies the stays and their order."""
    facts = (stays.series.ids.tolist(), stays.series.lengths.tolist(), stays.labels.tolist())
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:12]
