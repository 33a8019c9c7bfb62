"""The base class of tasks: output size, loss, decoding, metrics, and the task's part of tables and reports."""

from __future__ import annotations

import math
import reprlib
import sys
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from ..contracts import Part, Registry
from ..figures import Drawing, SlidingTable, Table, number, short
from .boosting import BoostingProblem
from .evaluation import Curve, Evaluation, Forecast, Role

QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
LINES = 4  # most curves of a forecast
LISTED_CASES = 10_000  # fewest cases in the list that stands for weighted cases


def listed_by_weight(weights: Float[Tensor, " cases"]) -> Int[Tensor, " listed"]:
    """Positions of cases, each as often as its weight says: statistics of the list are those of the weighted cases."""
    ends = weights.double().cumsum(0)
    count = max(LISTED_CASES, len(weights))
    places = (torch.arange(count, dtype=torch.float64, device=ends.device) + 0.5) * (ends[-1] / count)
    return torch.searchsorted(ends, places).clamp(max=len(weights) - 1)


class Task(Part):
    """What y means: output size, loss, decoding, metrics, and the task's part of prediction tables and reports.

    Subclass it as a dataclass and give it a name; the fields must be numbers, text, or tuples of these, so that a
    task can be saved as JSON. `from_targets` learns the fields from y. Seven methods are required: `outputs`, `encode`,
    `loss`, `prior`, `decode`, `metrics` and the attribute `metric`; the others have defaults that work for every task.

    Targets and outputs have the same leading shape: one entry per series, or one per row where y changes over time.
    A target of NaN is unknown and is ignored.
    """

    registry: ClassVar[Registry[type[Task]]]
    goal: ClassVar[Literal["classification", "regression"]] = "regression"
    """Which estimator trains it: the classifier needs `probabilities` and `columns`."""
    metric: ClassVar[str]
    """The metric that chooses the best epoch; larger is better."""
    summarised_by: ClassVar[Literal["counts", "quantiles"]] = "quantiles"
    """How the report describes the targets: a count per class, or quantiles per target."""
    title: ClassVar[str] = "Prediction"
    """The kind of task, for the report."""
    score_unit: ClassVar[str] = ""
    """Unit of `scores`: "log odds" if the logistic function makes probabilities of them."""

    @classmethod
    def from_targets(cls, y: NDArray[Any], **options: Any) -> Self:
        """Make the task for these training targets, all of them known."""
        return cls(**options)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """Make the task that `to_config` described; a ValueError for anything else."""
        options = {name: tuple(x) if isinstance(x, list) else x for name, x in config.items()}
        name = str(options.pop("name", ""))
        member: Any = cls.registry[name]
        try:
            made: Self = member(**options)
        except TypeError as reason:  # options are missing or unknown
            raise ValueError(f"task {name!r} cannot be made of {reprlib.repr(sorted(options))}: {reason}") from reason
        return made

    # ---- required ----

    @property
    @abstractmethod
    def outputs(self) -> int:
        """Number of outputs of the model."""
        raise NotImplementedError(f"{type(self).__name__} must define outputs")

    @abstractmethod
    def encode(self, y: Any) -> Float[Tensor, "..."]:
        """Targets as the loss takes them, in float64; NaN where unknown."""
        raise NotImplementedError(f"{type(self).__name__} must define encode(y)")

    @abstractmethod
    def loss(self, outputs: Float[Tensor, "*cases outputs"], targets: Float[Tensor, "..."]) -> Float[Tensor, ""]:
        """Mean loss over the known targets."""
        raise NotImplementedError(f"{type(self).__name__} must define loss(outputs, targets)")

    @abstractmethod
    def prior(self, targets: Float[Tensor, "..."]) -> Float[Tensor, " outputs"]:
        """The constant outputs with the least loss on these targets. The bias of the readout starts there."""
        raise NotImplementedError(f"{type(self).__name__} must define prior(targets)")

    @abstractmethod
    def decode(self, outputs: Float[Tensor, "*cases outputs"]) -> NDArray[Any]:
        """Predictions in the units of y."""
        raise NotImplementedError(f"{type(self).__name__} must define decode(outputs)")

    @abstractmethod
    def metrics(self, outputs: Float[Tensor, "*cases outputs"], targets: Float[Tensor, "..."]) -> dict[str, float]:
        """Metrics over the known targets, by name; NaN where a metric is undefined."""
        raise NotImplementedError(f"{type(self).__name__} must define metrics(outputs, targets)")

    # ---- training and evaluation ----

    def test_metrics(self, outputs: Float[Tensor, "*cases outputs"], targets: Float[Tensor, "..."]) -> dict[str, float]:
        """Metrics of a test: `metrics`, and any that are of no use after each epoch."""
        return self.metrics(outputs, targets)

    def weight(self, targets: Float[Tensor, "..."]) -> float:
        """The weight of a batch in the mean loss over all batches: the number of known targets."""
        return float((~targets.isnan()).sum())

    def weighted_loss(
        self,
        outputs: Float[Tensor, "cases outputs"],
        targets: Float[Tensor, "cases ..."],
        weights: Float[Tensor, " cases"],
    ) -> tuple[Float[Tensor, ""], float]:
        """Mean loss over the known targets with a weight per case, and the sum of the weights of the known targets.

        A case with weight 2 counts like two equal cases. Where all weights are 1, these are `loss` and `weight`. The
        default calls both once per distinct weight; a task may override it with something faster.
        """
        loss, total = 0.0 * outputs.sum(), 0.0
        for value in weights[weights > 0].unique().tolist():  # type: ignore[no-untyped-call]
            chosen = weights == value
            weight = value * self.weight(targets[chosen])
            if weight:
                loss, total = loss + weight * self.loss(outputs[chosen], targets[chosen]), total + weight
        return (loss / total if total else loss), total

    def weighted_prior(
        self, targets: Float[Tensor, "cases ..."], weights: Float[Tensor, " cases"] | None
    ) -> Float[Tensor, " outputs"]:
        """`prior` of cases with weights, to about four digits; None for equal weights."""
        return self.prior(targets if weights is None else targets[listed_by_weight(weights)])

    def losses(self, outputs: Float[Tensor, "*cases outputs"], targets: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Loss of each case, without class weights; NaN where its target is unknown."""
        return torch.stack([self.loss(outputs[i : i + 1], targets[i : i + 1]) for i in range(len(targets))]).double()

    def baseline(self, targets: Float[Tensor, "..."]) -> Float[Tensor, " outputs"]:
        """Constant outputs that know the training targets and no series: what every model must beat."""
        return self.prior(targets)

    def boosting_problems(self, targets: Float[Tensor, "cases ..."]) -> list[BoostingProblem] | None:
        """What gradient boosting learns for this task; None if the task cannot be boosted.

        The raw scores of all problems together are the outputs of the task, so that they can be averaged with those of
        a model.
        """
        return None

    def unweighted(self) -> Self:
        """The same task without weights of classes."""
        return self

    def softened(
        self,
        targets: Float[Tensor, "cases ..."],
        outputs: Float[Tensor, "cases outputs"],
        share: float,
    ) -> Float[Tensor, "cases ..."] | None:
        """Training targets in which `share` is what another model's outputs predict, NaN where the target is unknown.

        The loss on them is the mixture of two: (1 - share) of that on the targets, and `share` of that on the
        predictions. The outputs are those of a model for the `unweighted` task. None if the task has no such targets.
        """
        return None

    def indicators(self, targets: Float[Tensor, "cases ..."]) -> Float[Tensor, "cases scores"] | None:
        """The truth behind each of the `scores`, 1 or 0, NaN where unknown; None if the task cannot be calibrated."""
        return None

    def outputs_of_scores(self, log_odds: Float[Tensor, "*cases scores"]) -> Float[Tensor, "*cases outputs"]:
        """Outputs with these log odds, the inverse of `scores`, where these are log odds."""
        return log_odds

    def centred(self, outputs: Float[Tensor, "*cases outputs"]) -> Float[Tensor, "*cases outputs"]:
        """Outputs without any part that has no effect on predictions, so that two models' outputs can be compared."""
        return outputs

    def resampled_metrics(
        self, outputs: Float[Tensor, "cases outputs"], targets: Float[Tensor, "cases ..."], weights: NDArray[Any]
    ) -> dict[str, NDArray[Any]]:
        """The metrics of `test_metrics` for bootstrap resamples, one value per resample.

        Parameters
        ----------
        outputs, targets
            Of the test series.
        weights
            How often each resample draws each case, (resamples, cases).
        """
        rows = []
        for draws in weights:
            drawn = torch.from_numpy(np.repeat(np.arange(len(draws)), draws.astype(int)))
            rows.append(self.test_metrics(outputs[drawn], targets[drawn]))
        return {name: np.array([row[name] for row in rows]) for name in rows[0]}

    def check_encoded(self, targets: Tensor, cases: int) -> None:
        """Refuse a tensor that `encode` cannot have given for so many cases."""
        if len(targets) != cases or targets.dtype != torch.float64 or bool(targets.isinf().any()):
            raise ValueError(f"targets are not {cases} numbers.")

    # ---- tables and reports ----

    def scores(self, outputs: Float[Tensor, "*cases outputs"]) -> Float[Tensor, "*cases scores"]:
        """Outputs in float64, in a unit for people: explanations split them into terms. One per `score_names`."""
        return outputs.detach().double()

    def score_names(self, label: str) -> list[str]:
        """Names of the scores, given the name of the column y."""
        return self.target_names(label)

    def target_names(self, label: str) -> list[str]:
        """Names of the classes, labels or targets, given the name of the column y."""
        return [label] if self.outputs == 1 else [f"{label} {k + 1}" for k in range(self.outputs)]

    def subject(self, names: list[str]) -> str:
        """The one class that metrics of single classes, figures and explanations are about; empty if there is none.

        `names` are those of `target_names`.
        """
        return ""

    def prediction_columns(self, outputs: Float[Tensor, "cases outputs"], label: str) -> dict[str, list[Any]]:
        """Columns of a prediction table; several targets are numbered."""
        decoded = self.decode(outputs)
        if decoded.ndim == 1:
            return {label: decoded.tolist()}
        return {f"{label}_{k}": decoded[:, k].tolist() for k in range(decoded.shape[1])}

    def summary(self, targets: Float[Tensor, "..."]) -> list[Any]:
        """What the report says of the targets: one list of `QUANTILES` per name, empty where no target is known."""
        columns = targets.reshape(len(targets), -1).double().numpy().T
        known = [column[~np.isnan(column)] for column in columns]
        return [np.quantile(column, QUANTILES).tolist() if len(column) else [] for column in known]

    def contrasted(self, targets: Float[Tensor, "cases ..."]) -> list[NDArray[np.bool_]]:
        """Groups of cases of which the report shows one each; none to show the best and a typical one of all."""
        return []

    def figures(self, test: Evaluation) -> list[Drawing]:
        """Figures of the test results."""
        return []

    def tables(self, test: Evaluation) -> list[Table]:
        """Tables of the test results, beside the figures."""
        return []

    def sliding_tables(self, test: Evaluation) -> list[SlidingTable]:
        """Tables of the test results along a quantity such as the threshold of an alarm, each with a slider."""
        return []

    def forecast(
        self, outputs: Float[Tensor, "times outputs"], truth: Float[Tensor, "..."], names: list[str]
    ) -> Forecast:
        """Predictions for one series over time; `truth` has one encoded target, or one per row."""
        values, true = outputs.double().numpy(), truth.reshape(len(truth), -1).double().numpy()
        curves = [Curve(short(names[k], 18), values[:, k], true[:, k]) for k in range(min(len(names), LINES))]
        return Forecast("outputs of the model; dashed: true", curves)

    def verdict(
        self, outputs: Float[Tensor, "1 outputs"], target: Float[Tensor, "1 ..."], names: list[str], role: Role
    ) -> tuple[str, str]:
        """Title and sentence for an example: what it is an example of, and what was predicted."""
        found = ", ".join(map(_in_words, np.ravel(self.decode(outputs)).tolist()))
        return GENERAL_VERDICTS[role], f"Predicted {found}"


Task.registry = Registry("task", Task)
GENERAL_VERDICTS: dict[Role, str] = {"surest": "the best", "typical": "a typical one", "worst": "the worst"}


def _in_words(value: Any) -> str:
    return number(value) if is_finite(value) else short(value)


def is_finite(value: Any) -> bool:
    """Whether a value is a number, and finite as a float; True and False are no numbers."""
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return abs(int(value)) <= sys.float_info.max
    return isinstance(value, float | np.floating) and math.isfinite(value)


def missing_targets(y: NDArray[Any]) -> NDArray[np.bool_]:
    """Where a target is unknown: NaN, None, or pandas' NA."""
    if y.dtype != object:
        missing: NDArray[np.bool_] = y != y
        return missing
    return np.fromiter(map(_is_missing, y.ravel()), dtype=bool, count=y.size).reshape(y.shape)


def _is_missing(item: Any) -> bool:
    if item is None:
        return True
    differs = item != item
    # NA != NA is NA, which has no truth value; comparing a list or an array tells nothing
    return bool(differs) if isinstance(differs, bool | np.bool_) else type(differs).__name__ == "NAType"
