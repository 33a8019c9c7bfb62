"""Where a number comes from: commit, versions, machine."""

from __future__ import annotations

import platform
import subprocess
from typing import Any

import numpy
import sklearn
import torch
from benchmarks.measure import _processor

import neuralcde

from .experiment import HERE


def provenance() -> dict[str, Any]:
    """What goes into every line of results."""
    return {
        "versions": {
            "neuralcde": neuralcde.__version__,
            "torch": torch.__version__,
            "numpy": numpy.__version__,
            "scikit-learn": sklearn.__version__,
            "python": platform.python_version(),
        },
        "commit": commit(),
        "machine": _processor(),
        "threads": torch.get_num_threads(),
    }


def commit() -> str:
    """The commit, with "-dirty" where the library differs from it; "unknown" outside a clone."""
    head = _git("rev-parse", "--short=12", "HEAD")
    if head is None:
        return "unknown"
    return head + ("-dirty" if _git("diff", "--stat", "HEAD", "--", "src", "native") else "")


def _git(*command: str) -> str | None:
    try:
        done = subprocess.run(["git", *command], cwd=HERE.parent, capture_output=True, text=True)
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None
