"""The task that y asks for."""

from __future__ import annotations

from typing import Any

import numpy as np

from .binary import BinaryTask
from .classification import ClassificationTask, check_class_weight
from .multiclass import MulticlassTask
from .multilabel import MultilabelTask
from .regression import RegressionTask
from .task import missing_targets


def classification_task(y: Any, class_weight: str | dict[Any, float] | None = None) -> ClassificationTask:
    """Binary or multiclass by the number of classes in y; multilabel for a matrix of zeros and ones.

    `class_weight="balanced"` weighs classes inversely to their frequency, as scikit-learn does.
    """
    check_class_weight(class_weight)
    labels = np.asarray(y)
    if labels.ndim == 2:
        return MultilabelTask.from_targets(labels, class_weight=class_weight)
    known = labels[~missing_targets(labels)]
    kind = BinaryTask if len(np.unique(known)) == 2 else MulticlassTask
    return kind.from_targets(known, class_weight=class_weight)


def regression_task(y: Any) -> RegressionTask:
    """Regression on the numbers in y."""
    return RegressionTask.from_targets(np.asarray(y, dtype=np.float64))
