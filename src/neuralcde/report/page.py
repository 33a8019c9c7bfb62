"""The HTML report of a run."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch

from ..figures import Drawing, SlidingTable, Table
from ..system import write_atomically
from ..tasks import METRICS, metric_title_of
from .bootstrap import differences, percentile_intervals, resampled, resamples
from .data import data_facts, data_figures, far_rows
from .examples import example_figures
from .explained import explanation_of_examples, importance_rows
from .html import render_page
from .learning import learning_curves
from .parts_of_test import group_rows, time_figure
from .run import Run, read_run

BARS = 60  # maximum number of channels listed
ALERTS = ("outcome", "number", "group")  # findings about the table that stand at the top of the page


def write_report(folder: str | Path) -> Path:
    """Write `report.html` into the folder of a run: a single file that loads nothing.

    Its figures are inline. The only script moves a slider and folds sections; without JavaScript, the tables remain.

    Parameters
    ----------
    folder
        Folder written by `neuralcde fit`, or by an estimator's `save` and then `record_run`.

    Returns
    -------
    Path
        Absolute path of the page.

    Raises
    ------
    FileNotFoundError, ValueError
        If a file of the run is missing or damaged.
    """
    folder = Path(folder)
    return write_page(read_run(folder), folder / "report.html")


def write_page(run: Run, file: Path) -> Path:
    """Write the page of a run to a file, atomically."""
    write_atomically(file, render(run).encode())
    return file.resolve()


def render(run: Run) -> str:
    """The page as HTML text."""
    estimator, data = run.estimator, run.data
    form = estimator.preparation_.format
    metrics = metric_rows(run)
    by_time = data["by_time"]
    explanation = explanation_of_examples(estimator, run.examples, run.label)
    return render_page(
        "page.html",
        run=run,
        data=data,
        series=data["series"],
        metrics=metrics,
        headline=next(row for row in metrics if row["name"] == estimator.task_.metric),
        boosting_words=" alone, a part of this model," if estimator.trees_ is not None else " on the same split",
        resamples=resamples(len(run.targets)),
        findings=data["findings"],
        alerts=[item for item in data["findings"] if item["kind"] in ALERTS],
        channels=data["series"]["channels"][:BARS],
        targets=target_rows(run),
        data_facts=data_facts(data["series"], form),
        data_figures=data_figures(data["series"], form),
        far=far_rows(data["far"], form),
        far_count=sum(entry["count"] for part in data["far"].values() for entry in part["counts"]),
        learning=learning_curves(estimator),
        test_figures=test_figures(run),
        test_tables=test_tables(run),
        sliding_tables=sliding_tables(run),
        by_time=None
        if by_time is None
        else time_figure(by_time, estimator.task_, form, per_row=bool(estimator.per_row)),
        by_group=group_rows(data["by_group"]),
        importances=data["importances"] and importance_rows(data["importances"]),
        examples=example_figures(run, explanation),
        explained=[] if explanation is None else [explanation.drawing(k) for k in range(len(explanation))],
        causal=estimator.preparation_.scheme.causality != "none",
        parameters=parameter_rows(run),
        validated="validation_loss" in estimator.history_[0],
        seconds_of_epoch=sum(row["seconds"] for row in estimator.history_) / len(estimator.history_),
    )


def metric_rows(run: Run) -> list[dict[str, Any]]:
    """One row per test metric: the model, gradient boosting and their difference, and a constant prediction."""
    task = run.estimator.task_
    found = task.test_metrics(run.outputs, run.targets)
    constant = torch.tensor(run.data["baseline"], dtype=torch.float64)
    baseline = task.test_metrics(constant.expand(*run.outputs.shape), run.targets)
    draws = resampled(task, run.outputs, run.targets, counts=run.counts)
    reach = percentile_intervals(draws)
    boosting: dict[str, float] = {}
    apart: dict[str, tuple[float, float]] = {}
    if run.beside is not None:
        boosting = task.test_metrics(run.beside, run.targets)
        others = resampled(task, run.beside, run.targets, counts=run.counts)
        apart = percentile_intervals(differences(draws, others))
    return [
        {
            "name": name,
            "title": metric_title_of(name, task.subject(run.names)),
            "meaning": METRICS[name].meaning if name in METRICS else "",
            "better": _better(name),
            "value": value,
            "interval": reach.get(name),
            "boosting": boosting.get(name),
            "difference": (value - boosting[name], *apart[name]) if name in apart else None,
            "baseline": baseline.get(name, math.nan),
        }
        for name, value in found.items()
    ]


def _better(name: str) -> str:
    """Which direction of a metric is the better one, in words."""
    larger = METRICS[name].larger_is_better if name in METRICS else None
    return "" if larger is None else f"{'more' if larger else 'less'} is better"


def target_rows(run: Run) -> list[dict[str, Any]]:
    """One row per class or label with its counts, or per target with its quantiles."""
    found = run.data["targets"]
    return [{"name": name} | {part: found[part][k] for part in found} for k, name in enumerate(run.names)]


def test_figures(run: Run) -> list[Drawing]:
    """The task's figures; none if all test targets are unknown."""
    return [] if bool(run.targets.isnan().all()) else run.estimator.task_.figures(run.evaluation)


def test_tables(run: Run) -> list[Table]:
    """The task's tables; none if all test targets are unknown."""
    return [] if bool(run.targets.isnan().all()) else run.estimator.task_.tables(run.evaluation)


def sliding_tables(run: Run) -> list[SlidingTable]:
    """The task's tables with sliders; none if all test targets are unknown."""
    return [] if bool(run.targets.isnan().all()) else run.estimator.task_.sliding_tables(run.evaluation)


def parameter_rows(run: Run) -> list[dict[str, Any]]:
    """The estimator's parameters, and whether each differs from its default."""
    defaults = type(run.estimator)().get_params(deep=False)
    return [
        {"name": name, "value": value, "changed": value != defaults[name]}
        for name, value in run.estimator.get_params(deep=False).items()
    ]
