"""Distillation: targets mixed with what gradient boosting predicts for series that it was not fitted on.

Networks need more series than trees to find out which of many summaries matter. The predictions of trees tell them:
they vary less than the targets, of which each is one draw (Hinton, Vinyals and Dean 2015).
"""

from __future__ import annotations

import dataclasses
import sys
import time
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from ..contracts import Argument, ArgumentError
from ..train.progress import time_left
from .boosting import boosting_features, fit_boosting
from .modules import SERIES_FOR_SUMMARIES
from .preparation import Preparation
from .splits import folds_of, validation_split
from .training_data import TrainingData

STOPS = 0.1  # fraction of the series of a fit of the trees that stops it early
MOST = 0.9  # of the loss
DROPOUT = 0.3  # of the readout of summaries: soft targets are overfitted less


def suits_distillation(preparation: Preparation, *, per_row: bool) -> bool:
    """Whether `distillation="auto"` makes trees: a readout of summaries learns from them."""
    return preparation.encoded and preparation.fitted_on >= SERIES_FOR_SUMMARIES and not per_row


def soft_targets(
    data: TrainingData,
    share: float | None,
    *,
    seed: int,
    labels: NDArray[Any] | None,
    groups: NDArray[Any] | None,
    verbose: int = 0,
) -> tuple[Tensor | None, float]:
    r"""The targets of training, and the share of them that the predictions of trees have.

    Five ensembles of trees (fewer if a class is rare) are fitted, each without one fold of the series, and predict it.

    Parameters
    ----------
    data
        The series and their targets. The trees are fitted without weights of classes.
    share
        The share; None for the fraction of the loss that the predictions explain, $1 - L / L_0$, with L their mean
        loss and $L_0$ that of a constant prediction. It is 0 if they explain nothing, and at most 0.9.
    seed, labels, groups
        Seed of the folds; classes by which they are stratified; groups of series that are kept together.
    verbose
        0 to show no progress.

    Returns
    -------
    targets, share
        None and 0 if nothing is mixed.

    Raises
    ------
    ValueError
        If a share was asked for and the task has no soft targets, or there are too few series.
    """
    if data.per_row:
        raise ArgumentError(
            "distillation needs one target per series, and there is one per row; use distillation=0.",
            argument="distillation",
        )
    plain = dataclasses.replace(data, task=data.task.unweighted())
    nothing = torch.zeros(len(data.targets), data.task.outputs, dtype=torch.float64)
    possible = data.task.boosting_problems(data.targets[:1]) is not None
    if not possible or data.task.softened(data.targets[:1], nothing[:1], 0.5) is None:
        if share is None:
            return None, 0.0
        raise ArgumentError(
            Argument("distillation", share),
            f": the task {type(data.task).__name__} does not say how its targets are mixed; use ",
            Argument("distillation", 0),
            ", or define its boosting_problems and softened.",
        )
    try:
        folds = folds_of(len(data.series), seed, labels, groups, argument="distillation", instead=0, least=2)
    except ArgumentError:
        if share is None:
            return None, 0.0
        raise
    outputs = out_of_fold(plain, folds, seed, labels, verbose=verbose)
    if share is None:
        share = float(np.clip(explained(plain, outputs), 0.0, MOST))
    if share == 0:
        return None, 0.0
    return data.task.softened(data.targets, outputs, share), share


def out_of_fold(
    data: TrainingData,
    folds: list[tuple[NDArray[np.int64], NDArray[np.int64]]],
    seed: int,
    labels: NDArray[Any] | None,
    *,
    verbose: int = 0,
) -> Float[Tensor, "series outputs"]:
    """For each series, the outputs of trees that were fitted without its fold."""
    begun, features = time.monotonic(), boosting_features(data.preparation, data.series)
    found = torch.zeros(len(data.series), data.task.outputs, dtype=torch.float64)
    for number, (kept, held) in enumerate(folds):
        own = (seed + number) % 2**31
        fitted, stops = np.arange(len(kept)), np.arange(0)
        if data.held_out is None:  # otherwise the series that were given for validation stop the trees
            fitted, stops = validation_split(STOPS, len(kept), own, None if labels is None else labels[kept])
        trees = fit_boosting(data, kept[fitted], kept[stops], own, features=features)
        found[torch.from_numpy(held)] = trees(features[torch.from_numpy(held)])
        if verbose:
            done = number + 1
            left = (time.monotonic() - begun) / done * (len(folds) - done)
            text = f"trees to learn from: fold {done}/{len(folds)}" + (time_left(left) if left else "")
            print(text, file=sys.stderr, flush=True)
    return found


def explained(data: TrainingData, outputs: Float[Tensor, "series outputs"]) -> float:
    """The fraction of the loss of a constant prediction by which these outputs have less."""
    constant = data.task.baseline(data.targets).to(outputs).expand_as(outputs)
    weights = data.case_weights()
    chosen = torch.ones(len(outputs)) if weights is None else torch.from_numpy(weights)
    losses = [data.task.losses(each, data.targets).double() for each in (outputs, constant)]
    known = ~losses[0].isnan()
    mine, theirs = (float((each * chosen.to(each))[known].sum()) for each in losses)
    return 1 - mine / theirs if theirs > 0 else 0.0
