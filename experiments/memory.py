"""The memory column of the table: peak memory of a training step, by model and gradient method."""

from __future__ import annotations

import itertools
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.memory import peak_megabytes
from benchmarks.models import SIZES, training_step

from .experiment import HERE, Experiment
from .lines import Line, Lines
from .models import make_model, parameters
from .provenance import provenance

PROCESSES = 5  # the memory that the system's allocator holds varies between processes
GRADIENTS = ("backsolve", "checkpoint", "backprop")  # the paper's method, our default, and plain backpropagation


def measure_memory(experiment: Experiment, models: list[str]) -> None:
    """Write one line of results per model and gradient method, with the median over several processes.

    If the sizes of the data differ between columns, there is such a line for every column.
    """
    config = experiment.config
    columns = config["columns"] if isinstance(config["memory"], dict) else [None]
    with Lines(experiment.file("memory")) as lines:
        for column, model, gradient in itertools.product(columns, models, GRADIENTS):
            measured = [_in_a_process(experiment, model, gradient, column) for _ in range(PROCESSES)]
            memory = [line.pop("memory_mb") for line in measured]
            middle = round(statistics.median(memory), 2)
            line = {"model": model, "gradient": gradient, "memory_mb": middle, "memory_mb_of_processes": memory}
            where = {} if column is None else {config["column"]: column}
            lines.append(where | line | measured[0] | provenance())
            print(f"{model}, {gradient}{'' if column is None else f', {column}'}: {middle:.1f} MB", flush=True)


def _in_a_process(experiment: Experiment, model: str, gradient: str, column: Any) -> Line:
    command = [sys.executable, "-m", "experiments.memory", experiment.name, str(experiment.config_file)]
    chosen = [model, gradient, json.dumps(column)]
    done = subprocess.run([*command, *chosen], cwd=HERE.parent, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise RuntimeError(f"{model} with {gradient} failed (status {done.returncode}); the reason is above.")
    line: Line = json.loads(done.stdout.splitlines()[-1])
    return line


def memory_of_step(experiment: Experiment, model: str, gradient: str, column: Any = None) -> Line:
    """The measured part of a line: additional resident memory of a forward and backward pass, in megabytes.

    The data are random walks with as many series, rows and channels as a batch of the experiment without dropped
    observations. Model and path are allocated before and do not count.
    """
    name = experiment.config["memory"]
    size = SIZES[name if column is None else name[str(column)]]
    settings = experiment.settings(model, {"model": {"gradient": gradient}}, column=column)
    made = make_model(model, settings, **experiment.shape(column))
    training_step(made, size.path(batch=2))()  # warm up: one-time loading and allocation must not count
    memory = round(peak_megabytes(training_step(made, size.path())), 2)
    return {"memory_mb": memory, "parameters": parameters(made), "settings": {"model": settings["model"]}}


if __name__ == "__main__":
    name, config, *chosen, column = sys.argv[1:]
    print(json.dumps(memory_of_step(Experiment.find(name, Path(config)), *chosen, json.loads(column))))
