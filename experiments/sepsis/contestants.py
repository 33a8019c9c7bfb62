"""What stands beside table 2: the estimator's default and ensembles, and models that see no path."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from torch import Tensor

import neuralcde as nc
from neuralcde.models import PathModel, Trajectory

from .. import against_boosting
from ..contestants import Job
from ..experiment import Experiment
from ..lines import Line
from ..splits import Split
from .run import Stays, read_stays, split_of

MEMBERS = 5
NAMES = {  # those of `against_boosting`, and those of the configuration
    "one member": "single",
    "default": "default",
    "members": "ensemble",
    "members and boosting": "with_trees",
    "boosting": "boosting",
    "boosting, several": "several",
}


class SummariesAlone(PathModel, name="summaries_alone"):
    """No state at all: with the readout "summary", a network on encoded summaries of the series."""

    title = "a network on encoded summaries"

    def __init__(self, channels: int, outputs: int, *, hidden: int = 1, **options: Any):
        super().__init__(channels, outputs, hidden=hidden, initial=None, **options)

    def trajectory(self, path: nc.ControlPath, *, rows: bool = False, times: Tensor | None = None) -> Trajectory:
        """Zeros."""
        zeros = path.coefficients.new_zeros
        at_times = None if times is None else zeros(*times.shape, self.hidden)
        return Trajectory(zeros(len(path), self.hidden), zeros(len(path.series.times), self.hidden), at_times)


def ours_and_boosting(experiment: Experiment, data: Path, column: str, seed: int) -> dict[str, Line]:
    """One member, the default, five members, these with trees, trees alone, and five of these averaged."""
    stays, split = _data(experiment, data)
    found = against_boosting.contestants(
        stays.series,
        stays.labels,
        split,
        intensity=column == "with",
        members=MEMBERS,
        random_state=seed,
        first_seed=MEMBERS * seed,
    )
    return {NAMES[name]: _on_test(scores) for name, scores in found.items()}


def network(experiment: Experiment, data: Path, column: str, seed: int) -> dict[str, Line]:
    """The readout of the default alone: a network on encoded summaries, without a path and a state."""
    stays, split = _data(experiment, data)
    model = nc.NeuralCDEClassifier(
        model=SummariesAlone,
        hidden=1,
        pool="last",
        encoder=nc.RowMLP.with_options(features=("last",), outputs=1, width=1),  # nothing reads it
        readout="summary",
        members=1,
        intensity=column == "with",
        random_state=seed,
    )
    held_out = (stays.series[split.validation], stays.labels[split.validation])
    training, test = (stays.at(part) for part in (split.training, split.test))
    seconds, _ = against_boosting.timed(lambda: model.fit(training.series, training.labels, validation=held_out))
    scores = against_boosting.judge(test.labels, lambda: model.predict_proba(test.series), seconds)
    return {"network": _on_test(scores)}


def length_alone(experiment: Experiment, data: Path, column: str, seed: int) -> dict[str, Line]:
    """Trees on one number, the hour of the last row: what the end of the record gives away."""
    stays, split = _data(experiment, data)
    trees = HistGradientBoostingClassifier(random_state=seed)
    training, test = (stays.at(part) for part in (split.training, split.test))
    seconds, _ = against_boosting.timed(lambda: trees.fit(last_hours(training), training.labels))
    scores = against_boosting.judge(test.labels, lambda: trees.predict_proba(last_hours(test)), seconds)
    return {"length": _on_test(scores)}


def last_hours(stays: Stays) -> NDArray[np.float64]:
    """The hour of the last row of each stay, as a table with one column."""
    hours: NDArray[np.float64] = stays.series.times[stays.series.offsets[1:] - 1, None].numpy()
    return hours


def _data(experiment: Experiment, data: Path) -> tuple[Stays, Split]:
    """All stays, and the split of the table."""
    stays = read_stays(data, experiment.config["published"])
    return stays, split_of(stays, experiment.config["settings"]["data"])


def _on_test(scores: Line) -> Line:
    return {name if name.endswith("_seconds") else f"test_{name}": value for name, value in scores.items()}


JOBS = {
    "the estimator and boosting": Job(tuple(NAMES.values()), ours_and_boosting),
    "network": Job(("network",), network),
    "length": Job(("length",), length_alone),
}
