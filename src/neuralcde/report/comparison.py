"""The HTML page that compares several runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from ..figures import duration, number
from ..system import write_atomically
from ..tasks import METRICS, metric_title_of
from .bootstrap import differences, percentile_intervals, resampled
from .html import render_page
from .run import Run, read_run


def write_comparison(folders: Sequence[str | Path], file: str | Path) -> Path:
    """Write a page that compares runs: their test metrics, their cost, and the options in which they differ.

    If the runs have the same test series, the differences to the first run have intervals on the same resamples.

    Parameters
    ----------
    folders
        Folders of the runs, as for `write_report`.
    file
        The page to write.

    Returns
    -------
    Path
        Absolute path of the page.

    Raises
    ------
    FileNotFoundError, ValueError
        If a file of a run is missing or damaged, or if the runs are not about the same target.
    """
    runs = [read_run(Path(folder)) for folder in folders]
    check_comparable(runs, folders)
    names = [str(folder) for folder in folders]
    write_atomically(Path(file), render_comparison(runs, names).encode())
    return Path(file).resolve()


def check_comparable(runs: Sequence[Run], folders: Sequence[str | Path]) -> None:
    """Refuse runs whose metrics are not of the same target."""
    first = runs[0]
    for run, folder in zip(runs[1:], folders[1:], strict=True):
        if (run.label, run.names, run.cases) != (first.label, first.names, first.cases):
            raise ValueError(
                f"{folder} predicts {run.label} of {run.cases} ({', '.join(run.names[:5])}), but {folders[0]} predicts "
                f"{first.label} of {first.cases} ({', '.join(first.names[:5])}); only runs with one target can be "
                "compared."
            )


def same_test(runs: Sequence[Run]) -> bool:
    """Whether all runs were tested on the same series with the same targets."""
    first = runs[0]
    return all(
        run.data["test_ids"] == first.data["test_ids"]
        and torch.equal(run.targets.nan_to_num(), first.targets.nan_to_num())
        for run in runs[1:]
    )


def render_comparison(runs: Sequence[Run], names: Sequence[str]) -> str:
    """The page as HTML text."""
    task = runs[0].estimator.task_
    paired = same_test(runs)
    # Classes that are about equally frequent may be the event of one run and not of the other; numbers have a unit of
    # each run.
    tasks = [task if task.goal == "classification" else run.estimator.task_ for run in runs]
    found = [one.test_metrics(run.outputs, run.targets) for one, run in zip(tasks, runs, strict=True)]
    draws = [resampled(one, run.outputs, run.targets, counts=run.counts) for one, run in zip(tasks, runs, strict=True)]
    apart = [percentile_intervals(differences(one, draws[0])) for one in draws]
    metrics = []
    for name in found[0]:
        cells = []
        for place in range(len(runs)):
            difference = None
            if paired and place:
                reach = apart[place].get(name)
                difference = None if reach is None else (found[place][name] - found[0][name], *reach)
            cells.append(
                {
                    "value": found[place].get(name, math.nan),
                    "interval": percentile_intervals(draws[place]).get(name),
                    "difference": difference,
                }
            )
        metrics.append(
            {
                "title": metric_title_of(name, task.subject(runs[0].names)),
                "meaning": METRICS[name].meaning if name in METRICS else "",
                "cells": cells,
                "main": name == task.metric,
            }
        )
    return render_page(
        "comparison.html",
        label=runs[0].label,
        names=names,
        metrics=metrics,
        paired=paired,
        facts=_facts(runs),
        options=_different_options(runs),
    )


def _facts(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """What was trained on what, and what it cost: one row per fact, one cell per run."""

    def row(title: str, cells: list[str]) -> dict[str, Any]:
        return {"title": title, "cells": cells}

    return [
        row("model", [run.estimator.module_.title for run in runs]),
        row("training series", [number(run.data["series"]["training"]) for run in runs]),
        row("test series", [number(run.data["series"]["test"]) for run in runs]),
        row("channels", [number(len(run.data["series"]["channels"])) for run in runs]),
        row("parameters", [number(run.cost.get("parameters")) for run in runs]),
        row("time", [duration(run.cost["seconds"]) if run.cost else "not measured" for run in runs]),
        row("fitted", [run.data["written"][:10] for run in runs]),
        row("to check", [" ".join(item["text"] for item in run.data["findings"]) or "nothing" for run in runs]),
    ]


def _different_options(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """The options of the command and the parameters of the estimators that are not the same in all runs.

    The columns that not all runs have come last: the options may be patterns, or leave them to the table.
    """
    given = [_options(run) for run in runs]
    names = list(dict.fromkeys(name for one in given for name in one))
    rows = [(name, [one.get(name, "-") for one in given]) for name in names]
    for title in ("channels", "static"):
        columns = [[column["name"] for column in run.data["series"][title]] for run in runs]
        everywhere = set(columns[0]).intersection(*columns)
        own = [", ".join(name for name in one if name not in everywhere) or "-" for one in columns]
        rows.append((f"{'channels' if title == 'channels' else 'static columns'} that not all runs have", own))
    return [{"title": name, "cells": cells} for name, cells in rows if len(set(cells)) > 1]


def _options(run: Run) -> dict[str, str]:
    """The options of a run as text: those of the command, then the parameters of the estimator."""
    parameters = run.estimator.get_params(deep=False)
    own = {name: value for name, value in run.options.items() if name not in parameters}
    shown = {name: ", ".join(map(str, value)) if isinstance(value, list) else str(value) for name, value in own.items()}
    # random_state is the seed of the command
    return shown | {name: repr(value) for name, value in parameters.items() if not own or name != "random_state"}
