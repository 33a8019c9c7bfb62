"""A finished run, read back from its folder."""

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
from ..estimators.json_shapes import check_shape
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
        """Names of the classes, labels or targets."""
        return self.estimator.task_.target_names(self.label)

    @property
    def evaluation(self) -> Evaluation:
        """The test results, as a task takes them."""
        return Evaluation(self.outputs, self.targets, self.names, self.cases)

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
        examples=examples,
        options=_options(folder),
        cost=_cost(folder),
    )


def _options(folder: Path) -> dict[str, Any]:
    """What the command line was given."""
    file = folder / "config.toml"
    if not file.exists():
        return {}
    content = read_file(folder, file.name, LARGEST_TOML)
    with damage_named(file):
        return tomllib.loads(content.decode())


def _cost(folder: Path) -> dict[str, Any]:
    """What the run took."""
    file = folder / "metrics.json"
    if not file.exists():
        return {}
    found = parse_json(file, read_file(folder, file.name, LARGEST_JSON))
    with damage_named(file):
        check_shape(found, {"cost": COST})
    return dict(found["cost"])
