"""The memory column of the table: peak memory of a training step, by model and gradient method."""

from __future__ import annotations

import itertools
import json
import statistics
import subprocess
import sys
from pathlib import Path

from benchmarks.memory import peak_megabytes
from benchmarks.models import SETTINGS, training_step

from .experiment import HERE, Experiment
from .lines import Line, Lines
from .models import make_model, parameters
from .provenance import provenance

PROCESSES = 5  # the memory that the system's allocator holds varies between processes
GRADIENTS = ("backsolve", "checkpoint", "backprop")  # the paper's method, our default, and plain backpropagation


def measure_memory(experiment: Experiment, models: list[str]) -> None:
    """Write one line of results per model and gradient method, with the median over several processes."""
    with Lines(experiment.file("memory")) as lines:
        for model, gradient in itertools.product(models, GRADIENTS):
            measured = [_in_a_process(experiment, model, gradient) for _ in range(PROCESSES)]
            memory = [line.pop("memory_mb") for line in measured]
            middle = round(statistics.median(memory), 2)
            line = {"model": model, "gradient": gradient, "memory_mb": middle, "memory_mb_of_processes": memory}
            lines.append(line | measured[0] | provenance())
            print(f"{model}, {gradient}: {middle:.1f} MB", flush=True)


def _in_a_process(experiment: Experiment, model: str, gradient: str) -> Line:
    command = [sys.executable, "-m", "experiments.memory", experiment.name, str(experiment.config_file)]
    done = subprocess.run([*command, model, gradient], cwd=HERE.parent, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise RuntimeError(f"{model} with {gradient} failed (status {done.returncode}); the reason is above.")
    line: Line = json.loads(done.stdout.splitlines()[-1])
    return line


def memory_of_step(experiment: Experiment, model: str, gradient: str) -> Line:
    """The measured part of a line: additional resident memory of a forward and backward pass, in megabytes.

    The data are random walks with as many series, rows and channels as a batch of the experiment without dropped
    observations. Model and path are allocated before and do not count.
    """
    size = SETTINGS[experiment.config["memory"]]
    settings = experiment.settings(model, {"model": {"gradient": gradient}})
    made = make_model(model, settings, **experiment.config["shape"])
    training_step(made, size.path(batch=2))()  # warm up: one-time loading and allocation must not count
    memory = round(peak_megabytes(training_step(made, size.path())), 2)
    return {"memory_mb": memory, "parameters": parameters(made), "settings": {"model": settings["model"]}}


if __name__ == "__main__":
    name, config, *chosen = sys.argv[1:]
    print(json.dumps(memory_of_step(Experiment.find(name, Path(config)), *chosen)))
