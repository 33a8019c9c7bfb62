"""Provenance of results: commit, versions, machine, date."""

from __future__ import annotations

import platform
import subprocess
from datetime import UTC, datetime
from typing import Any

import numpy
import sklearn
import torch
from benchmarks.measure import processor

import neuralcde
from neuralcde.paths import native_level

from .experiment import HERE

CODE = ("src", "native", "benchmarks/*.py", "experiments/*.py", "experiments/*/*.py", "experiments/*/*.toml")


def provenance() -> dict[str, Any]:
    """The entries that every line of results has."""
    return {
        "versions": {
            "neuralcde": neuralcde.__version__,
            "torch": torch.__version__,
            "numpy": numpy.__version__,
            "scikit-learn": sklearn.__version__,
            "python": platform.python_version(),
        },
        "commit": commit(),
        "machine": processor(),
        "kernels": native_level(),
        "threads": torch.get_num_threads(),
        "date": datetime.now(UTC).date().isoformat(),
    }


def commit() -> str:
    """The commit, with "-dirty" if the code differs from it; "unknown" outside a git clone."""
    head = _git("rev-parse", "--short=12", "HEAD")
    if head is None:
        return "unknown"
    return head + ("-dirty" if _git("diff", "--stat", "HEAD", "--", *CODE) else "")


def _git(*command: str) -> str | None:
    try:
        done = subprocess.run(["git", *command], cwd=HERE.parent, capture_output=True, text=True)
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None
