"""Classification with more than two classes."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from sklearn.metrics import accuracy_score, log_loss
from sklearn.utils.class_weight import compute_class_weight
from torch import Tensor
from torch.nn import functional

from ..figures import Drawing, Table
from .boosting import BoostingProblem
from .class_figures import mistakes, multiclass_figures
from .classification import ExclusiveClasses, check_weights
from .evaluation import Evaluation
from .metrics import weighted_balanced_accuracy, weighted_log_loss, weighted_mean


@dataclass
class MulticlassTask(ExclusiveClasses, name="multiclass"):
    """One of several classes. The outputs are one logit per class, the loss is cross-entropy.

    Parameters
    ----------
    classes
        Their names, in the order of the outputs.
    weights
        Weight of each class in the loss; None for equal weights.
    """

    metric: ClassVar[str] = "accuracy"
    score_unit: ClassVar[str] = "log odds"
    classes: tuple[Any, ...]
    weights: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_weights("weights", self.weights, len(self.classes))

    @classmethod
    def from_targets(cls, y: NDArray[Any], *, class_weight: Any = None, **options: Any) -> Self:
        """The classes in y, and their weights."""
        classes = np.unique(y)
        if class_weight is not None:
            options["weights"] = tuple(compute_class_weight(class_weight, classes=classes, y=y).tolist())
        return cls(**{"classes": tuple(classes.tolist())} | options)

    @property
    def outputs(self) -> int:
        """One per class."""
        return len(self.classes)

    def loss(self, outputs: Float[Tensor, "*cases outputs"], targets: Float[Tensor, "..."]) -> Float[Tensor, ""]:
        """Mean cross-entropy, with classes weighted. Targets are classes, or probabilities of them (`softened`)."""
        if targets.shape == outputs.shape:
            weighted = self._weighted(targets).to(outputs.dtype)
            return -(weighted * outputs.log_softmax(-1)).sum() / weighted.sum()
        known = ~targets.isnan()
        weights = None if self.weights is None else outputs.new_tensor(self.weights)
        return functional.cross_entropy(outputs[known], targets[known].long(), weight=weights)

    def losses(
        self, outputs: Float[Tensor, "*cases outputs"], targets: Float[Tensor, "*cases"]
    ) -> Float[Tensor, "*cases"]:
        """Cross-entropy of each case."""
        found = outputs.double().log_softmax(-1).gather(-1, targets.nan_to_num().long()[..., None])[..., 0]
        return torch.where(targets.isnan(), torch.nan, -found)

    def prior(self, targets: Float[Tensor, "..."]) -> Float[Tensor, " outputs"]:
        """Logarithms of the classes' weighted shares."""
        if targets.ndim == 2:
            return (self._weighted(targets).sum(0) / (~targets.isnan()).all(-1).sum()).clamp(min=1e-9).log()
        known = targets[~targets.isnan()].long()
        shares = known.bincount(minlength=self.outputs).clamp(min=0.5) / max(len(known), 1)
        return (shares if self.weights is None else shares * shares.new_tensor(self.weights)).log()

    def baseline(self, targets: Float[Tensor, "*cases"]) -> Float[Tensor, " outputs"]:
        """Logarithms of the classes' shares, not weighted."""
        return self.unweighted().prior(targets)

    def unweighted(self) -> Self:
        """The task with equal weights of all classes."""
        return dataclasses.replace(self, weights=None)

    def softened(
        self, targets: Float[Tensor, " cases"], outputs: Float[Tensor, "cases outputs"], share: float
    ) -> Float[Tensor, "cases outputs"]:
        """Probabilities of all classes: cross-entropy is linear in them."""
        chosen = functional.one_hot(targets.nan_to_num().long(), self.outputs).to(targets)
        mixed = chosen.lerp(outputs.softmax(-1).to(targets), share)
        return mixed.masked_fill(targets.isnan()[:, None], torch.nan)

    def _weighted(self, chances: Float[Tensor, "cases outputs"]) -> Float[Tensor, "cases outputs"]:
        """Probabilities of classes times the weights of the classes; 0 for unknown targets."""
        known = chances.nan_to_num()
        return known if self.weights is None else known * known.new_tensor(self.weights)

    def weight(self, targets: Float[Tensor, "..."]) -> float:
        """The sum of the class weights of the known targets."""
        if targets.ndim == 2:
            return float(self._weighted(targets).sum())
        if self.weights is None:
            return super().weight(targets)
        return float(targets.new_tensor(self.weights)[targets[~targets.isnan()].long()].sum())

    def boosting_problems(self, targets: Float[Tensor, " cases"]) -> list[BoostingProblem]:
        """The class; the raw scores are one logit per class."""
        weights = None if self.weights is None else targets.new_tensor(self.weights)[targets.nan_to_num().long()]
        return [BoostingProblem("classification", targets, weights, tuple(range(self.outputs)))]

    def centred(self, outputs: Float[Tensor, "*cases outputs"]) -> Float[Tensor, "*cases outputs"]:
        """Logits minus their mean: adding a number to all logits of a case changes no probability."""
        return outputs - outputs.mean(-1, keepdim=True)

    def probabilities(self, outputs: Float[Tensor, "*cases outputs"]) -> NDArray[Any]:
        """Softmax, (..., classes)."""
        result: NDArray[Any] = outputs.detach().double().softmax(-1).cpu().numpy()
        return result

    def decode(self, outputs: Float[Tensor, "*cases outputs"]) -> NDArray[Any]:
        """The likeliest class."""
        found: NDArray[Any] = np.asarray(self.classes)[outputs.argmax(-1).cpu().numpy()]
        return found

    def metrics(self, outputs: Float[Tensor, "*cases outputs"], targets: Float[Tensor, "*cases"]) -> dict[str, float]:
        """Accuracy, balanced accuracy, log-loss."""
        known = ~targets.isnan()
        if not known.any():
            return dict.fromkeys(("accuracy", "balanced_accuracy", "log_loss"), float("nan"))
        truth, p = targets[known].cpu().numpy().astype(int), self.probabilities(outputs[known])
        found = p.argmax(-1)
        # scikit-learn's balanced accuracy warns where a class is predicted that y does not have
        recalls = [np.mean(found[truth == label] == label) for label in np.unique(truth)]
        return {
            "accuracy": float(accuracy_score(truth, found)),
            "balanced_accuracy": float(np.mean(recalls)),
            "log_loss": float(log_loss(truth, p, labels=range(len(self.classes)))),
        }

    def resampled_metrics(
        self, outputs: Float[Tensor, "cases outputs"], targets: Float[Tensor, " cases"], weights: NDArray[Any]
    ) -> dict[str, NDArray[Any]]:
        """The same metrics, all resamples at once."""
        truth, p = targets.double().cpu().numpy(), self.probabilities(outputs)
        known, place = ~np.isnan(truth), np.nan_to_num(truth).astype(int)
        right = p.argmax(1) == place
        return {
            "accuracy": weighted_mean(weights, right, known),
            "balanced_accuracy": weighted_balanced_accuracy(weights * known, right, place, len(self.classes)),
            "log_loss": weighted_log_loss(weights, p[np.arange(len(p)), place], known),
        }

    def scores(self, outputs: Float[Tensor, "*cases outputs"]) -> Float[Tensor, "*cases classes"]:
        """Log odds of each class against all others together."""
        logits = outputs.detach().double()
        alone = torch.eye(self.outputs, dtype=torch.bool, device=logits.device)
        others = logits[..., None, :].expand(*logits.shape[:-1], *alone.shape).masked_fill(alone, -torch.inf)
        return logits - others.logsumexp(-1)

    def indicators(self, targets: Float[Tensor, " cases"]) -> Float[Tensor, "cases classes"]:
        """1 in the column of the class."""
        found = functional.one_hot(targets.nan_to_num().long(), self.outputs).to(targets)
        return found.masked_fill(targets.isnan()[:, None], torch.nan)

    def outputs_of_scores(self, log_odds: Float[Tensor, "*cases classes"]) -> Float[Tensor, "*cases classes"]:
        """Logarithms of the probabilities, which are made to add up to 1."""
        return functional.logsigmoid(log_odds).log_softmax(-1)

    def figures(self, test: Evaluation) -> list[Drawing]:
        """Confusion matrix and calibration."""
        return multiclass_figures(self.probabilities(test.outputs), test)

    def tables(self, test: Evaluation) -> list[Table]:
        """The most frequent mistakes."""
        return [mistakes(self.probabilities(test.outputs), test)]
