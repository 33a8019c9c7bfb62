"""The table's memory column: peak memory of a training step, by model and by way to the gradient."""

from __future__ import annotations

import json
import subprocess
import sys

from .experiment import HERE, Experiment
from .lines import Lines
from .models import MODELS
from .provenance import provenance

GRADIENTS = ("backsolve", "checkpoint", "backprop")  # the paper's, ours, and plain automatic differentiation


def measure_memory(experiment: Experiment, models: list[str]) -> None:
    """A line for each, from `benchmarks.models` in a process of its own: resident memory beyond model and path."""
    with Lines(experiment.file("memory")) as lines:
        for model in models:
            for gradient in GRADIENTS:
                command = [sys.executable, "-m", "benchmarks.models", experiment.config["memory"], MODELS[model][0]]
                done = subprocess.run(
                    [*command, gradient], cwd=HERE.parent, stdout=subprocess.PIPE, text=True, check=True
                )
                memory = json.loads(done.stdout.splitlines()[-1])
                lines.append({"model": model, "gradient": gradient, "memory_mb": round(memory, 2), **provenance()})
                print(f"{model}, {gradient}: {memory:.1f} MB", flush=True)
