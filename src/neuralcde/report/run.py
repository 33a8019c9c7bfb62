"""A finished run, read back from its folder."""

from __future__ import annotations

import dataclasses
import json
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load as from_safetensors
from torch import Tensor

from ..estimators import load
from ..estimators.path_estimator import PathEstimator
from ..series import IrregularSeries
from ..series.arrays import as_ids
from ..tasks import BinaryTask, MulticlassTask
from .record import PARTS, digests


@dataclass(frozen=True, eq=False)
class Run:
    """An estimator, and what `record_run` and `neuralcde fit` wrote beside it.

    Parameters
    ----------
    estimator
        Fitted.
    data
        The summary of the data.
    outputs, targets
        Of the test series; targets as the task encodes them.
    counts
        Targets of each test series: one, or one a row.
    examples
        Test series to look at; `data["examples"]` says where they lie in the test and why they were chosen.
    options
        Those that the command line was given; none where Python was used.
    cost
        Seconds, memory and parameters; none where they were not measured.
    """

    estimator: PathEstimator
    data: dict[str, Any]
    outputs: Tensor
    targets: Tensor
    counts: NDArray[np.int64]
    examples: IrregularSeries
    options: dict[str, Any]
    cost: dict[str, Any]

    @property
    def label(self) -> str:
        """What is predicted."""
        return str(self.options.get("label", "target"))

    @property
    def cases(self) -> str:
        """What has a target: a series, or a row of one."""
        return "rows" if self.estimator.per_row else "series"

    @property
    def names(self) -> list[str]:
        """Of the classes, labels or targets, in the order of the outputs."""
        task = self.estimator.task_
        if isinstance(task, BinaryTask | MulticlassTask):
            names = [f"{name:g}" if isinstance(name, float) else str(name) for name in task.classes]
            bare = isinstance(task, BinaryTask) and not isinstance(task.classes[0], str)
            return [f"{self.label} {name}" for name in names] if bare else names
        return [self.label] if task.outputs == 1 else [f"{self.label} {k + 1}" for k in range(task.outputs)]

    def rows_of(self, position: int) -> slice:
        """The targets of a test series."""
        stop = int(self.counts[: position + 1].sum())
        return slice(stop - int(self.counts[position]), stop)


def read_run(folder: Path) -> Run:
    """The run in a folder.

    Raises
    ------
    FileNotFoundError
        Where a file is missing.
    ValueError
        Where one is damaged, or does not belong to the others.
    """
    estimator = load(folder)
    try:
        data = json.loads(_content(folder / "data.json"))
        tensors = from_safetensors(_content(folder / "test_outputs.safetensors"))
        rows = from_safetensors(_content(folder / "examples.safetensors"))
        outputs, targets, counts = tensors["outputs"], tensors["targets"], tensors["counts"].numpy()
        ids = as_ids(data["ids"], argument="ids", fix="text")
        examples = dataclasses.replace(
            estimator.preparation_.template(),
            ids=ids,
            **{name: rows[name] for name in PARTS},  # type: ignore[arg-type]
        )
        same = data["files"] == digests(folder)
    except (SafetensorError, KeyError, TypeError, ValueError) as reason:
        raise ValueError(f"{folder} is damaged: {reason}") from reason
    if not same:
        raise ValueError(f"the files in {folder} are of different runs; run neuralcde fit again.")
    config, metrics = folder / "config.toml", folder / "metrics.json"
    return Run(
        estimator=estimator,
        data=data,
        outputs=outputs,
        targets=targets,
        counts=counts,
        examples=examples,
        options=tomllib.loads(config.read_text()) if config.is_file() else {},
        cost=json.loads(metrics.read_text()).get("cost", {}) if metrics.is_file() else {},
    )


def _content(file: Path) -> bytes:
    if not file.is_file():
        raise FileNotFoundError(
            f"{file} is not there; neuralcde fit writes it at its end. Run it again, or wait until it is done."
        )
    return file.read_bytes()
