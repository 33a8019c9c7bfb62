"""Evidence for the estimators' defaults: one changed option at a time, on several data sets, cross-validated.

`python -m experiments.defaults [DATA ...]` runs what has no line in defaults.jsonl yet, and writes the table to
docs/choosing.md. A change and the defaults are compared on the same folds with the same seeds.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal, NamedTuple
from unittest.mock import patch

import numpy as np
import torch
from benchmarks.data import SEPSIS, folder, read_letters, read_sepsis
from numpy.typing import NDArray
from sklearn.metrics import get_scorer
from sklearn.model_selection import StratifiedKFold

import neuralcde as nc
from neuralcde.datasets import icu_table
from neuralcde.series.channels import time_since_start

from .character_trajectories.run import drop
from .documents import between_marks
from .experiment import HERE, Experiment
from .lines import Line, Lines, read_lines
from .provenance import provenance
from .runs import cores
from .splits import split_positions
from .tables import Table

FILE, FOLDS = HERE / "defaults.jsonl", 3
PAGE, COMMAND = HERE.parent / "docs" / "choosing.md", "python -m experiments.defaults"
# Parameters of the estimator; a name with a dot is an option of a part that the estimator builds.
CHANGES: dict[str, dict[str, Any]] = {
    "nothing": {},
    "time of unit variance": {"time_unit": "deviation"},
    "time in ten mean gaps": {"time_unit": 10.0},
    "field starts at 0.01": {"NeuralCDE.initial_scale": 0.01},
    "rate 1e-3": {"learning_rate": 1e-3},
    "constant rate": {"schedule": "constant"},
    "no average": {"ema_decay": 0.0},
    "average 0.995": {"ema_decay": 0.995},
    "channels jittered by 0.1": {"channel_jitter": 0.1},
    "natural cubic": {"path": "natural_cubic"},
    "hermite": {"path": "hermite"},
    "mean over time": {"pool": "mean"},
}


class Data(NamedTuple):
    """Series, their labels, and scikit-learn's name of the score."""

    series: nc.IrregularSeries
    labels: NDArray[Any]
    score: str


def letters() -> Data:
    """CharacterTrajectories with half of the observations dropped, without the test series of table 1."""
    experiment = Experiment.find("character_trajectories")
    found = read_letters(folder(), experiment.config["published"])
    data = experiment.config["settings"]["data"]
    split = split_positions(found.labels, data)
    pool = np.sort(np.concatenate([split.training, split.validation]))
    return Data(drop(found.strokes, 0.5, seed=data["drop_seed"])[pool], found.labels[pool], "accuracy")


def stays() -> Data:
    """Synthetic ICU stays, generated like those of the demo with another seed."""
    frame = icu_table(1500, seed=100)
    series = nc.IrregularSeries.from_long(frame.drop("outcome"), id="stay", time="hour", static=["age"])
    outcome = dict(zip(frame["stay"], frame["outcome"], strict=True))
    return Data(series, np.array([outcome[stay] for stay in series.ids.tolist()]), "roc_auc")


def sepsis_cases() -> Data:
    """1000 stays of PhysioNet 2019 with sepsis in the first 72 hours and 2000 without, those hours alone."""
    found = read_sepsis()
    if found is None:
        raise FileNotFoundError(
            f"there is no {SEPSIS} in {folder()}; set NEURALCDE_DATA to the folder that has it, or name other data."
        )
    series, label, keep = found
    rng = np.random.default_rng(0)
    chosen = [rng.choice(np.flatnonzero(keep & (label == k)), size=n, replace=False) for k, n in ((1, 1000), (0, 2000))]
    positions = np.sort(np.concatenate(chosen))
    series = series[positions]
    early = series.times <= 72
    counts = torch.segment_reduce(early.double(), "sum", lengths=series.lengths).long()
    offsets = torch.nn.functional.pad(counts.cumsum(0), (1, 0))
    cut = dataclasses.replace(series, times=series.times[early], values=series.values[early], offsets=offsets)
    return Data(cut, label[positions], "roc_auc")


DATA: dict[str, Callable[[], Data]] = {"letters": letters, "stays": stays, "sepsis": sepsis_cases}


@contextmanager
def classifier(change: dict[str, Any], seed: int) -> Iterator[nc.NeuralCDEClassifier]:
    """An estimator with a change; some changes are not options of the public API."""
    own = {name: value for name, value in change.items() if name in nc.NeuralCDEClassifier().get_params()}
    inner = "neuralcde.estimators"
    with ExitStack() as stack:
        if "NeuralCDE.initial_scale" in change:
            own["model"] = nc.NeuralCDE.with_options(initial_scale=change["NeuralCDE.initial_scale"])
        if "time_unit" in change:
            scaler = partial(OtherTime, change["time_unit"])
            stack.enter_context(patch(f"{inner}.preparation.SeriesScaler", scaler))
        yield nc.NeuralCDEClassifier(random_state=seed, **own)


class OtherTime(nc.SeriesScaler):
    """A `SeriesScaler` with another unit of the time channel.

    Parameters
    ----------
    unit
        A number of mean gaps, or "deviation" for the standard deviation of time.
    """

    def __init__(self, unit: float | Literal["deviation"]):
        super().__init__()
        self.unit = unit

    def fit(self, series: nc.IrregularSeries, y: Any = None) -> nc.SeriesScaler:
        """Fit as `SeriesScaler` does, then replace the scale of the time channel."""
        super().fit(series, y)
        deviation = float(time_since_start(series.times, series.offsets).std(correction=0)) / self.time_scale_
        unit = deviation if self.unit == "deviation" else self.unit
        self.channel_scales_ = dataclasses.replace(self.channel_scales_, time=unit)
        return self


def measure(names: list[str], file: Path = FILE) -> int:
    """Run every change, data set and fold without a line of results, one per core at a time; returns the failures."""
    made = {name: DATA[name]() for name in names}
    with Lines(file) as lines, ProcessPoolExecutor(cores(), get_context("spawn")) as pool:
        done = {(line["data"], line["change"], line["fold"]) for line in read_lines(file)}
        jobs = [job for fold in range(FOLDS) for job in itertools.product(names, CHANGES, [fold]) if job not in done]
        futures = {
            pool.submit(measured, made[name], CHANGES[change], fold): {"data": name, "change": change, "fold": fold}
            for name, change, fold in jobs
        }
        failures = 0
        try:
            for count, future in enumerate(as_completed(futures), 1):
                what, reason = futures[future], future.exception()
                if reason is not None:
                    failures += 1
                    print(f"{count}/{len(jobs)}  {what} failed: {reason}", flush=True)
                    continue
                result = future.result()
                lines.append({**what, **result})
                print(f"{count}/{len(jobs)}  {what}: {result['score']:.4f}, {result['seconds']:.0f} s", flush=True)
        finally:
            pool.shutdown(cancel_futures=True)  # on Ctrl-C, do not wait for the runs that have not started
    return failures


def measured(data: Data, change: dict[str, Any], fold: int) -> Line:
    """Fit on all folds but one and score on that one; the number of the fold is also the seed."""
    torch.set_num_threads(1)
    start = time.perf_counter()
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(data.labels, data.labels)
    training, held = list(folds)[fold]
    with classifier(change, fold) as model:
        model.fit(data.series[training], data.labels[training])
        score, loss = (
            float(get_scorer(metric)(model, data.series[held], data.labels[held]))
            for metric in (data.score, "neg_log_loss")
        )
    seconds = round(time.perf_counter() - start, 1)
    return {"score": score, "log_loss": -loss, "epochs": model.n_iter_, "seconds": seconds, **provenance()}


def table(lines: list[Line]) -> Table:
    """The mean score of the defaults on each data set, and the mean difference of every change ± standard error."""
    scores = {(line["data"], line["change"], line["fold"]): line for line in lines}
    names = [name for name in DATA if any(line["data"] == name for line in lines)]
    rows = []
    for change in (change for change in CHANGES if any(line["change"] == change for line in lines)):
        row = [change]
        for name in names:
            folds = [
                fold for fold in range(FOLDS) if (name, change, fold) in scores and (name, "nothing", fold) in scores
            ]
            values = [100 * scores[name, change, fold]["score"] for fold in folds]
            if change != "nothing":
                values = [
                    value - 100 * scores[name, "nothing", fold]["score"]
                    for value, fold in zip(values, folds, strict=True)
                ]
            row.append(_text(values, "" if change == "nothing" else "+"))
        rows.append(row)
    title = (
        "The estimators' defaults, and one change at a time: accuracy (letters) or area under the curve in % on "
        f"held-out folds (so many of {FOLDS}), differences to the defaults on the same folds ± standard error"
    )
    return Table(title, ["change", *names], rows)


def page() -> str:
    """The text of docs/choosing.md with the current table."""
    return between_marks(PAGE.read_text(), "defaults", table(read_lines(FILE)).markdown(), COMMAND)


def _text(values: list[float], sign: str) -> str:
    if not values:
        return ""
    error = f" ± {statistics.stdev(values) / len(values) ** 0.5:.1f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):{sign}.1f}{error} ({len(values)})"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m experiments.defaults", description="Evidence for the defaults.")
    parser.add_argument("data", nargs="*", help=f"{', '.join(DATA)}; all by default")
    chosen = parser.parse_args().data or list(DATA)
    if not set(chosen) <= set(DATA):
        parser.error(f"data are {', '.join(DATA)}, not {' '.join(chosen)}")
    failures = measure(chosen)
    PAGE.write_text(page())
    print(table(read_lines(FILE)).markdown())
    sys.exit(1 if failures else 0)
