"""Gradient boosting on the same split, to compare a model with."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ..estimators.boosting import boosting_features, fit_boosting
from ..estimators.path_estimator import PathEstimator
from ..estimators.splits import validation_split
from ..estimators.training_data import TrainingData
from ..series import IrregularSeries, ragged

MOST_SERIES, MOST_ROWS = 20_000, 100_000  # of training, with a target per row; of more, a random part is used
MOST_TEST_ROWS = 200_000  # with a target per row; of more, a prediction of all would take too long
MOST_OUTPUTS = 12  # with more outputs, such as classes, it takes too long for a comparison
SHARE = 0.15  # validation series, which end the boosting early
SEED = 0


def boosting_beside(
    estimator: PathEstimator, training: IrregularSeries, targets: Tensor, held: IrregularSeries
) -> Tensor | None:
    """Raw outputs of gradient boosting for the test series; None if the task cannot be boosted.

    It sees the same training series, through summaries of each series: last values, means, extremes, counts, static
    features, time. It has settings of its own and none of the model's. A model that contains gradient boosting is
    compared with that.
    """
    if estimator.trees_ is not None:
        return estimator.member_outputs(held)[-1]
    if estimator.task_.boosting_problems(targets[:1]) is None or estimator.task_.outputs > MOST_OUTPUTS:
        return None
    per_row = bool(estimator.per_row)
    if per_row and len(held.times) > MOST_TEST_ROWS:
        return None
    order = np.random.default_rng(SEED).permutation(len(training))[:MOST_SERIES]
    if per_row:
        order = order[: max(1, int((training.lengths.numpy()[order].cumsum() <= MOST_ROWS).sum()))]
    if len(order) < len(training):
        drawn = np.sort(order)
        rows = ragged.select(training.offsets, torch.from_numpy(drawn))[0] if per_row else drawn
        training, targets = training[drawn], targets[rows]
    labels = targets.numpy() if estimator.goal == "classification" and targets.ndim == 1 and not per_row else None
    data = TrainingData(
        training,
        targets,
        None,
        None,
        None,
        estimator.task_,
        estimator.preparation_,
        per_row=per_row,
        per_batch=False,
        device="cpu",
    )
    trees = fit_boosting(data, *validation_split(SHARE, len(training), SEED, labels), SEED)
    asked = torch.arange(len(held.times)) if per_row else None
    return trees(boosting_features(estimator.preparation_, held, asked))
