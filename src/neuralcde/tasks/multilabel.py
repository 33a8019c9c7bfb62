"""Several labels, each of them yes or no."""

from __future__ import annotations

import dataclasses
import reprlib
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score
from torch import Tensor
from torch.nn import functional

from ..contracts import ArgumentError
from ..figures import Drawing, percent, short
from .boosting import BoostingProblem
from .class_figures import multilabel_figures
from .classification import ClassificationTask, check_counting_targets, check_weights, log_odds, sigmoid
from .evaluation import Evaluation, Role
from .metrics import mean_where_finite, weighted_ranking
from .task import GENERAL_VERDICTS


@dataclass
class MultilabelTask(ClassificationTask, name="multilabel"):
    """Several labels, each of them yes or no. The outputs are one logit per label, the loss is binary cross-entropy.

    Parameters
    ----------
    labels
        Number of labels.
    positive_weights
        Weight of a yes relative to a no in the loss, one per label; None for equal weights.
    """

    metric: ClassVar[str] = "auroc"
    title: ClassVar[str] = "Multilabel classification"
    score_unit: ClassVar[str] = "log odds"
    labels: int
    positive_weights: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.labels, int) or isinstance(self.labels, bool) or self.labels < 1:
            raise ValueError(f"labels must be an integer of at least 1, got {reprlib.repr(self.labels)}.")
        check_weights("positive_weights", self.positive_weights, self.labels)

    @classmethod
    def from_targets(cls, y: NDArray[Any], *, class_weight: Any = None, **options: Any) -> Self:
        """As many labels as y has columns."""
        if class_weight not in (None, "balanced"):
            raise ArgumentError(
                f'class_weight={class_weight!r}: for several labels it must be None or "balanced".',
                argument="class_weight",
            )
        if class_weight == "balanced":
            positives = np.nanmean(y.astype(np.float64), axis=0).clip(1e-6, 1 - 1e-6)
            options["positive_weights"] = tuple(((1 - positives) / positives).tolist())
        return cls(**{"labels": y.shape[1]} | options)

    @property
    def outputs(self) -> int:
        """One per label."""
        return self.labels

    @property
    def columns(self) -> NDArray[Any]:
        """The numbers of the labels."""
        return np.arange(self.labels)

    def encode(self, y: Any) -> Float[Tensor, "*cases labels"]:
        """0 and 1; NaN where unknown."""
        targets = torch.as_tensor(np.asarray(y, dtype=np.float64))
        fits = targets.ndim >= 2 and targets.shape[-1] == self.labels
        if not fits or not bool(((targets == 0) | (targets == 1) | targets.isnan()).all()):
            raise ArgumentError(
                f"y must be zeros and ones of shape (..., {self.labels}), got shape {tuple(targets.shape)}.",
                argument="y",
            )
        return targets

    def check_encoded(self, targets: Tensor, cases: int) -> None:
        """Refuse what are not zeros and ones."""
        check_counting_targets(targets, (cases, self.labels), 1)

    def loss(
        self, outputs: Float[Tensor, "*cases labels"], targets: Float[Tensor, "*cases labels"]
    ) -> Float[Tensor, ""]:
        """Mean binary cross-entropy over cases and labels."""
        known = ~targets.isnan()
        weights = None
        if self.positive_weights is not None:
            weights = outputs.new_tensor(self.positive_weights).expand_as(targets)[known]
        return functional.binary_cross_entropy_with_logits(
            outputs[known], targets[known].to(outputs.dtype), pos_weight=weights
        )

    def losses(
        self, outputs: Float[Tensor, "*cases labels"], targets: Float[Tensor, "*cases labels"]
    ) -> Float[Tensor, "*cases"]:
        """Binary cross-entropy of each case, averaged over labels."""
        return functional.binary_cross_entropy_with_logits(
            outputs.double(), targets.double(), reduction="none"
        ).nanmean(-1)

    def prior(self, targets: Float[Tensor, "*cases labels"]) -> Float[Tensor, " labels"]:
        """The weighted log-odds of every label."""
        weights = 1.0 if self.positive_weights is None else targets.new_tensor(self.positive_weights)
        return log_odds(targets.reshape(-1, self.labels).nanmean(0), weights)

    def baseline(self, targets: Float[Tensor, "*cases labels"]) -> Float[Tensor, " labels"]:
        """The log-odds of every label, not weighted."""
        return self.unweighted().prior(targets)

    def unweighted(self) -> Self:
        """The task with equal weights."""
        return dataclasses.replace(self, positive_weights=None)

    def softened(
        self, targets: Float[Tensor, "cases labels"], outputs: Float[Tensor, "cases labels"], share: float
    ) -> Float[Tensor, "cases labels"]:
        """Probabilities of every label: binary cross-entropy is linear in them."""
        return targets.lerp(outputs.sigmoid().to(targets), share)

    def boosting_problems(self, targets: Float[Tensor, "cases labels"]) -> list[BoostingProblem]:
        """One problem per label; the raw score is its logit."""
        positive = self.positive_weights or (1.0,) * self.labels
        return [
            BoostingProblem("classification", column, None if weight == 1 else 1 + (weight - 1) * column, (label,))
            for label, (column, weight) in enumerate(zip(targets.unbind(1), positive, strict=True))
        ]

    def probabilities(self, outputs: Float[Tensor, "*cases labels"]) -> NDArray[Any]:
        """Of a yes, (..., labels)."""
        return sigmoid(outputs)

    def indicators(self, targets: Float[Tensor, "cases labels"]) -> Float[Tensor, "cases labels"]:
        """The targets."""
        return targets

    def decode(self, outputs: Float[Tensor, "*cases labels"]) -> NDArray[Any]:
        """0 and 1."""
        result: NDArray[Any] = (outputs > 0).long().cpu().numpy()
        return result

    def metrics(
        self, outputs: Float[Tensor, "*cases labels"], targets: Float[Tensor, "*cases labels"]
    ) -> dict[str, float]:
        """Area under the ROC curve, averaged over the labels that have both answers; accuracy over all labels."""
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

    def resampled_metrics(
        self, outputs: Float[Tensor, "cases labels"], targets: Float[Tensor, "cases labels"], weights: NDArray[Any]
    ) -> dict[str, NDArray[Any]]:
        """The same metrics, all resamples at once."""
        truth, p = targets.double().cpu().numpy(), self.probabilities(outputs)
        known, right = ~np.isnan(truth), (p > 0.5) == (truth > 0.5)
        areas = [weighted_ranking(weights, p[:, k], truth[:, k])[0] for k in range(self.labels)]
        return {
            "auroc": mean_where_finite(np.stack(areas)),
            "accuracy": (weights @ (right & known).sum(1)) / (weights @ known.sum(1)),
        }

    def summary(self, targets: Float[Tensor, "cases labels"]) -> list[Any]:
        """How often each label is a yes."""
        return [int(count) for count in (targets == 1).sum(0)]

    def figures(self, test: Evaluation) -> list[Drawing]:
        """Area under the ROC curve of every label."""
        return multilabel_figures(test)

    def true_columns(self, target: Float[Tensor, "1 labels"]) -> list[int]:
        """The labels that are a yes."""
        return [int(k) for k in (target[0] == 1).nonzero()[:, 0]]

    def verdict(
        self, outputs: Float[Tensor, "1 labels"], target: Float[Tensor, "1 labels"], names: list[str], role: Role
    ) -> tuple[str, str]:
        """The true labels and the likeliest one."""
        p = self.probabilities(outputs)[0]
        likeliest = int(p.argmax())
        true = ", ".join(short(names[k]) for k in self.true_columns(target)[:6])
        told = f"True: {true or 'none'}; likeliest: {short(names[likeliest])} with {percent(p[likeliest])}"
        return GENERAL_VERDICTS[role], told
