"""Evidence for the estimators' defaults: one changed option at a time, on several data sets, cross-validated.

`python -m experiments.defaults [DATA ...] [--change NAME ...]` runs what has no line in defaults.jsonl yet, and writes
the tables to docs/choosing.md. A change and the defaults are compared on the same folds with the same seeds. A change
that changes nothing on a data set is not run there: the default has an encoder and robust scaling where at least half
of the values are missing, and neither elsewhere.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from benchmarks.old_default import OLD_DEFAULT
from sklearn.metrics import get_scorer
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

import neuralcde as nc
from neuralcde.estimators.path_estimator import MISSING_TO_ENCODE

from .boosting import BoostedShapes, BoostedSummaries
from .defaults_data import DATA, Data
from .documents import between_marks
from .experiment import HERE
from .lines import Line, Lines, read_lines
from .provenance import provenance
from .runs import cores
from .tables import Table

FILE = HERE / "defaults.jsonl"
PAGE, COMMAND = HERE.parent / "docs" / "choosing.md", "python -m experiments.defaults"
# Parameters of the estimator, or another estimator for the same folds.
Change = dict[str, Any] | type[BoostedSummaries]
CHANGES: dict[str, Change] = {
    "nothing": {},
    "old default": OLD_DEFAULT,
    "boosting on summaries": BoostedSummaries,
    "boosting on shapes, too": BoostedShapes,
    "encoder on": {"encoder": "mlp"},
    "encoder off": {"encoder": None},
    "fewer features": {"encoder": nc.RowMLP.with_options(features=("last", "elapsed", "count"))},
    "robust scaling": {"scale": "robust"},
    "standard scaling": {"scale": "standard"},
    "jitter 0.1": {"channel_jitter": 0.1},
    "three members": {"members": 3},
    "no distillation": {"distillation": 0.0},
}
# Changes to what the default is anyway, by whether it has an encoder; and one that is about encoders alone.
NO_CHANGE = {
    True: ("encoder on", "robust scaling"),
    False: ("encoder off", "standard scaling", "fewer features", "no distillation"),
}


def classifier(change: Change, seed: int) -> Any:
    """The estimator with a change."""
    if isinstance(change, type):
        return change(random_state=seed)
    return nc.NeuralCDEClassifier(random_state=seed, **change)


def available(names: list[str]) -> dict[str, Data]:
    """The data sets whose files are there; for the others, a message says what is missing."""
    made = {}
    for name in names:
        try:
            made[name] = DATA[name]()
        except FileNotFoundError as missing:
            print(f"{name} is skipped: {missing}", flush=True)
    return made


def has_encoder(data: Data) -> bool:
    """Whether the default has an encoder on these data."""
    return float(data.series.values.isnan().double().mean()) >= MISSING_TO_ENCODE


def measure(names: list[str], file: Path = FILE, changes: list[str] | None = None) -> int:
    """Run every change, data set and fold without a line of results, one per core at a time; returns the failures.

    `changes` names the changes to run; None for all.
    """
    made = available(names)
    with Lines(file) as lines, ProcessPoolExecutor(cores(), get_context("spawn")) as pool:
        done = {(line["data"], line["change"], line["fold"]) for line in read_lines(file)}
        jobs = [
            (name, change, fold)
            for change, name in itertools.product(CHANGES if changes is None else changes, made)
            for fold in range(made[name].folds)
            if (name, change, fold) not in done and change not in NO_CHANGE[has_encoder(made[name])]
        ]
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


def measured(data: Data, change: Change, fold: int) -> Line:
    """Fit on all folds but one and score on that one; the number of the fold is also the seed.

    The seconds are processor time of the fit, so that other processes on the machine make no difference.
    """
    torch.set_num_threads(1)
    kind = StratifiedKFold if data.groups is None else StratifiedGroupKFold
    folds = kind(data.folds, shuffle=True, random_state=0).split(data.labels, data.labels, data.groups)
    training, held = list(folds)[fold]
    model = classifier(change, fold)
    groups = None if data.groups is None else data.groups[training]
    start = time.process_time()
    model.fit(data.series[training], data.labels[training], groups=groups)
    seconds = round(time.process_time() - start, 3)
    score, loss = (
        float(get_scorer(metric)(model, data.series[held], data.labels[held]))
        for metric in (data.score, "neg_log_loss")
    )
    return {"score": score, "log_loss": -loss, "epochs": model.n_iter_, "seconds": seconds, **provenance()}


def scores(lines: list[Line]) -> Table:
    """The mean score of the defaults on each data set, and the mean difference of every change, ± standard error."""

    def cell(change: str, own: dict[int, Line], base: dict[int, Line]) -> str:
        folds = sorted(set(own) & set(base))
        if change == "nothing":
            return _mean_and_error([100 * own[fold]["score"] for fold in folds])
        return _mean_and_error([100 * (own[fold]["score"] - base[fold]["score"]) for fold in folds], sign="+")

    title = (
        "The estimators' defaults, and one change at a time: accuracy (letters, speech, short) or AUROC in %, mean of "
        "held-out folds (their number in brackets) ± standard error. The first row is the score of the defaults. The "
        "others are differences to it on the same folds."
    )
    return _table(title, lines, cell)


def costs(lines: list[Line]) -> Table:
    """The mean log-loss on the held-out folds, and the mean seconds of a fit."""

    def cell(change: str, own: dict[int, Line], base: dict[int, Line]) -> str:
        if not own:
            return ""
        loss, seconds = (statistics.mean(line[name] for line in own.values()) for name in ("log_loss", "seconds"))
        return f"{loss:.3f}, {seconds:.0f} s"

    return _table(
        "The same runs: mean log-loss on the held-out folds, mean seconds of processor time per fit.", lines, cell
    )


def page() -> str:
    """The text of docs/choosing.md with the current tables."""
    lines = read_lines(FILE)
    text = (
        "\n".join([scores(lines).markdown(), costs(lines).markdown()]) if lines else f"No results: run `{COMMAND}`.\n"
    )
    return between_marks(PAGE.read_text(), "defaults", text, COMMAND)


def _table(title: str, lines: list[Line], cell: Callable[[str, dict[int, Line], dict[int, Line]], str]) -> Table:
    """A row per change and a column per data set; a cell is made from the lines of the change and of the defaults."""
    found: dict[tuple[str, str], dict[int, Line]] = {}
    for line in lines:
        found.setdefault((line["data"], line["change"]), {})[line["fold"]] = line
    names = [name for name in DATA if any(data == name for data, _ in found)]
    rows = [
        [change, *(cell(change, found.get((name, change), {}), found.get((name, "nothing"), {})) for name in names)]
        for change in CHANGES
        if any(change == other for _, other in found)
    ]
    return Table(title, ["change", *names], rows)


def _mean_and_error(values: list[float], sign: str = "") -> str:
    if not values:
        return ""
    error = f" ± {statistics.stdev(values) / len(values) ** 0.5:.1f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):{sign}.1f}{error} ({len(values)})"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m experiments.defaults", description="Evidence for the defaults.")
    parser.add_argument("data", nargs="*", help=f"{', '.join(DATA)}; all by default")
    parser.add_argument("--change", nargs="+", choices=CHANGES, metavar="NAME", help=f"{', '.join(CHANGES)}; or all")
    given = parser.parse_args()
    chosen = given.data or list(DATA)
    if not set(chosen) <= set(DATA):
        parser.error(f"data are {', '.join(DATA)}, not {' '.join(chosen)}")
    failures = measure(chosen, changes=given.change)
    PAGE.write_text(page())
    print(scores(read_lines(FILE)).markdown(), costs(read_lines(FILE)).markdown(), sep="\n")
    sys.exit(1 if failures else 0)
