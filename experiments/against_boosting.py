"""The estimators' defaults against gradient boosting on sepsis: all stays, five splits, with and without intensity.

`python -m experiments.against_boosting [--splits 5] [--members 5] [--no-intensity]` runs what has no line in
against_boosting.jsonl yet, prints the tables, and writes them to docs/choosing.md. Data: PhysioNet 2019, the first 72
hours of the stays of the paper, and whether sepsis was found in them; 70 % training, 15 % validation, 15 % test.

The contestants are:

- boosting: `HistGradientBoostingClassifier` on `experiments.boosting.summaries`; validation series stop it early;
- boosting, several: as many of them as there are members, averaged; each stops early on a tenth of the training and
  validation series;
- one member: the first of the members below, `NeuralCDEClassifier(members=1)`;
- default: the first two members averaged, as `NeuralCDEClassifier()` does for so many series;
- members: the members averaged, as `NeuralCDEClassifier(members=5)` does;
- members and boosting: `NeuralCDEClassifier(members=5, boosting=True)`.

The classifiers get the training and the validation series together, as a user would give them, and each member holds
out 15 % of them for its own validation. The members of an ensemble and its trees are fitted together, so that "members"
has the seconds of both. The seconds of "one member" and "default" are those of the epochs of their members, as if one
had been trained after the other.

The settings of the trees were chosen on the validation series of split 0, before anything was measured on test series
(`python -m experiments.against_boosting --choose`). AUROC and log-loss there, with 1,000 trees at most:

| rate | leaves | series per leaf | with intensity | without |
| --- | --- | --- | --- | --- |
| 0.05 | 15 | 20 | 0.9498, 0.0985 | 0.9317, 0.1089 |
| 0.05 | 15 | 100 | 0.9535, 0.0963 | 0.9306, 0.1109 |
| 0.05 | 31 | 20 | 0.9521, 0.0961 | 0.9293, 0.1105 |
| 0.05 | 31 | 100 | 0.9517, 0.0966 | 0.9313, 0.1106 |
| 0.03 | 15 | 20 | 0.9509, 0.0976 | 0.9303, 0.1107 |
| 0.03 | 15 | 100 | 0.9534, 0.0959 | 0.9314, 0.1108 |
| 0.03 | 31 | 20 | 0.9526, 0.0962 | 0.9317, 0.1090 |
| 0.03 | 31 | 100 | 0.9514, 0.0970 | 0.9322, 0.1098 |

A rate of 0.03, 15 leaves and 100 series per leaf have the best mean AUROC, and were chosen for both.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.data import SEPSIS, folder, read_sepsis
from numpy.typing import NDArray
from scipy.special import expit, logit
from sklearn.metrics import average_precision_score, log_loss, roc_auc_score

import neuralcde as nc

from .boosting import SETTINGS, BoostedSummaries
from .documents import between_marks
from .experiment import HERE
from .lines import Line, Lines, read_lines
from .provenance import provenance
from .runs import cores
from .splits import Split, split_positions
from .tables import Table

FILE, HOURS = HERE / "against_boosting.jsonl", 72
PAGE, COMMAND = HERE.parent / "docs" / "choosing.md", "python -m experiments.against_boosting"
METRICS: dict[str, Callable[..., float]] = {
    "auroc": roc_auc_score,
    "average_precision": average_precision_score,
    "log_loss": log_loss,
}
CHOSEN = {**SETTINGS, "learning_rate": 0.03, "max_leaf_nodes": 15, "min_samples_leaf": 100, "max_iter": 1000}
GRID: dict[str, tuple[Any, ...]] = {
    "learning_rate": (0.05, 0.03),
    "max_leaf_nodes": (15, 31),
    "min_samples_leaf": (20, 100),
    "max_iter": (1000,),
}
DEFAULT_MEMBERS = 2  # of the estimators' default for as many series
Predict = Callable[[], NDArray[np.float64]]


def stays() -> tuple[nc.IrregularSeries, NDArray[np.int64]]:
    """The stays of the paper's experiment, their first 72 hours, and whether sepsis was found in them.

    Raises
    ------
    FileNotFoundError
        If the data set is absent.
    """
    found = read_sepsis(HOURS)
    if found is None:
        raise FileNotFoundError(f"there is no {SEPSIS} in {folder()}; set NEURALCDE_DATA to the folder that has it.")
    kept = np.flatnonzero(found.in_paper)
    return found.series[kept], found.in_72_hours[kept]


def parts(labels: NDArray[np.int64], split: int) -> Split:
    """Positions of 70 % training, 15 % validation and 15 % test stays, stratified; `split` is the seed."""
    return split_positions(labels, {"split_seeds": (split, split)})


def in_no_test(labels: NDArray[np.int64], splits: int = 5) -> NDArray[np.int64]:
    """Positions of the stays that are test stays of none of the first splits: options may be chosen on them."""
    tested = [parts(labels, split).test for split in range(splits)]
    return np.setdiff1d(np.arange(len(labels)), np.concatenate(tested))


def choose(settings: Iterator[dict[str, Any]] | None = None) -> None:
    """Print validation scores of settings of the trees on split 0; the test stays are not looked at."""
    series, labels = stays()
    training, validation, _ = parts(labels, 0)
    held_out = (series[validation], labels[validation])
    for change in settings or (dict(zip(GRID, values, strict=True)) for values in itertools.product(*GRID.values())):
        for intensity in (True, False):
            start = time.perf_counter()
            model = BoostedSummaries(intensity=intensity, settings={**SETTINGS, **change})
            model.fit(series[training], labels[training], validation=held_out)
            seconds, found = time.perf_counter() - start, _scores(labels[validation], model.predict_proba(held_out[0]))
            text = ", ".join(f"{name} {value:.4f}" for name, value in found.items())
            print(f"{change}, intensity {intensity}: {text}, {model.n_iter_} trees, {seconds:.0f} s", flush=True)


def measure(
    splits: int, members: int, intensities: list[bool], *, workers: int = 1, file: Path = FILE, **options: Any
) -> int:
    """Run every split without a line of results, `workers` at a time; returns the failures.

    `options` are further options of the classifier.
    """
    failures = 0
    with Lines(file) as lines:
        done = {(line["split"], line["intensity"], line["members"]) for line in read_lines(file)}
        jobs = [(k, intensity, members) for k in range(splits) for intensity in intensities]
        for job, result in _results([job for job in jobs if job not in done], workers, options):
            what = "split {}, intensity {}, members {}".format(*job)
            if isinstance(result, Exception):
                failures += 1
                print(f"{what} failed: {result}", flush=True)
                continue
            lines.append(result)
            found = {name: round(scores["auroc"], 4) for name, scores in result["contestants"].items()}
            print(f"{what}: AUROC {found}", flush=True)
    return failures


Job = tuple[int, bool, int]


def _results(jobs: list[Job], workers: int, options: dict[str, Any]) -> Iterator[tuple[Job, Line | Exception]]:
    """Each job with its line, or with the reason why it failed.

    One worker is this process: only there does an ensemble train its members in parallel.
    """
    if workers == 1:
        for job in jobs:
            try:
                yield job, measured(*job, **options)
            except Exception as reason:
                yield job, reason
        return
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        threads = max(1, cores() // workers)
        futures = {pool.submit(measured, *job, threads=threads, **options): job for job in jobs}
        try:
            for future in as_completed(futures):
                reason = future.exception()
                if reason is not None and not isinstance(reason, Exception):
                    raise reason
                yield futures[future], reason or future.result()
        finally:
            pool.shutdown(cancel_futures=True)  # on Ctrl-C, do not wait for the runs that have not started


def measured(split: int, intensity: bool, members: int, *, threads: int | None = None, **options: Any) -> Line:
    """Fit all contestants on one split, and score them on its test stays."""
    if threads is not None:
        torch.set_num_threads(threads)
    series, labels = stays()
    judged = contestants(
        series, labels, parts(labels, split), intensity=intensity, members=members, random_state=split, **options
    )
    what = {"split": split, "intensity": intensity, "members": members, "series": len(series)}
    return {**what, "contestants": judged, **provenance()}


def contestants(
    series: nc.IrregularSeries,
    labels: NDArray[np.int64],
    split: Split,
    *,
    intensity: bool,
    members: int,
    random_state: int,
    first_seed: int = 0,
    **options: Any,
) -> dict[str, Line]:
    """Fit all contestants on a split; their scores on its test series. `first_seed` is that of the trees averaged."""
    training, validation, test = split
    held_out = series[validation], labels[validation]
    both = np.sort(np.concatenate([training, validation]))
    test_series, truth = series[test], labels[test]
    judged: dict[str, Line] = {}
    trees = BoostedSummaries(intensity=intensity, settings=CHOSEN, random_state=random_state)
    fit_seconds, _ = timed(lambda: trees.fit(series[training], labels[training], validation=held_out))
    judged["boosting"] = judge(truth, lambda: trees.predict_proba(test_series), fit_seconds)
    X, y = series[both], labels[both]
    if members > 1:
        seeds = range(first_seed, first_seed + members)
        several = [BoostedSummaries(intensity=intensity, settings=CHOSEN, random_state=k) for k in seeds]
        fit_seconds, _ = timed(lambda: [one.fit(X, y) for one in several])
        judged["boosting, several"] = judge(truth, lambda: _mean_odds(several, test_series), fit_seconds)
    ensemble = {"members": members, "boosting": True} if members > 1 else {}
    model = nc.NeuralCDEClassifier(random_state=random_state, intensity=intensity, **ensemble, **options)
    fit_seconds, _ = timed(lambda: model.fit(X, y))
    if ensemble:
        # The outputs of the trees come after those of the members.
        seconds, outputs = timed(lambda: model.member_outputs(test_series)[: len(model.members_)])
        for name, count in (("one member", 1), ("default", DEFAULT_MEMBERS), ("members", members)):
            found = _scores(truth, model.task_.probabilities(outputs[:count].mean(0)))
            epochs = sum(row["seconds"] for member in model.members_[:count] for row in member.history)
            share = seconds * min(count, members) / members
            judged[name] = {**found, "fit_seconds": epochs, "predict_seconds": share}
        judged["members"]["fit_seconds"] = fit_seconds
    name = "members and boosting" if ensemble else "one member"
    judged[name] = judge(truth, lambda: model.predict_proba(test_series), fit_seconds)
    return judged


def time_of_default(**options: Any) -> dict[str, float]:
    """Seconds to fit the default to all stays, and to predict all of them."""
    series, labels = stays()
    model = nc.NeuralCDEClassifier(random_state=0, **options)
    fit, _ = timed(lambda: model.fit(series, labels))
    predict, _ = timed(lambda: model.predict_proba(series))
    return {"series": len(series), "members": len(model.members_), "fit": fit, "predict": predict}


def tables(lines: list[Line]) -> Iterator[Table]:
    """One table with intensity and one without: means over the splits, and paired differences to boosting."""
    for intensity in (True, False):
        own = [line["contestants"] for line in lines if line["intensity"] == intensity]
        names = list(dict.fromkeys(name for contestants in own for name in contestants))
        rows = []
        for name in names:
            pairs = [(contestants[name], contestants["boosting"]) for contestants in own if name in contestants]
            row = [name, *(_mean_and_error([line[metric] for line, _ in pairs]) for metric in METRICS)]
            differences = [line["auroc"] - boosting["auroc"] for line, boosting in pairs]
            above = f"{sum(difference > 0 for difference in differences)} of {len(differences)}"
            row += ["", ""] if name == "boosting" else [_mean_and_error(differences, sign="+"), above]
            row += [f"{statistics.mean(line[time] for line, _ in pairs):.1f}" for time in SECONDS]
            rows.append(row)
        if rows:
            title = (
                f"Sepsis, {'with' if intensity else 'without'} observational intensity: means over {len(own)} splits ± "
                "standard error. The difference is that of the AUROC to boosting on the same split."
            )
            heads = ["AUROC", "average precision", "log-loss", "difference", "above boosting"]
            yield Table(title, ["contestant", *heads, "fit, s", "predict, s"], rows)


def page() -> str:
    """The text of docs/choosing.md with the current tables."""
    text = "\n".join(table.markdown() for table in tables(read_lines(FILE))) or f"No results: run `{COMMAND}`.\n"
    return between_marks(PAGE.read_text(), "against boosting", text, COMMAND)


SECONDS = ("fit_seconds", "predict_seconds")


def timed(run: Callable[[], Any]) -> tuple[float, Any]:
    """The seconds that a function takes, and its result."""
    start = time.perf_counter()
    result = run()
    return round(time.perf_counter() - start, 2), result


def judge(labels: NDArray[np.int64], predict: Predict, fit_seconds: float) -> Line:
    """The scores of predictions, with the seconds of fitting and predicting."""
    seconds, probabilities = timed(predict)
    return {**_scores(labels, probabilities), "fit_seconds": fit_seconds, "predict_seconds": seconds}


def _mean_odds(models: list[BoostedSummaries], series: nc.IrregularSeries) -> NDArray[np.float64]:
    """Probabilities whose log odds are the means of the models' log odds."""
    odds = np.mean([logit(model.predict_proba(series)[:, 1]) for model in models], axis=0)
    return np.stack([expit(-odds), expit(odds)], axis=1)


def _scores(labels: NDArray[np.int64], probabilities: NDArray[np.float64]) -> Line:
    return {name: float(metric(labels, probabilities[:, 1])) for name, metric in METRICS.items()}


def _mean_and_error(values: list[float], sign: str = "") -> str:
    error = f" ± {statistics.stdev(values) / len(values) ** 0.5:.4f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):{sign}.4f}{error}"


def main(arguments: list[str] | None = None) -> int:
    """The command; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.against_boosting", description="The defaults against gradient boosting on sepsis."
    )
    parser.add_argument("--splits", type=int, default=5, help="number of splits (default 5)")
    parser.add_argument("--members", type=int, default=5, help="members of the ensemble (default 5); 1 for none")
    parser.add_argument(
        "--intensity",
        action=argparse.BooleanOptionalAction,
        help="only with intensity, or only without; both by default",
    )
    parser.add_argument("--workers", type=int, default=1, help="splits at the same time (default 1)")
    parser.add_argument(
        "--choose", action="store_true", help="compare settings of the trees on validation data, and end"
    )
    parser.add_argument(
        "--time", action="store_true", help="fit the default to all stays and predict them, print the seconds, and end"
    )
    given = parser.parse_args(arguments)
    if given.time:
        print("{series} stays, {members} members: fit {fit:.0f} s, predict {predict:.1f} s".format(**time_of_default()))
        return 0
    if given.choose:
        choose()
        return 0
    intensities = [True, False] if given.intensity is None else [given.intensity]
    failures = measure(given.splits, given.members, intensities, workers=given.workers)
    PAGE.write_text(page())
    lines = [line for line in read_lines(FILE) if line["members"] == given.members]
    print("\n".join(table.markdown() for table in tables(lines)))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
