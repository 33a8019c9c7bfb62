"""What people would use in place of the paper's models, on the same data, split and metric."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from .experiment import Experiment, Settings
from .lines import Line, Lines, read_lines
from .provenance import provenance

Measure = Callable[[Experiment, Path, Any, int], Mapping[str, Line]]


@dataclass(frozen=True)
class Job:
    """Contestants that are measured together: their names, and the function that gives a line for each.

    The function gets the experiment, the data folder, the column and the seed.
    """

    contestants: tuple[str, ...]
    measure: Measure


def contestant_settings(contestant: Settings) -> Settings:
    """The settings of a contestant that its results depend on."""
    return {name: value for name, value in contestant.items() if name not in ("title", "runs")}


def measure_contestants(experiment: Experiment, data: Path, names: Sequence[str], runs: int | None) -> int:
    """Measure what has no line of results yet, seed by seed; returns the number of failures.

    The jobs are `JOBS` in the experiment's `contestants.py`.
    """
    jobs: dict[str, Job] = import_module(f"experiments.{experiment.name}.contestants").JOBS
    known, column_name = experiment.config["contestants"], experiment.config["column"]
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"there is no contestant {', '.join(unknown)}; there are {', '.join(known)}.")
    failures = 0
    with Lines(experiment.file("contestants")) as lines:
        done = {
            (line["contestant"], line[column_name], line["seed"])
            for line in read_lines(lines.file)
            if line["settings"] == contestant_settings(known.get(line["contestant"], {}))
        }
        most = runs or max(known[name].get("runs", experiment.config["runs"]) for name in names)
        for seed, column, (job_name, job) in itertools.product(range(most), experiment.config["columns"], jobs.items()):
            wanted = [
                name
                for name in job.contestants
                if name in names and (runs or seed < known[name].get("runs", experiment.config["runs"]))
            ]
            missing = [name for name in wanted if (name, column, seed) not in done]
            if not missing:
                continue
            try:
                found = job.measure(experiment, data, column, seed)
            except (RuntimeError, ValueError) as reason:
                failures += 1
                print(f"{job_name}, {column}, seed {seed} failed: {reason}", flush=True)
                continue
            for name in missing:
                about = {"contestant": name, column_name: column, "seed": seed, **found[name]}
                lines.append({**about, "settings": contestant_settings(known[name]), **provenance()})
                score = found[name][f"test_{experiment.config['metric']}"]
                print(f"{name}, {column}, seed {seed}: {score:.4f}", flush=True)
    return failures
