"""Outputs for training series by models that were not trained on them, from which calibration is learnt."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from sklearn.base import clone
from torch import Tensor

from ..series import IrregularSeries, ragged
from .auxiliary import Auxiliary
from .ensembles import average, member_outputs
from .members import Member
from .parts import copied
from .preparation import Preparation
from .training_data import dataset_of
from .trees import TreeEnsemble

LEAST_REFERENCE = 30  # with fewer, a deviation is not known to a tenth


class InterruptedFoldError(Exception):
    """Ctrl-C ended the training of a fold."""


def held_out_outputs(
    estimator: Any,
    series: IrregularSeries,
    targets: NDArray[Any],
    *,
    folds: list[tuple[NDArray[np.int64], NDArray[np.int64]]],
    task: Any,
    seed: int,
    weights: NDArray[Any] | None,
    groups: NDArray[Any] | None,
    validation: Any,
    auxiliary: Auxiliary | None,
    chosen: dict[str, Any],
    reference: Float[Tensor, "unseen outputs"],
) -> Float[Tensor, "cases outputs"]:
    """The outputs for each series (each row with `per_row`), averaged over members that were trained without its fold.

    Parameters
    ----------
    estimator
        The estimator; copies of it are fitted.
    series, targets, weights, groups, validation, auxiliary
        What it was fitted on.
    folds
        The folds, from `folds_of`.
    task, seed
        Its task, so that all folds have the same classes; and its seed.
    chosen
        What it chose in place of "auto". A fold has fewer series, and might choose otherwise.
    reference
        Its outputs for series that it was not trained on. The outputs for each fold are brought to their mean and
        deviation, if there are enough of them.

    Raises
    ------
    InterruptedFoldError
        If Ctrl-C ended the training of a fold.
    """
    per_row = bool(estimator.per_row)
    found = torch.full((len(targets), task.outputs), torch.nan)
    for number, (kept, held) in enumerate(folds):
        part = clone(estimator).set_params(
            **chosen,
            calibrate=None,
            class_weight=None,
            task=copied(task),
            random_state=(seed + 1 + number) % 2**31,
            verbose=0,
        )
        rows, _ = ragged.select(series.offsets, torch.from_numpy(kept))
        places = rows.numpy() if per_row else kept  # type: ignore[union-attr]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the same as for all series together
            try:
                part.fit(
                    series[kept],
                    targets[places],
                    None if weights is None else weights[kept],
                    groups=None if groups is None else groups[kept],
                    validation=validation,
                    auxiliary=None if auxiliary is None else _given(auxiliary, rows),
                )
            except KeyboardInterrupt:
                raise InterruptedFoldError from None
            if part.interrupted_:
                raise InterruptedFoldError
            outputs = part.outputs(series[held])
        place = ragged.select(series.offsets, torch.from_numpy(held))[0] if per_row else torch.from_numpy(held)
        found[place] = on_the_scale_of(task.centred(reference), task.centred(outputs))
        if estimator.verbose:
            print(f"calibration: fold {number + 1}/{len(folds)}", file=sys.stderr, flush=True)
    return found


def fitted_outputs(
    estimator: Any,
    members: Sequence[Member],
    trees: TreeEnsemble | None,
    preparation: Preparation,
    series: IrregularSeries,
    task: Any,
) -> Float[Tensor, "cases outputs"]:
    """The outputs of models that were just trained, for some series."""
    if not len(series):
        return torch.zeros(0, task.outputs)
    dataset = dataset_of(series, preparation, per_row=bool(estimator.per_row), device=estimator.device)
    modules = [member.module for member in members]
    return average(member_outputs(modules, trees, preparation, series, dataset), boosted=trees is not None)


def on_the_scale_of(
    reference: Float[Tensor, "unseen outputs"], outputs: Float[Tensor, "cases outputs"]
) -> Float[Tensor, "cases outputs"]:
    """Outputs with the mean and the deviation of the reference; unchanged if that has fewer than 30 cases.

    How extreme outputs are depends on when the training stopped, which differs from model to model: a map for the
    outputs of one does not hold for those of another. On the scale of the fitted model, it does.
    """
    if len(reference) < LEAST_REFERENCE or len(outputs) < 2:
        return outputs
    (mean, deviation), (own_mean, own) = ((part.mean(0), part.std(0)) for part in (reference, outputs))
    factor = torch.where((own > 0) & (deviation > 0), deviation / own, 1.0)
    return mean + (outputs - own_mean) * factor


def _given(auxiliary: Auxiliary, rows: Any) -> NDArray[Any]:
    """Targets at some rows in the form that `fit` takes them: classes as text."""
    targets = auxiliary.targets[rows].numpy()
    if auxiliary.task.goal == "regression":
        return targets
    known = ~np.isnan(targets)
    text = np.full(targets.shape, None, dtype=object)
    text[known] = [f"class {number:g}" for number in targets[known]]
    return text
