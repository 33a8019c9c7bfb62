"""Executing many runs, each in its own process; a finished run writes a line of results and is not repeated."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .experiment import HERE, Experiment, Run, Settings, merged
from .lines import Line, Lines, read_lines
from .models import matched
from .splits import FOLDS

PARTS = ("test", "held_out", "validation")  # the data that a run may be scored on


def run_of(line: Line, column: str) -> Run:
    """The run that a line of results belongs to."""
    return Run(line["model"], line[column], line["seed"], line["settings"])


def table_runs(
    experiment: Experiment, models: Sequence[str], runs: int | None, epochs: int | None, variant: str | None = None
) -> list[Run]:
    """The runs of every model in every column of the paper's table, ordered by seed."""
    most = runs or max(experiment.runs(model) for model in models)
    return [
        Run(model, column, seed, capped(experiment.settings(model, column=column, variant=variant), epochs))
        for seed, model, column in itertools.product(range(most), models, experiment.config["columns"])
        if runs or seed < experiment.runs(model)
    ]


def search_runs(experiment: Experiment, models: Sequence[str], runs: int | None, epochs: int | None) -> list[Run]:
    """The runs of the paper's grid search; models other than the searched one get matching numbers of parameters."""
    search = experiment.config["search"]
    sizes = [dict(zip(search["grid"], values, strict=True)) for values in itertools.product(*search["grid"].values())]
    found = []
    for seed, size, model in itertools.product(range(runs or 1), sizes, models):
        changes = merged(search["common"], {"model": size})
        settings = capped(experiment.settings(search["model"], changes, column=search["column"]), epochs)
        if model != search["model"]:
            settings = matched(experiment, model, settings)
        found.append(Run(model, search["column"], seed, settings))
    return list({run.key: run for run in found}.values())


def ablation_runs(experiment: Experiment, models: Sequence[str], runs: int | None, epochs: int | None) -> list[Run]:
    """The runs with one changed setting at a time. The seed also selects the fold, so changes are compared in pairs.

    Changes to options that a model does not have are left out, and those that are `only` for other models.
    """
    ablations = experiment.config["ablations"]
    return [
        Run(model, column, seed, changed(experiment, model, change, seed, epochs, column))
        for seed, model, column, change in itertools.product(
            range(runs or FOLDS), models, ablations["columns"], ablations["changes"]
        )
        if concerns(ablations["changes"][change], model, experiment.settings(model)["model"])
    ]


def concerns(change: Settings, model: str, options: Settings) -> bool:
    """Whether a change is for this model, which has these options."""
    if "only" in change:
        return model in change["only"]
    return set(change.get("model", {})) <= set(options)


def changed(
    experiment: Experiment, model: str, change: str, seed: int, epochs: int | None = None, column: Any = None
) -> Settings:
    """The settings of an ablation."""
    ablations = experiment.config["ablations"]
    change_of_settings = {name: table for name, table in ablations["changes"][change].items() if name != "only"}
    settings = merged(experiment.settings(model, ablations["common"], column=column), change_of_settings)
    return capped(merged(settings, {"data": {"fold": seed % FOLDS}}), epochs)


def capped(settings: Settings, epochs: int | None) -> Settings:
    """The settings with at most `epochs` epochs; None for no change."""
    most = settings["training"]["max_epochs"]
    return merged(settings, {"training": {"max_epochs": most if epochs is None else min(most, epochs)}})


def carry_out(
    experiment: Experiment, runs: list[Run], kind: str, *, data: Path, workers: int, test: bool = False
) -> int:
    """Execute the runs without a line of results, `workers` at a time, and write a line for each finished run.

    Returns
    -------
    int
        Number of failed runs. They get no line, and continue from their checkpoint next time.
    """
    failures = 0
    running: dict[subprocess.Popen[str], Run] = {}
    checkpoints = experiment.folder / "checkpoints" / kind
    shared = {"experiment": experiment.name, "config": str(experiment.config_file), "data": str(data.resolve())}
    with Lines(experiment.file(kind)) as lines:
        before = read_lines(lines.file)
        done = {run_of(line, experiment.config["column"]).key for line in before}
        todo = [run for run in runs if run.key not in done]
        for run in runs:
            if run.key in done:  # we may have been killed after writing its line, before removing its checkpoint
                shutil.rmtree(checkpoints / run.name, ignore_errors=True)
        print(f"{len(runs) - len(todo)} of {len(runs)} runs are in {lines.file} already.", flush=True)
        if todo:  # report a problem with the data once, not once per process
            _check_same_data(experiment.prepare(data, todo[0]).digest, before, lines.file, data)
        waiting, left = iter(todo), len(todo)
        try:
            while left:
                for run in itertools.islice(waiting, workers - len(running)):
                    outputs = outputs_file(experiment, run, kind)
                    job = {**shared, "run": asdict(run), "checkpoint": str(checkpoints / run.name), "test": test}
                    job["outputs"] = None if outputs is None else str(outputs)
                    running[_start(job, max(1, cores() // workers))] = run
                time.sleep(0.1)
                for process in [process for process in running if process.poll() is not None]:
                    run, line = running.pop(process), _result_of(process)
                    left -= 1
                    if line is None:
                        failures += 1
                        print(f"{run.name} failed (status {process.returncode}).", flush=True)
                        continue
                    lines.append(line | {"at_once": min(workers, len(todo))})
                    shutil.rmtree(checkpoints / run.name, ignore_errors=True)
                    print(f"{len(todo) - left}/{len(todo)}  {_summary(run, line, experiment)}", flush=True)
        finally:
            for process in running:
                process.kill()
                process.wait()
    return failures


def outputs_file(experiment: Experiment, run: Run, kind: str = "results") -> Path | None:
    """The file with the outputs of a run of the table, for models of which the configuration keeps them."""
    if kind != "results" or run.model not in experiment.config.get("keep_outputs", []):
        return None
    return experiment.folder / "checkpoints" / "outputs" / f"{run.name}.npz"


def cores() -> int:
    """Processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _check_same_data(digest: str, before: list[Line], file: Path, data: Path) -> None:
    if any(line["data"] != digest for line in before if "data" in line):
        raise ValueError(
            f"the runs in {file} were done on another source of the data than {data}, which orders and so splits them "
            "differently; use the same source, or another folder for the results with --out."
        )


def _start(job: dict[str, Any], threads: int) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "experiments.worker"],
        cwd=HERE.parent,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": str(threads)},
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps(job) + "\n")
    process.stdin.flush()
    return process


def _result_of(process: subprocess.Popen[str]) -> Line | None:
    output, _ = process.communicate()
    return json.loads(output.splitlines()[-1]) if process.returncode == 0 else None


def _summary(run: Run, line: Line, experiment: Experiment) -> str:
    metric = experiment.config["metric"]
    scores = [f"{part} {line[f'{part}_{metric}']:.4f}" for part in PARTS if f"{part}_{metric}" in line]
    return f"{run.name}  {', '.join(scores)}  {line['epochs']} epochs, {line['seconds']:.0f} s"
