"""Binary classification."""

from __future__ import annotations

import dataclasses
import reprlib
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from sklearn.metrics import accuracy_score, average_precision_score, brier_score_loss, log_loss, roc_auc_score
from sklearn.utils.class_weight import compute_class_weight
from torch import Tensor
from torch.nn import functional

from ..figures import Drawing, SlidingTable, short
from .boosting import BoostingProblem
from .calibration_slope import calibration_slopes
from .class_figures import binary_figures, where_known
from .classification import ExclusiveClasses, check_weights, log_odds, sigmoid
from .evaluation import Curve, Evaluation, Forecast
from .metrics import weighted_log_loss, weighted_mean, weighted_ranking
from .operating_points import operating_points

# Names of a class that say that something is not so: the other class is the event, however common it is.
NO = frozenset(("no", "n", "false", "f", "none", "never", "not", "negative", "neg", "absent", "healthy", "0"))


@dataclass
class BinaryTask(ExclusiveClasses, name="binary"):
    """One of two classes. The output is one logit, the loss binary cross-entropy.

    Parameters
    ----------
    classes
        The negative class (target 0) and the positive class (target 1).
    positive_weight
        Weight of a positive relative to a negative in the loss.
    event
        The class that average precision, figures, alarms and explanations are about, 0 or 1. The output is the logit of
        class 1 all the same.
    """

    metric: ClassVar[str] = "auroc"
    score_unit: ClassVar[str] = "log odds"
    classes: tuple[Any, ...]
    positive_weight: float = 1.0
    event: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.classes) != 2:
            raise ValueError(f"classes must be two, got {reprlib.repr(self.classes)}.")
        check_weights("positive_weight", (self.positive_weight,), 1)
        if self.event not in (0, 1) or isinstance(self.event, bool):
            raise ValueError(f"event must be 0 or 1, got {reprlib.repr(self.event)}.")

    @classmethod
    def from_targets(cls, y: NDArray[Any], *, class_weight: Any = None, **options: Any) -> Self:
        """The two classes in y, and their weights.

        The event is class 1. Of names, which are in alphabetical order, it is the rarer one, unless the other says no.
        """
        classes, counts = np.unique(y, return_counts=True)
        if isinstance(classes.tolist()[0], str) and classes[0].strip().lower() not in NO:
            options = {"event": int(counts[1] <= counts[0])} | options
        if class_weight is not None:
            weights = compute_class_weight(class_weight, classes=classes, y=y)
            options["positive_weight"] = float(weights[-1] / weights[0])
        return cls(**{"classes": tuple(classes.tolist())} | options)

    @property
    def outputs(self) -> int:
        """One."""
        return 1

    def loss(self, outputs: Float[Tensor, "*cases 1"], targets: Float[Tensor, "*cases"]) -> Float[Tensor, ""]:
        """Mean binary cross-entropy, with positives weighted."""
        known = ~targets.isnan()
        weight = outputs.new_tensor(self.positive_weight)
        return functional.binary_cross_entropy_with_logits(
            outputs[..., 0][known], targets[known].to(outputs.dtype), pos_weight=weight
        )

    def losses(self, outputs: Float[Tensor, "*cases 1"], targets: Float[Tensor, "*cases"]) -> Float[Tensor, "*cases"]:
        """Binary cross-entropy of each case."""
        return functional.binary_cross_entropy_with_logits(outputs[..., 0].double(), targets.double(), reduction="none")

    def prior(self, targets: Float[Tensor, "*cases"]) -> Float[Tensor, "1"]:
        """The weighted log-odds."""
        return log_odds(targets.nanmean(), self.positive_weight).reshape(1)

    def baseline(self, targets: Float[Tensor, "*cases"]) -> Float[Tensor, "1"]:
        """The log-odds, not weighted."""
        return self.unweighted().prior(targets)

    def unweighted(self) -> Self:
        """The task with equal weights of both classes."""
        return dataclasses.replace(self, positive_weight=1.0)

    def softened(
        self, targets: Float[Tensor, " cases"], outputs: Float[Tensor, "cases 1"], share: float
    ) -> Float[Tensor, " cases"]:
        """Probabilities of the positive class: binary cross-entropy is linear in them."""
        return targets.lerp(outputs[..., 0].sigmoid().to(targets), share)

    def boosting_problems(self, targets: Float[Tensor, " cases"]) -> list[BoostingProblem]:
        """The class; the raw score is the logit."""
        weights = None if self.positive_weight == 1 else 1 + (self.positive_weight - 1) * targets
        return [BoostingProblem("classification", targets, weights, (0,))]

    def probabilities(self, outputs: Float[Tensor, "*cases 1"]) -> NDArray[Any]:
        """Of the negative and the positive class, (..., 2)."""
        p = sigmoid(outputs)
        return np.concatenate([1 - p, p], axis=-1)

    def decode(self, outputs: Float[Tensor, "*cases 1"]) -> NDArray[Any]:
        """The likelier class."""
        found: NDArray[Any] = np.asarray(self.classes)[(outputs[..., 0] > 0).long().cpu().numpy()]
        return found

    def metrics(self, outputs: Float[Tensor, "*cases 1"], targets: Float[Tensor, "*cases"]) -> dict[str, float]:
        """Area under the ROC curve, average precision of the event, accuracy, log-loss."""
        known = ~targets.isnan()
        if not known.any():
            return dict.fromkeys(("auroc", "average_precision", "accuracy", "log_loss"), float("nan"))
        truth, chances = targets[known].cpu().numpy().astype(int), self.probabilities(outputs[known])
        p, both = chances[:, 1], len(set(truth.tolist())) == 2
        precision = average_precision_score(truth == self.event, chances[:, self.event]) if both else float("nan")
        return {
            "auroc": float(roc_auc_score(truth, p)) if both else float("nan"),
            "average_precision": float(precision),
            "accuracy": float(accuracy_score(truth, p > 0.5)),
            "log_loss": float(log_loss(truth, p, labels=[0, 1])),
        }

    def test_metrics(self, outputs: Float[Tensor, "*cases 1"], targets: Float[Tensor, "*cases"]) -> dict[str, float]:
        """`metrics`, the Brier score and the calibration slope."""
        known = ~targets.isnan()
        logits, truth = outputs[known].detach().double().cpu().numpy()[:, 0], targets[known].double().cpu().numpy()
        brier = brier_score_loss(truth, sigmoid(outputs[known])[:, 0], labels=[0, 1]) if len(truth) else float("nan")
        slope = calibration_slopes(np.ones((1, len(truth))), logits, truth)[0]
        return self.metrics(outputs, targets) | {"brier": float(brier), "calibration_slope": float(slope)}

    def resampled_metrics(
        self, outputs: Float[Tensor, "cases 1"], targets: Float[Tensor, " cases"], weights: NDArray[Any]
    ) -> dict[str, NDArray[Any]]:
        """The metrics of `test_metrics`, all resamples at once."""
        truth, p = targets.double().cpu().numpy(), self.probabilities(outputs)
        known, place = ~np.isnan(truth), np.nan_to_num(truth).astype(int)
        logits = outputs[:, 0].detach().double().cpu().numpy()
        auroc, average_precision = weighted_ranking(weights, p[:, 1], truth)
        if self.event == 0:
            average_precision = weighted_ranking(weights, p[:, 0], 1 - truth)[1]
        return {
            "auroc": auroc,
            "average_precision": average_precision,
            "accuracy": weighted_mean(weights, (p[:, 1] > 0.5) == place, known),
            "log_loss": weighted_log_loss(weights, p[np.arange(len(p)), place], known),
            "brier": weighted_mean(weights, (p[:, 1] - truth) ** 2, known),
            "calibration_slope": calibration_slopes(weights, logits, truth),
        }

    def target_names(self, label: str) -> list[str]:
        """The classes; bare numbers get the name of the column before them."""
        names = super().target_names(label)
        return names if isinstance(self.classes[0], str) else [f"{label} {name}" for name in names]

    def scores(self, outputs: Float[Tensor, "*cases 1"]) -> Float[Tensor, "*cases 1"]:
        """The log odds of the event."""
        return outputs.detach().double() * (1 if self.event else -1)

    def outputs_of_scores(self, log_odds: Float[Tensor, "*cases 1"]) -> Float[Tensor, "*cases 1"]:
        """The log odds of class 1."""
        return log_odds * (1 if self.event else -1)

    def indicators(self, targets: Float[Tensor, " cases"]) -> Float[Tensor, "cases 1"]:
        """1 for the event."""
        return (targets if self.event else 1 - targets)[:, None]

    def score_names(self, label: str) -> list[str]:
        """The event."""
        return [self.target_names(label)[self.event]]

    def subject(self, names: list[str]) -> str:
        """The event."""
        return names[self.event]

    def contrasted(self, targets: Float[Tensor, " cases"]) -> list[NDArray[np.bool_]]:
        """Events and the others."""
        return [targets.numpy() == k for k in (self.event, 1 - self.event)]

    def figures(self, test: Evaluation) -> list[Drawing]:
        """ROC curve, precision-recall curve, calibration, decision curve."""
        beside = None if test.beside is None else self.probabilities(test.beside)
        return binary_figures(self.probabilities(test.outputs), test, beside, event=self.event)

    def sliding_tables(self, test: Evaluation) -> list[SlidingTable]:
        """What alarms at a threshold on the probability mean."""
        truth, p = where_known(self.probabilities(test.outputs), test)
        if len(set(truth.tolist())) < 2:
            return []
        names = short(test.names[1 - self.event], 30), short(test.names[self.event], 30)
        independent = test.cases == "series"
        return [operating_points(p[:, self.event], truth == self.event, names, test.cases, independent=independent)]

    def forecast(self, outputs: Float[Tensor, "times 1"], truth: Float[Tensor, " cases"], names: list[str]) -> Forecast:
        """The probability of the event."""
        per_row = len(truth) > 1
        true = self.indicators(truth)[:, 0].numpy() if per_row else None
        curve = Curve(short(names[self.event], 24), self.probabilities(outputs)[:, self.event], true)
        title = f"predicted chance of {curve.name}{'; dashed: true' if per_row else ''}"
        return Forecast(title, [curve], probability=True)
