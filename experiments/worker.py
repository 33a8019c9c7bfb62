"""A worker process for one run.

It reads a job as one line of JSON from standard input, and writes the results as one line to standard output. The
process exits when its standard input is closed, so no worker outlives its parent.
"""

from __future__ import annotations

import copy
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.memory import peak_megabytes
from numpy.typing import NDArray

import neuralcde as nc
from neuralcde.models import PathModel
from neuralcde.train import TrainingResult, TrainingSettings, outputs_of, train
from neuralcde.train.checkpoints import load_state

from .experiment import Experiment, Parts, Run
from .lines import Line
from .models import make_model, parameters
from .provenance import provenance


def perform(
    experiment: Experiment, run: Run, *, data: Path, checkpoint: Path, test: bool, outputs: Path | None = None
) -> Line:
    """Train a model, from its checkpoint if there is one, and score it; returns the line of results.

    `outputs` is a file for the outputs on the scored data, for ensembles; None to keep none.
    """
    config, about, start = experiment.config, provenance(), time.perf_counter()
    parts = experiment.prepare(data, run)
    torch.manual_seed(run.seed)
    model = make_model(run.model, run.settings, **parts.shape)
    settings = TrainingSettings(**run.settings["training"], seed=run.seed, verbose=0)
    _warm_up(model, parts)
    before, cpu = _epochs_in(checkpoint), time.process_time()
    result, memory = _watched(
        lambda: train(model, parts.task, parts.training, parts.validation, settings, folder=checkpoint, resume=True)
    )
    if result.interrupted:
        raise KeyboardInterrupt
    cpu, here = time.process_time() - cpu, len(result.history) - before
    scores, found = _scores(
        config["metric"], model, parts, "held_out" if "fold" in run.settings["data"] else "test", test=test
    )
    if outputs is not None:
        outputs.parent.mkdir(parents=True, exist_ok=True)
        np.savez(outputs, **found)  # type: ignore[arg-type]
    return {
        "model": run.model,
        "seed": run.seed,
        config["column"]: run.column,
        **scores,
        **_costs(result, config["metric"], experiment.paper(run.model, run.column)),
        # For a resumed run: extrapolated from the epochs since it was resumed.
        "cpu_seconds": round(cpu / here * len(result.history), 2) if here else None,
        "wall_seconds": round(time.perf_counter() - start + sum(row["seconds"] for row in result.history[:before]), 2),
        "peak_memory_mb": memory if here else None,
        "parameters": parameters(model),
        "settings": run.settings,
        "data": parts.digest,
        **about,
    }


def _scores(
    metric: str, model: PathModel, parts: Parts, last: str, *, test: bool
) -> tuple[Line, dict[str, NDArray[Any]]]:
    """The part of a line with the scores, and the outputs that were scored."""
    scored = {last: parts.test, "validation": parts.validation} if test else {"validation": parts.validation}
    line: Line = {}
    found = {}
    for name, data in scored.items():
        outputs, targets = outputs_of(model, data)
        line[f"{name}_{metric}"] = parts.task.metrics(outputs, targets)[metric]
        line[f"{name}_series"] = len(outputs)
        found[name] = outputs.numpy()
    return line, found


def _costs(result: TrainingResult, metric: str, paper: float | None) -> Line:
    """Learning curve, number of epochs and wall time, including the epochs before a run was resumed."""
    seconds = [row["seconds"] for row in result.history]
    curves = ("loss", "rate", "validation_loss", f"validation_{metric}")
    there = [k for k, row in enumerate(result.history) if paper is not None and row[f"validation_{metric}"] >= paper]
    return {
        "epochs": len(result.history),
        "best_epoch": result.best_epoch,
        "history": [{name: round(row[name], 5) for name in curves if name in row} for row in result.history],
        "skipped_batches": result.skipped_batches,
        "seconds": round(sum(seconds), 2),
        "seconds_per_epoch": round(sum(seconds) / len(seconds), 4),
        "seconds_to_paper": round(sum(seconds[: there[0] + 1]), 2) if there else None,
    }


def _warm_up(model: PathModel, parts: Parts) -> None:
    """Train one epoch on two series, so that one-time loading and allocation do not count as memory of the run."""
    few = nc.PathDataset(*parts.training[:2])
    train(copy.deepcopy(model), parts.task, few, few, TrainingSettings(max_epochs=1, verbose=0))


def _watched(run: Callable[[], TrainingResult]) -> tuple[TrainingResult, float | None]:
    """The result of a function and its peak memory in megabytes; None if the system cannot measure it."""
    if not Path("/proc/self/clear_refs").exists():
        return run(), None
    results: list[TrainingResult] = []
    memory = peak_megabytes(lambda: results.append(run()))
    return results[0], round(memory, 2)


def _epochs_in(folder: Path) -> int:
    file = folder / "checkpoint.pt"
    return len(load_state(file)["result"]["history"]) if file.exists() else 0


def main() -> None:
    """Read a job, execute it, and print its line of results."""
    job = json.loads(sys.stdin.readline())
    run, experiment = Run(**job["run"]), Experiment.find(job["experiment"], Path(job["config"]))

    def leave_with_parent() -> None:
        sys.stdin.read()
        os._exit(1)

    threading.Thread(target=leave_with_parent, daemon=True).start()
    line = perform(
        experiment,
        run,
        data=Path(job["data"]),
        checkpoint=Path(job["checkpoint"]),
        test=job["test"],
        outputs=None if job["outputs"] is None else Path(job["outputs"]),
    )
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
