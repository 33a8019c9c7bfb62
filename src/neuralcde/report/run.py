"""Read a finished run from its folder."""

from __future__ import annotations

import dataclasses
import reprlib
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..estimators import load
from ..estimators.json_shapes import NOT_NEGATIVE, OrNull, check_shape
from ..estimators.path_estimator import PathEstimator
from ..estimators.untrusted_folder import (
    LARGEST_JSON,
    LARGEST_TENSORS,
    damage_named,
    parse_json,
    parse_tensors,
    read_file,
)
from ..series import IrregularSeries
from ..series.arrays import as_ids
from ..tasks import Evaluation
from .record import PARTS, RECORDED, digest
from .record_checks import COST, check_data, check_examples, check_outputs

LARGEST_TOML = 2**20
FILES = {
    "data.json": LARGEST_JSON,
    "test_outputs.safetensors": LARGEST_TENSORS,
    "examples.safetensors": LARGEST_TENSORS,
    "model.safetensors": LARGEST_TENSORS,
}
UNFINISHED = "neuralcde fit writes it at its end. Run it again, or wait until it is done."


@dataclass(frozen=True, eq=False)
class Run:
    """A fitted estimator with the recorded data summary, test outputs and examples.

    Parameters
    ----------
    estimator
        The fitted estimator.
    data
        Content of data.json: a summary of the data.
    outputs, targets
        Raw outputs for the test series, and their targets as encoded by the task.
    counts
        Number of targets per test series: 1, or the number of rows if there is one target per row.
    beside
        Raw outputs of gradient boosting for the test series; None if it was not fitted.
    examples
        Example test series. `data["examples"]` holds the position and the role of each.
    options
        Options of the command line; empty if the run was made in Python.
    cost
        Seconds, memory and number of parameters; empty if they were not measured.
    """

    estimator: PathEstimator
    data: dict[str, Any]
    outputs: Tensor
    targets: Tensor
    counts: NDArray[np.int64]
    beside: Tensor | None
    examples: IrregularSeries
    options: dict[str, Any]
    cost: dict[str, Any]

    @property
    def label(self) -> str:
        """Name of the target."""
        return str(self.options.get("label", "target"))

    @property
    def cases(self) -> str:
        """The unit that has a target, in the plural: series or rows."""
        return "rows" if self.estimator.per_row else "series"

    @property
    def names(self) -> list[str]:
        """Names of the classes, labels or targets."""
        return self.estimator.task_.target_names(self.label)

    @property
    def evaluation(self) -> Evaluation:
        """The test results in the form that a task takes."""
        return Evaluation(self.outputs, self.targets, self.names, self.cases, self.beside)

    def rows_of(self, position: int) -> slice:
        """The slice of `outputs` and `targets` that belongs to a test series."""
        stop = int(self.counts[: position + 1].sum())
        return slice(stop - int(self.counts[position]), stop)


def read_run(folder: Path) -> Run:
    """Read the run in a folder.

    Raises
    ------
    FileNotFoundError
        If a file is missing.
    ValueError
        If a file is damaged, or the files are of different runs.
    """
    estimator = load(folder)
    contents = {name: read_file(folder, name, largest, missing=UNFINISHED) for name, largest in FILES.items()}
    data = parse_json(folder / "data.json", contents["data.json"])
    with damage_named(folder / "data.json"):
        check_data(data, estimator)
        ids = as_ids(data["ids"], argument="ids", fix="text")
    if data["files"] != {name: digest(contents[name]) for name in RECORDED}:
        raise ValueError(f"the files in {folder} are of different runs; run neuralcde fit again.")
    tensors = parse_tensors(folder / "test_outputs.safetensors", contents["test_outputs.safetensors"])
    with damage_named(folder / "test_outputs.safetensors"):
        check_outputs(tensors, data, estimator)
    rows = parse_tensors(folder / "examples.safetensors", contents["examples.safetensors"])
    with damage_named(folder / "examples.safetensors"):
        if set(rows) != set(PARTS):
            raise ValueError(f"it holds {reprlib.repr(sorted(rows))}, expected {sorted(PARTS)}.")
        examples = dataclasses.replace(estimator.preparation_.template(), ids=ids, **rows)  # type: ignore[arg-type]
        check_examples(examples, tensors, data, estimator)
    return Run(
        estimator=estimator,
        data=data,
        outputs=tensors["outputs"],
        targets=tensors["targets"],
        counts=tensors["counts"].numpy(),
        beside=tensors.get("beside"),
        examples=examples,
        options=_options(folder),
        cost=_cost(folder),
    )


def recorded_spread(folder: Path) -> float | None:
    """The mean spread of an ensemble on its test series, from data.json; None if it was not recorded."""
    file = folder / "data.json"
    if not file.exists():
        return None
    found = parse_json(file, read_file(folder, file.name, LARGEST_JSON))
    with damage_named(file):
        check_shape(found, {"spread": OrNull(NOT_NEGATIVE)})
    return None if found["spread"] is None else float(found["spread"])


def _options(folder: Path) -> dict[str, Any]:
    """Options of the command line, from config.toml."""
    file = folder / "config.toml"
    if not file.exists():
        return {}
    content = read_file(folder, file.name, LARGEST_TOML)
    with damage_named(file):
        return tomllib.loads(content.decode())


def _cost(folder: Path) -> dict[str, Any]:
    """Time, memory and number of parameters, from metrics.json."""
    file = folder / "metrics.json"
    if not file.exists():
        return {}
    found = parse_json(file, read_file(folder, file.name, LARGEST_JSON))
    with damage_named(file):
        check_shape(found, {"cost": COST})
    return dict(found["cost"])
