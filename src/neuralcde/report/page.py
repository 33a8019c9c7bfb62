"""The HTML report of a run."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch

from ..figures import Drawing, Table, duration, number, percent, score
from ..system import write_atomically
from ..tasks import METRICS, metric_title
from .bootstrap import intervals, resamples
from .data import data_facts, data_figures, far_rows
from .examples import example_figures
from .learning import learning_curves
from .run import Run, read_run

BARS = 60  # maximum number of channels listed


def write_report(folder: str | Path) -> Path:
    """Write `report.html` into the folder of a run: a single file with inline figures, without scripts or downloads.

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
        far=far_rows(run.data["far"], run.estimator.preparation_.format),
        far_count=sum(entry["count"] for part in run.data["far"].values() for entry in part["counts"]),
        learning=learning_curves(run.estimator),
        test_figures=test_figures(run),
        test_tables=test_tables(run),
        examples=example_figures(run),
        causal=run.estimator.preparation_.scheme.causality != "none",
        parameters=parameter_rows(run),
        validated="validation_loss" in run.estimator.history_[0],
        seconds_of_epoch=sum(row["seconds"] for row in run.estimator.history_) / len(run.estimator.history_),
    )


def metric_rows(run: Run) -> list[dict[str, Any]]:
    """One row per test metric: its value, its confidence interval, and the value of the task's constant baseline."""
    task = run.estimator.task_
    found = task.metrics(run.outputs, run.targets)
    constant = torch.tensor(run.data["baseline"], dtype=torch.float64)
    baseline = task.metrics(constant.expand(*run.outputs.shape), run.targets)
    reach = intervals(task, run.outputs, run.targets, counts=run.counts)
    return [
        {
            "name": name,
            "title": metric_title(name),
            "meaning": METRICS[name].meaning if name in METRICS else "",
            "better": ""
            if name not in METRICS
            else f"{'more' if METRICS[name].larger_is_better else 'less'} is better",
            "value": value,
            "interval": reach.get(name),
            "baseline": baseline.get(name, math.nan),
        }
        for name, value in found.items()
    ]


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


def parameter_rows(run: Run) -> list[dict[str, Any]]:
    """The estimator's parameters, and whether each differs from its default."""
    defaults = type(run.estimator)().get_params(deep=False)
    return [
        {"name": name, "value": value, "changed": value != defaults[name]}
        for name, value in run.estimator.get_params(deep=False).items()
    ]
