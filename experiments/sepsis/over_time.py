"""The risk of sepsis at fixed hours, among the patients who are still there: what a ward could use.

`python -m experiments.sepsis.over_time` fits what is not done yet and prints the table; it also draws
docs/risk_over_time.png.

At hour h a stay is at risk if it has begun, lasts longer than h, and had no positive label up to h. The event is a
first positive label later, up to hour 72. All contestants see the rows up to h alone:

- one model with the target "sepsis later" at every row, the same at all hours;
- boosting on strong summaries, fitted again at each hour, on the training stays at risk then;
- boosting on the length alone: the first hour and the number of rows so far.

Five splits of 70, 15 and 15 % (those of `experiments.against_boosting`). AUROC and average precision are means over the
splits. Their errors, and those of the difference to boosting, are standard deviations over bootstrap samples of the
stays: a stay counts as often in all splits and for all contestants, so that differences are paired.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from benchmarks.data import folder, rows_until
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier

import neuralcde as nc
from neuralcde.series import ragged
from neuralcde.tasks.metrics import weighted_ranking

from ..against_boosting import CHOSEN, parts
from ..boosting import BoostedSummaries
from ..experiment import HERE, Experiment
from ..lines import Line, Lines, read_lines
from ..provenance import provenance
from ..splits import Split
from ..tables import Table
from .run import Stays, read_stays

KIND = "over_time"  # of the file of results, and of the folder of predictions
CONTESTANTS = {"model": "one model", "boosting": "boosting, refitted at each hour", "length": "length alone"}
METRICS = {"auroc": "AUROC", "average_precision": "average precision"}
FIGURE = HERE.parent / "docs" / "risk_over_time.png"
HORIZON = 72  # hours; later labels do not count
RESAMPLES = 500
COLOURS = {"model": "#1f6f8b", "boosting": "#d1495b", "length": "#8d8d8d"}


class AtRisk(NamedTuple):
    """The stays at risk at an hour: their positions, and whether a first positive label comes later."""

    positions: NDArray[np.int64]
    events: NDArray[np.int64]


@dataclass(frozen=True)
class Plan:
    """What is measured: the hours, the number of splits, and the options of the one model."""

    hours: tuple[int, ...]
    splits: int
    options: dict[str, Any]

    @classmethod
    def of(cls, config: dict[str, Any]) -> Plan:
        """The plan of a configuration."""
        table = config[KIND]
        return cls(tuple(table["hours"]), table["splits"], table["options"])

    @property
    def key(self) -> str:
        """A short name of the hours and options, so that predictions of other ones are never taken for these."""
        return hashlib.sha256(json.dumps([self.hours, self.options], sort_keys=True).encode()).hexdigest()[:8]


def at_risk(stays: Stays, hour: float) -> AtRisk:
    """The stays that have begun, last longer than the hour, and had no positive label up to it."""
    offsets, times = stays.series.offsets, stays.series.times
    begun, last = times[offsets[:-1]].numpy() <= hour, times[offsets[1:] - 1].numpy()
    positions = np.flatnonzero(begun & (last > hour) & (stays.onset > hour))
    return AtRisk(positions, (stays.onset[positions] <= HORIZON).astype(int))


def later(stays: Stays) -> NDArray[np.float64]:
    """The target of every row: 1 if a first positive label comes later, 0 if none does, NaN if not at risk then."""
    offsets, times = stays.series.offsets, stays.series.times.numpy()
    owner = ragged.series_of_rows(offsets).numpy()
    last = times[offsets[1:].numpy() - 1]
    risk = (times < last[owner]) & (times < stays.onset[owner])
    return np.where(risk, (stays.onset[owner] <= HORIZON).astype(float), np.nan)


def risk_of_rows(
    stays: Stays, training: NDArray[Any], validation: NDArray[Any], options: dict[str, Any], seed: int
) -> nc.NeuralCDEClassifier:
    """The one model, fitted to "sepsis later" at every row of the training stays."""
    model = nc.NeuralCDEClassifier(per_row=True, random_state=seed, **options)
    fitted, held_out = stays.at(training), stays.at(validation)
    return model.fit(fitted.series, later(fitted), validation=(held_out.series, later(held_out)))  # type: ignore[no-any-return]


def scores_at(model: nc.NeuralCDEClassifier, stays: Stays, hours: tuple[int, ...]) -> list[NDArray[np.float64]]:
    """The log-odds of the stays at risk at each hour, read at their row of that hour."""
    odds = model.outputs(stays.series)[:, 0].double().numpy()
    starts, first = stays.series.offsets[:-1].numpy(), stays.series.times[stays.series.offsets[:-1]].numpy()
    found = []
    for hour in hours:
        positions = at_risk(stays, hour).positions
        found.append(odds[starts[positions] + (hour - first[positions]).astype(int)])  # rows are an hour apart
    return found


def boosted(stays: Stays, split: Split, hour: int, seed: int) -> NDArray[np.float64]:
    """The log-odds of boosting on strong summaries of the rows up to the hour, for the test stays at risk."""
    tables = []
    for part in split:
        own = stays.at(part)
        positions, events = at_risk(own, hour)
        tables.append((rows_until(own.series[positions], hour), events))
    (training, y), held_out, (test, _) = tables
    trees = BoostedSummaries(settings=CHOSEN, random_state=seed).fit(training, y, validation=held_out)
    return _odds(trees.predict_proba(test))


def by_length(stays: Stays, split: Split, hour: int, seed: int) -> NDArray[np.float64]:
    """The log-odds of trees on the first hour and the number of rows so far, for the test stays at risk."""
    tables = []
    for part in (split.training, split.test):
        own = stays.at(part)
        positions, events = at_risk(own, hour)
        first = own.series.times[own.series.offsets[:-1]].numpy()[positions]
        tables.append((np.stack([first, hour - first + 1], 1), events))
    (training, y), (test, _) = tables
    return _odds(HistGradientBoostingClassifier(random_state=seed).fit(training, y).predict_proba(test))


def _odds(probabilities: NDArray[np.float64]) -> NDArray[np.float64]:
    p = probabilities[:, 1].clip(1e-9, 1 - 1e-9)
    found: NDArray[np.float64] = np.log(p / (1 - p))
    return found


def predict(stays: Stays, plan: Plan, number: int) -> dict[str, NDArray[Any]]:
    """The predictions of all contestants for the test stays of a split, by contestant and hour."""
    split = parts(stays.labels, number)
    test = stays.at(split.test)
    model = risk_of_rows(stays, split.training, split.validation, plan.options, number)
    of_model = scores_at(model, test, plan.hours)
    found: dict[str, NDArray[Any]] = {}
    for hour, ours in zip(plan.hours, of_model, strict=True):
        positions, events = at_risk(test, hour)
        found |= {f"stays {hour}": split.test[positions], f"events {hour}": events, f"model {hour}": ours}
        found[f"boosting {hour}"] = boosted(stays, split, hour, number)
        found[f"length {hour}"] = by_length(stays, split, hour, number)
    return found


def measure(experiment: Experiment, data: Path, *, resamples: int = RESAMPLES) -> None:
    """Predict on every split that is not done yet, and write one line of results per hour."""
    plan = Plan.of(experiment.config)
    stays = read_stays(data, experiment.config["published"])
    kept = experiment.folder / "checkpoints" / KIND
    kept.mkdir(parents=True, exist_ok=True)
    splits = []
    for number in range(plan.splits):
        file = kept / f"{plan.key} split {number}.npz"
        if not file.exists():
            found = predict(stays, plan, number)
            np.savez(file.with_suffix(".part.npz"), **found)  # type: ignore[arg-type]
            file.with_suffix(".part.npz").replace(file)
        with np.load(file) as known:
            splits.append({name: known[name] for name in known.files})
        print(f"split {number} of {plan.splits} is done.", flush=True)
    with Lines(experiment.file(KIND)) as lines:
        for line in pooled(splits, plan, len(stays.labels), resamples):
            lines.append({**line, "options": plan.options, **provenance()})


def pooled(splits: list[dict[str, NDArray[Any]]], plan: Plan, stays: int, resamples: int) -> Iterator[dict[str, Any]]:
    """One line per hour: means over the splits, with standard errors over bootstrap samples of the stays."""
    drawn = np.random.default_rng(0).poisson(1.0, (resamples, stays)).astype(np.float32)
    for hour in plan.hours:
        found: dict[str, dict[str, list[NDArray[Any]]]] = {name: {m: [] for m in METRICS} for name in CONTESTANTS}
        for split in splits:
            positions, events = split[f"stays {hour}"], split[f"events {hour}"].astype(float)
            # the first sample is the test set itself
            weights = np.concatenate([np.ones((1, len(positions))), drawn[:, positions]])
            for name in CONTESTANTS:
                both = weighted_ranking(weights, split[f"{name} {hour}"], events)
                for metric, values in zip(METRICS, both, strict=True):
                    found[name][metric].append(values)
        mean = {name: {m: np.mean(values, axis=0) for m, values in own.items()} for name, own in found.items()}
        line: dict[str, Any] = {"hour": hour, "splits": len(splits)}
        line["at_risk"] = [len(split[f"events {hour}"]) for split in splits]
        line["events"] = [int(split[f"events {hour}"].sum()) for split in splits]
        line["contestants"] = {name: _with_errors(own) for name, own in mean.items()}
        line["difference"] = _with_errors({m: mean["model"][m] - mean["boosting"][m] for m in METRICS})
        yield line


def _with_errors(samples: dict[str, NDArray[Any]]) -> dict[str, float]:
    """The first of the samples, and the deviation of the others."""
    values = {metric: float(own[0]) for metric, own in samples.items()}
    return values | {f"{metric}_error": float(np.nanstd(own[1:], ddof=1)) for metric, own in samples.items()}


def last_lines(experiment: Experiment) -> list[Line]:
    """The latest line of each hour with the configured options."""
    plan = Plan.of(experiment.config)
    own = [line for line in read_lines(experiment.file(KIND)) if line["options"] == plan.options]
    last = {line["hour"]: line for line in own}
    return [last[hour] for hour in plan.hours if hour in last]


def tables(experiment: Experiment) -> Iterator[Table]:
    """One table: a row per hour."""
    lines = last_lines(experiment)
    if not lines:
        return
    names = ["hour", "stays at risk", "of these sepsis later"]
    for title in METRICS.values():
        names += [f"{title}, {name}" for name in CONTESTANTS.values()]
        names += ["one model less boosting"]
    rows = []
    for line in lines:
        row = [str(line["hour"]), f"{statistics.mean(line['at_risk']):.0f}"]
        row.append(f"{100 * sum(line['events']) / sum(line['at_risk']):.1f} %")
        for metric in METRICS:
            row += [f"{line['contestants'][name][metric]:.3f}" for name in CONTESTANTS]
            row.append(f"{line['difference'][metric]:+.4f} ± {line['difference'][f'{metric}_error']:.4f}")
        rows.append(row)
    title = (
        "Sepsis later, among the stays still at risk at an hour, from the rows up to it: means over "
        f"{lines[0]['splits']} splits; differences with paired bootstrap standard errors"
    )
    yield Table(title, names, rows)


def draw(experiment: Experiment, file: Path = FIGURE) -> None:
    """The figure: AUROC and average precision at each hour, with an error to either side."""
    from matplotlib.figure import Figure

    lines = last_lines(experiment)
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    for axes, (metric, title) in zip(figure.subplots(1, 2), METRICS.items(), strict=True):
        for place, (name, label) in enumerate(CONTESTANTS.items()):
            values = [line["contestants"][name][metric] for line in lines]
            errors = [line["contestants"][name][f"{metric}_error"] for line in lines]
            where = np.arange(len(lines)) + 0.06 * (place - 1)
            axes.errorbar(where, values, yerr=errors, marker="o", markersize=4, color=COLOURS[name], label=label)
        if metric == "average_precision":
            shares = [sum(line["events"]) / sum(line["at_risk"]) for line in lines]
            axes.plot(np.arange(len(lines)), shares, ":", color="black", label="share of events")
        axes.set_xticks(np.arange(len(lines)), [str(line["hour"]) for line in lines])
        axes.set_xlabel("hour of the prediction")
        axes.set_title(f"sepsis later: {title}", fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
        axes.legend(fontsize=7)
    figure.savefig(file, dpi=110)


def main(arguments: list[str] | None = None) -> int:
    """The command; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.sepsis.over_time", description="The risk of sepsis at fixed hours."
    )
    parser.add_argument("--data", type=Path, default=folder(), help="folder of the data (or NEURALCDE_DATA)")
    parser.add_argument("--out", type=Path, help="another folder for results, predictions and the figure")
    given = parser.parse_args(arguments)
    experiment = Experiment.find("sepsis", out=given.out)
    torch.manual_seed(0)
    try:
        measure(experiment, given.data)
    except (FileNotFoundError, ValueError) as reason:
        print(f"error: {reason}", file=sys.stderr)
        return 2
    draw(experiment, FIGURE if given.out is None else given.out / FIGURE.name)
    print("\n".join(table.markdown() for table in tables(experiment)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
