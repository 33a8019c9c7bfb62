"""Classification: one of two classes, one of several, or several yes-or-no labels."""

from __future__ import annotations

import reprlib
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.metrics import accuracy_score, average_precision_score, log_loss, roc_auc_score
from sklearn.utils.class_weight import compute_class_weight
from torch import Tensor
from torch.nn import functional

from .task import Task, is_finite, missing_targets


@dataclass(frozen=True, eq=False)
class BinaryTask(Task):
    r"""One of two classes; the one output is the logarithm of their odds, the loss $-\log p$ of what was so.

    Parameters
    ----------
    classes
        The class of targets 0, and that of targets 1.
    positive_weight
        How much a target 1 counts against a target 0.
    """

    kind: ClassVar[str] = "binary"
    metric: ClassVar[str] = "auroc"
    classes: tuple[Any, Any]
    positive_weight: float = 1.0

    def __post_init__(self) -> None:
        _check_classes(self.classes)
        if len(self.classes) != 2:
            raise ValueError(f"classes must be two, got {reprlib.repr(self.classes)}.")
        _check_weights("positive_weight", (self.positive_weight,), 1)

    @property
    def outputs(self) -> int:
        """One."""
        return 1

    def encode(self, y: Any) -> Float[Tensor, "..."]:
        """0 and 1."""
        return _positions(y, self.classes)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Mean negative log-likelihood; positives weighted."""
        known = ~targets.isnan()
        weight = outputs.new_tensor(self.positive_weight)
        return functional.binary_cross_entropy_with_logits(
            outputs[..., 0][known], targets[known].to(outputs.dtype), pos_weight=weight
        )

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        r"""$-\log p$ of what was so."""
        return functional.binary_cross_entropy_with_logits(outputs[..., 0].double(), targets.double(), reduction="none")

    def prior(self, targets: Tensor) -> Tensor:
        """The logarithm of the weighted odds."""
        return _log_odds(targets.nanmean(), self.positive_weight).reshape(1)

    def probabilities(self, outputs: Tensor) -> NDArray[Any]:
        """(..., 2)."""
        p = _sigmoid(outputs)
        return np.concatenate([1 - p, p], axis=-1)

    def decode(self, outputs: Tensor) -> NDArray[Any]:
        """The likelier class."""
        found: NDArray[Any] = np.asarray(self.classes)[(outputs[..., 0] > 0).long().cpu().numpy()]
        return found

    def metrics(self, outputs: Tensor, targets: Tensor) -> dict[str, float]:
        """Area under the ROC curve, average precision, accuracy, log-loss."""
        known = ~targets.isnan()
        if not known.any():
            return dict.fromkeys(("auroc", "average_precision", "accuracy", "log_loss"), float("nan"))
        truth, p = targets[known].cpu().numpy().astype(int), self.probabilities(outputs[known])[:, 1]
        both = len(set(truth.tolist())) == 2
        return {
            "auroc": float(roc_auc_score(truth, p)) if both else float("nan"),
            "average_precision": float(average_precision_score(truth, p)) if both else float("nan"),
            "accuracy": float(accuracy_score(truth, p > 0.5)),
            "log_loss": float(log_loss(truth, p, labels=[0, 1])),
        }


@dataclass(frozen=True, eq=False)
class MulticlassTask(Task):
    """One of several classes; an output a class.

    Parameters
    ----------
    classes
        Their names, in the order of the outputs.
    weights
        How much each class counts; None for one each.
    """

    kind: ClassVar[str] = "multiclass"
    metric: ClassVar[str] = "accuracy"
    classes: tuple[Any, ...]
    weights: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        _check_classes(self.classes)
        _check_weights("weights", self.weights, len(self.classes))

    @property
    def outputs(self) -> int:
        """One a class."""
        return len(self.classes)

    def encode(self, y: Any) -> Float[Tensor, "..."]:
        """The position of the class."""
        return _positions(y, self.classes)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Mean negative log-likelihood, classes weighted."""
        known = ~targets.isnan()
        weights = None if self.weights is None else outputs.new_tensor(self.weights)
        return functional.cross_entropy(outputs[known], targets[known].long(), weight=weights)

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        r"""$-\log p$ of what was so."""
        found = outputs.double().log_softmax(-1).gather(-1, targets.nan_to_num().long()[..., None])[..., 0]
        return torch.where(targets.isnan(), torch.nan, -found)

    def prior(self, targets: Tensor) -> Tensor:
        """The logarithms of the classes' weighted shares."""
        known = targets[~targets.isnan()].long()
        shares = known.bincount(minlength=self.outputs).clamp(min=0.5) / max(len(known), 1)
        return (shares if self.weights is None else shares * shares.new_tensor(self.weights)).log()

    def weight(self, targets: Tensor) -> float:
        """The sum of the weights of their classes."""
        if self.weights is None:
            return super().weight(targets)
        return float(targets.new_tensor(self.weights)[targets[~targets.isnan()].long()].sum())

    def probabilities(self, outputs: Tensor) -> NDArray[Any]:
        """(..., classes)."""
        result: NDArray[Any] = outputs.detach().double().softmax(-1).cpu().numpy()
        return result

    def decode(self, outputs: Tensor) -> NDArray[Any]:
        """The likeliest class."""
        found: NDArray[Any] = np.asarray(self.classes)[outputs.argmax(-1).cpu().numpy()]
        return found

    def metrics(self, outputs: Tensor, targets: Tensor) -> dict[str, float]:
        """Accuracy, balanced accuracy, log-loss."""
        known = ~targets.isnan()
        if not known.any():
            return dict.fromkeys(("accuracy", "balanced_accuracy", "log_loss"), float("nan"))
        truth, p = targets[known].cpu().numpy().astype(int), self.probabilities(outputs[known])
        found = p.argmax(-1)
        return {
            "accuracy": float(accuracy_score(truth, found)),
            "balanced_accuracy": _balanced(truth, found),
            "log_loss": float(log_loss(truth, p, labels=range(len(self.classes)))),
        }


@dataclass(frozen=True, eq=False)
class MultilabelTask(Task):
    """Several labels, each of them yes or no; an output a label.

    Parameters
    ----------
    labels
        How many.
    positive_weights
        How much a yes counts against a no, a number a label; None for one each.
    """

    kind: ClassVar[str] = "multilabel"
    metric: ClassVar[str] = "auroc"
    labels: int
    positive_weights: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.labels, int) or isinstance(self.labels, bool) or self.labels < 1:
            raise ValueError(f"labels must be an integer of at least 1, got {reprlib.repr(self.labels)}.")
        _check_weights("positive_weights", self.positive_weights, self.labels)

    @property
    def outputs(self) -> int:
        """One a label."""
        return self.labels

    def encode(self, y: Any) -> Float[Tensor, "... labels"]:
        """0 and 1, NaN where not known."""
        targets = torch.as_tensor(np.asarray(y, dtype=np.float64))
        if (
            targets.ndim < 2
            or targets.shape[-1] != self.labels
            or not bool(((targets == 0) | (targets == 1) | targets.isnan()).all())
        ):
            raise ValueError(
                f"y must be zeros and ones of shape (..., {self.labels}), got shape {tuple(targets.shape)}."
            )
        return targets

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Mean negative log-likelihood over labels."""
        known = ~targets.isnan()
        weights = None
        if self.positive_weights is not None:
            weights = outputs.new_tensor(self.positive_weights).expand_as(targets)[known]
        return functional.binary_cross_entropy_with_logits(
            outputs[known], targets[known].to(outputs.dtype), pos_weight=weights
        )

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        r"""$-\log p$ of what was so, mean over labels."""
        return functional.binary_cross_entropy_with_logits(
            outputs.double(), targets.double(), reduction="none"
        ).nanmean(-1)

    def prior(self, targets: Tensor) -> Tensor:
        """The logarithm of the weighted odds of every label."""
        weights = 1.0 if self.positive_weights is None else targets.new_tensor(self.positive_weights)
        return _log_odds(targets.reshape(-1, self.labels).nanmean(0), weights)

    def probabilities(self, outputs: Tensor) -> NDArray[Any]:
        """(..., labels): of yes."""
        return _sigmoid(outputs)

    def decode(self, outputs: Tensor) -> NDArray[Any]:
        """0 and 1."""
        result: NDArray[Any] = (outputs > 0).long().cpu().numpy()
        return result

    def metrics(self, outputs: Tensor, targets: Tensor) -> dict[str, float]:
        """Area under the ROC curve, mean over the labels that have both; accuracy over labels."""
        areas, right = [], []
        for label in range(self.labels):
            known = ~targets[..., label].isnan()
            truth, score = targets[..., label][known].cpu().numpy(), outputs[..., label][known].detach().cpu().numpy()
            right.append((score > 0) == (truth > 0.5))
            if len(set(truth.tolist())) == 2:
                areas.append(float(roc_auc_score(truth, score)))
        return {
            "auroc": float(np.mean(areas)) if areas else float("nan"),
            "accuracy": float(np.mean(np.concatenate(right))) if any(map(len, right)) else float("nan"),
        }


def classification_task(
    y: Any, class_weight: str | dict[Any, float] | None = None
) -> BinaryTask | MulticlassTask | MultilabelTask:
    """The task that labels ask for: binary, multiclass, or multilabel for a matrix of zeros and ones.

    `class_weight="balanced"` weighs classes by the inverse of how frequent they are, as scikit-learn does.
    """
    check_class_weight(class_weight)
    labels = np.asarray(y)
    if labels.ndim == 2:
        if class_weight not in (None, "balanced"):
            raise ValueError(f'class_weight={class_weight!r}: for several labels it must be None or "balanced".')
        positives = np.nanmean(labels.astype(np.float64), axis=0).clip(1e-6, 1 - 1e-6)
        weights = tuple(((1 - positives) / positives).tolist()) if class_weight == "balanced" else None
        return MultilabelTask(labels.shape[1], weights)
    known = labels[~missing_targets(labels)]
    classes = np.unique(known)
    names = tuple(classes.tolist())
    weights_of = None if class_weight is None else compute_class_weight(class_weight, classes=classes, y=known)
    if len(names) == 2:
        return BinaryTask(names, 1.0 if weights_of is None else float(weights_of[1] / weights_of[0]))
    return MulticlassTask(names, None if weights_of is None else tuple(weights_of.tolist()))


def _sigmoid(outputs: Tensor) -> NDArray[Any]:
    """In float64. torch's own rounds the last numbers of a tensor in another way than the first: they fill no register."""
    found: NDArray[Any] = expit(outputs.detach().double().cpu().numpy())
    return found


def check_class_weight(class_weight: Any) -> None:
    """Refuse what is not None, "balanced", or a positive number for every class."""
    if class_weight is None or (isinstance(class_weight, str) and class_weight == "balanced"):
        return
    if not isinstance(class_weight, dict):
        raise ValueError(
            f'class_weight={reprlib.repr(class_weight)} is not None, "balanced" or a dictionary from class to weight.'
        )
    if not all(is_finite(weight) and weight > 0 for weight in class_weight.values()):
        raise ValueError(
            f"class_weight={reprlib.repr(class_weight)}: weights must be positive numbers; leave out the series of a class of no "
            "weight."
        )


def _log_odds(share: Tensor, weight: Tensor | float) -> Tensor:
    share = share.nan_to_num(0.5).clamp(1e-4, 1 - 1e-4)
    return (share / (1 - share) * weight).log()


def _check_classes(classes: Any) -> None:
    """Names of classes differ, and are all text, all numbers, or all True and False."""
    kinds = {str if isinstance(name, str) else bool if isinstance(name, bool) else float for name in classes}
    numbers = all(is_finite(name) for name in classes)
    if not isinstance(classes, tuple) or len(kinds) != 1 or (kinds == {float} and not numbers):
        raise ValueError(f"classes must be all text, all numbers, or True and False, got {reprlib.repr(classes)}.")
    if len(set(classes)) < len(classes):
        raise ValueError(f"classes must differ, got {reprlib.repr(classes)}.")


def _check_weights(name: str, weights: Any, count: int) -> None:
    """Weights are None, or so many positive numbers."""
    if weights is None:
        return
    if not isinstance(weights, tuple) or len(weights) != count or not all(is_finite(w) and w > 0 for w in weights):
        raise ValueError(f"{name} must be positive, {count} of them, got {reprlib.repr(weights)}.")


def _positions(y: Any, classes: tuple[Any, ...]) -> Tensor:
    labels = np.asarray(y)
    missing = missing_targets(labels)
    place = {name: float(position) for position, name in enumerate(classes)}
    flat = [
        float("nan") if gone else place.get(label)
        for label, gone in zip(labels.ravel().tolist(), missing.ravel(), strict=True)
    ]
    if None in flat:
        unknown = labels.ravel().tolist()[flat.index(None)]
        raise ValueError(f"y has the class {unknown!r}, which is not one of {list(classes)[:20]}.")
    return torch.tensor(flat, dtype=torch.float64).reshape(labels.shape)


def _balanced(truth: NDArray[Any], found: NDArray[Any]) -> float:
    """Mean recall over the classes there are (scikit-learn warns where others were predicted)."""
    return float(np.mean([np.mean(found[truth == label] == label) for label in np.unique(truth)]))
