"""One page about one run."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..system import write_atomically
from ..tasks import BinaryTask, MulticlassTask, MultilabelTask, RegressionTask
from .bootstrap import intervals, resamples
from .classes import binary_figures, mistakes, multiclass_figures, multilabel_figures
from .data import data_facts, data_figures
from .examples import example_figures
from .figure import Drawing
from .learning import learning_curves
from .quantities import regression_figures
from .run import Run, read_run
from .wording import METRICS, duration, metric_title, number, percent, score

BARS = 60  # channels, classes or labels of which each has a line


def write_report(folder: str | Path) -> Path:
    """Write `report.html` into the folder of a run: one file with all its figures, that needs no network and no script.

    Parameters
    ----------
    folder
        Where `neuralcde fit`, or an estimator's `save` and `record_run`, wrote.

    Returns
    -------
    Path
        The page, absolute.

    Raises
    ------
    FileNotFoundError, ValueError
        Where the folder holds no run, or not all of it, or it is damaged.
    """
    folder = Path(folder)
    return write_page(read_run(folder), folder / "report.html")


def write_page(run: Run, file: Path) -> Path:
    """The page of a run into a file, whole or not at all."""
    write_atomically(file, render(run).encode())
    return file.resolve()


def render(run: Run) -> str:
    """The page as text."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"number": number, "percent": percent, "duration": duration, "score": score}
    template = environment.from_string(Path(__file__).with_name("page.html").read_text(encoding="utf-8"))
    task = run.estimator.task_
    metrics = metric_rows(run)
    return template.render(
        run=run,
        data=run.data,
        series=run.data["series"],
        metrics=metrics,
        headline=next(row for row in metrics if row["name"] == task.metric),
        resamples=resamples(len(run.targets)),
        channels=run.data["series"]["channels"][:BARS],
        targets=target_rows(run),
        data_facts=data_facts(run.data["series"], run.estimator.preparation_.format),
        data_figures=data_figures(run.data["series"], run.estimator.preparation_.format),
        learning=learning_curves(run.estimator),
        test_figures=test_figures(run),
        mistakes=mistakes(run) if isinstance(task, MulticlassTask) else None,
        examples=example_figures(run),
        causal=run.estimator.preparation_.scheme.causality != "none",
        parameters=parameter_rows(run),
        validated="validation_loss" in run.estimator.history_[0],
        seconds_of_epoch=sum(row["seconds"] for row in run.estimator.history_) / len(run.estimator.history_),
    )


def metric_rows(run: Run) -> list[dict[str, Any]]:
    """Every metric of the test, its interval, and what a guess gets that knows the training targets alone."""
    task = run.estimator.task_
    found = task.metrics(run.outputs, run.targets)
    guess = task.metrics(guesses(run), run.targets)
    reach = intervals(task, run.outputs, run.targets, counts=run.counts)
    return [
        {
            "name": name,
            "title": metric_title(name),
            "meaning": METRICS[name][1] if name in METRICS else "",
            "better": "" if name not in METRICS else "more is better" if METRICS[name][2] else "less is better",
            "value": value,
            "interval": reach.get(name),
            "guess": guess.get(name, math.nan),
        }
        for name, value in found.items()
    ]


def guesses(run: Run) -> Tensor:
    """Outputs that are the same for all: how frequent each class was in the training data, or the targets' mean."""
    task = run.estimator.task_
    constant = torch.zeros(task.outputs, dtype=torch.float64)
    if not isinstance(task, RegressionTask):
        counts = torch.tensor(run.data["targets"]["training"], dtype=torch.float64) + 0.5  # a class may be missing
        if isinstance(task, MulticlassTask):
            constant = counts.log()
        elif isinstance(task, BinaryTask):
            constant = (counts[1:] / counts[:1]).log()
        else:
            total = run.data["cases"]["training"] + 1.0
            constant = (counts / (total - counts).clamp(min=0.5)).log()
    return constant.expand(*run.outputs.shape)


def target_rows(run: Run) -> list[dict[str, Any]]:
    """A line for every class or label, with its shares; or for every target, with its quantiles."""
    found, task = run.data["targets"], run.estimator.task_
    if isinstance(task, RegressionTask):
        return [
            {"name": name, "training": found["training"][k], "test": found["test"][k]}
            for k, name in enumerate(run.names)
        ]
    total = {part: sum(found[part]) for part in found}
    if isinstance(task, MultilabelTask):
        total = run.data["cases"]
    return [
        {"name": name}
        | {part: found[part][k] for part in found}
        | {f"{part}_share": found[part][k] / max(total[part], 1) for part in found}
        for k, name in enumerate(run.names)
    ]


def test_figures(run: Run) -> list[Drawing]:
    """What the task has figures for; none where no target of the test is known."""
    task = run.estimator.task_
    if bool(run.targets.isnan().all()):
        return []
    if isinstance(task, BinaryTask):
        return binary_figures(run)
    if isinstance(task, MulticlassTask):
        return multiclass_figures(run)
    return regression_figures(run) if isinstance(task, RegressionTask) else multilabel_figures(run)


def parameter_rows(run: Run) -> list[dict[str, Any]]:
    """The estimator's parameters, and which of them are not the defaults."""
    defaults = type(run.estimator)().get_params()
    return [
        {"name": name, "value": value, "changed": value != defaults[name]}
        for name, value in run.estimator.get_params().items()
    ]
