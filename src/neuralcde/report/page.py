"""One page about one run."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch

from ..figures import Drawing, Table, duration, number, percent, score
from ..system import write_atomically
from ..tasks import METRICS, metric_title
from .bootstrap import intervals, resamples
from .data import data_facts, data_figures
from .examples import example_figures
from .learning import learning_curves
from .run import Run, read_run

BARS = 60  # most channels, classes or labels with a line each


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
        test_tables=test_tables(run),
        examples=example_figures(run),
        causal=run.estimator.preparation_.scheme.causality != "none",
        parameters=parameter_rows(run),
        validated="validation_loss" in run.estimator.history_[0],
        seconds_of_epoch=sum(row["seconds"] for row in run.estimator.history_) / len(run.estimator.history_),
    )


def metric_rows(run: Run) -> list[dict[str, Any]]:
    """Every metric of the test, its interval, and what the task's baseline gets."""
    task = run.estimator.task_
    found = task.metrics(run.outputs, run.targets)
    constant = torch.tensor(run.data["baseline"], dtype=torch.float64)
    guess = task.metrics(constant.expand(*run.outputs.shape), run.targets)
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
            "guess": guess.get(name, math.nan),
        }
        for name, value in found.items()
    ]


def target_rows(run: Run) -> list[dict[str, Any]]:
    """One line per class or label with its counts, or per target with its quantiles."""
    found = run.data["targets"]
    return [{"name": name} | {part: found[part][k] for part in found} for k, name in enumerate(run.names)]


def test_figures(run: Run) -> list[Drawing]:
    """The task's figures; none where no target of the test is known."""
    return [] if bool(run.targets.isnan().all()) else run.estimator.task_.figures(run.evaluation)


def test_tables(run: Run) -> list[Table]:
    """The task's tables; none where no target of the test is known."""
    return [] if bool(run.targets.isnan().all()) else run.estimator.task_.tables(run.evaluation)


def parameter_rows(run: Run) -> list[dict[str, Any]]:
    """The estimator's parameters, and which of them are not the defaults."""
    defaults = type(run.estimator)().get_params(deep=False)
    return [
        {"name": name, "value": value, "changed": value != defaults[name]}
        for name, value in run.estimator.get_params(deep=False).items()
    ]
