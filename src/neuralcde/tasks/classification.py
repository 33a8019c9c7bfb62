"""What classification tasks have in common."""

from __future__ import annotations

import reprlib
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from scipy.special import expit
from torch import Tensor

from ..contracts import ArgumentError
from ..figures import percent, short
from .evaluation import Curve, Forecast, Role
from .task import LINES, Task, is_finite, missing_targets

RIGHT: dict[Role, str] = {"surest": "sure and right", "typical": "typical", "worst": "the least sure"}
WRONG: dict[Role, str] = {
    "surest": "the best of its class, missed",
    "typical": "typical, and missed",
    "worst": "the worst mistake",
}


class ClassificationTask(Task):
    """A task whose outputs are logits: `NeuralCDEClassifier` trains it."""

    goal: ClassVar[Literal["classification", "regression"]] = "classification"
    summarised_by: ClassVar[Literal["counts", "quantiles"]] = "counts"
    title: ClassVar[str] = "Classification"

    @abstractmethod
    def probabilities(self, outputs: Float[Tensor, "*cases outputs"]) -> NDArray[Any]:
        """Probabilities, one per class or label, in float64."""
        raise NotImplementedError(f"{type(self).__name__} must define probabilities(outputs)")

    @property
    @abstractmethod
    def columns(self) -> NDArray[Any]:
        """The class of each column of `probabilities`, or the number of its label."""
        raise NotImplementedError(f"{type(self).__name__} must define columns")

    def prediction_columns(self, outputs: Float[Tensor, "cases outputs"], label: str) -> dict[str, list[Any]]:
        """The predicted class, and the probability of each."""
        p = self.probabilities(outputs)
        chances = {f"p_{name}": p[:, k].tolist() for k, name in enumerate(self.columns.tolist())}
        return super().prediction_columns(outputs, label) | chances

    def forecast(
        self, outputs: Float[Tensor, "times outputs"], truth: Float[Tensor, "..."], names: list[str]
    ) -> Forecast:
        """Probabilities of the true classes, and of the likeliest others."""
        p = self.probabilities(outputs)
        true = self.true_columns(truth) if len(truth) == 1 else []
        likely = np.argsort(-p.max(0), kind="stable").tolist()
        chosen = [*true, *(k for k in likely if k not in true)][:LINES]
        curves = [Curve(short(names[k], 14) + (" (true)" if k in true else ""), p[:, k]) for k in chosen]
        return Forecast("predicted chance", curves, probability=True)

    def true_columns(self, target: Float[Tensor, "1 ..."]) -> list[int]:
        """The columns of `probabilities` that are true for one case."""
        return [] if bool(target.isnan().any()) else [int(target[0])]


@dataclass
class ExclusiveClasses(ClassificationTask):
    """A task with exactly one true class per case; targets are positions in `classes`."""

    classes: tuple[Any, ...]

    def __post_init__(self) -> None:
        check_classes(self.classes)

    @property
    def columns(self) -> NDArray[Any]:
        """The classes."""
        return np.array(self.classes)

    def encode(self, y: Any) -> Float[Tensor, "..."]:
        """Positions of the classes."""
        labels = np.asarray(y)
        missing = missing_targets(labels)
        place = {name: float(position) for position, name in enumerate(self.classes)}
        flat = [
            float("nan") if gone else place.get(label)
            for label, gone in zip(labels.ravel().tolist(), missing.ravel(), strict=True)
        ]
        if None in flat:
            unknown = labels.ravel().tolist()[flat.index(None)]
            raise ArgumentError(
                f"y has the class {unknown!r}, which is not one of {list(self.classes)[:20]}.", argument="y"
            )
        return torch.tensor(flat, dtype=torch.float64).reshape(labels.shape)

    def check_encoded(self, targets: Tensor, cases: int) -> None:
        """Refuse what are not positions of classes."""
        check_counting_targets(targets, (cases,), len(self.classes) - 1)

    def summary(self, targets: Float[Tensor, "..."]) -> list[Any]:
        """How often each class is there."""
        return [int((targets == k).sum()) for k in range(len(self.classes))]

    def target_names(self, label: str) -> list[str]:
        """The classes as text."""
        return [f"{name:g}" if isinstance(name, float) else str(name) for name in self.classes]

    def verdict(
        self, outputs: Float[Tensor, "1 outputs"], target: Float[Tensor, "1"], names: list[str], role: Role
    ) -> tuple[str, str]:
        """Whether the answer is right, and how sure it is."""
        p = self.probabilities(outputs)[0]
        answer, true = int(p.argmax()), int(target[0])
        told = f"Predicted {short(names[answer])} with {percent(p[answer])}"
        if true == answer:
            return RIGHT[role], f"{told}, rightly"
        return WRONG[role], f"{told}, wrongly: the truth is {short(names[true])}, which got {percent(p[true])}"


def check_counting_targets(targets: Tensor, shape: tuple[int, ...], most: int) -> None:
    """Refuse a tensor that does not hold whole numbers from 0 to `most`, or NaN."""
    if targets.shape != shape or targets.dtype != torch.float64:
        raise ValueError(f"targets are not numbers of shape {shape}.")
    known = targets[~targets.isnan()]
    if bool(((known < 0) | (known > most) | (known != known.round())).any()):
        raise ValueError(f"targets are not whole numbers from 0 to {most}.")


def sigmoid(outputs: Tensor) -> NDArray[Any]:
    """The logistic function in float64.

    It uses scipy, because torch's vectorised version rounds the remainder of a tensor differently. The result for a
    case would depend on the batch.
    """
    found: NDArray[Any] = expit(outputs.detach().double().cpu().numpy())
    return found


def log_odds(share: Tensor, weight: Tensor | float) -> Tensor:
    """Weighted log-odds of a share, away from 0 and 1."""
    share = share.nan_to_num(0.5).clamp(1e-4, 1 - 1e-4)
    return (share / (1 - share) * weight).log()


def check_class_weight(class_weight: Any) -> None:
    """Refuse what is not None, "balanced", or a dictionary of positive numbers."""
    if class_weight is None or (isinstance(class_weight, str) and class_weight == "balanced"):
        return
    shown = f"class_weight={reprlib.repr(class_weight)}"
    if not isinstance(class_weight, dict):
        raise ArgumentError(
            f'{shown} is not None, "balanced" or a dictionary from class to weight.', argument="class_weight"
        )
    if not all(is_finite(weight) and weight > 0 for weight in class_weight.values()):
        raise ArgumentError(
            f"{shown}: weights must be positive numbers; to ignore a class, leave out its series.",
            argument="class_weight",
        )


def check_classes(classes: Any) -> None:
    """Refuse classes that are not distinct, or not of one kind: all text, all numbers, or True and False."""
    kinds = {str if isinstance(name, str) else bool if isinstance(name, bool) else float for name in classes}
    numbers = all(is_finite(name) for name in classes)
    if not isinstance(classes, tuple) or len(kinds) != 1 or (kinds == {float} and not numbers):
        raise ValueError(f"classes must be all text, all numbers, or True and False, got {reprlib.repr(classes)}.")
    if len(set(classes)) < len(classes):
        raise ValueError(f"classes must differ, got {reprlib.repr(classes)}.")


def check_weights(name: str, weights: Any, count: int) -> None:
    """Refuse what is neither None nor a tuple of `count` positive numbers."""
    if weights is None:
        return
    if not isinstance(weights, tuple) or len(weights) != count or not all(is_finite(w) and w > 0 for w in weights):
        raise ValueError(f"{name} must be positive, {count} of them, got {reprlib.repr(weights)}.")
