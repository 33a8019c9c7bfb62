"""Outputs for training series by models that were not trained on them, from which calibration is learnt."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.model_selection import GroupKFold, KFold, StratifiedGroupKFold, StratifiedKFold
from torch import Tensor

from ..contracts import ArgumentError
from ..series import IrregularSeries, ragged
from .auxiliary import Auxiliary
from .parts import copied

FOLDS = 5
Positions = NDArray[np.int64]


class InterruptedFoldError(Exception):
    """Ctrl-C ended the training of a fold."""


def folds_of(
    size: int, seed: int, labels: NDArray[Any] | None, groups: NDArray[Any] | None
) -> list[tuple[Positions, Positions]]:
    """Five folds, as the positions of the kept and of the held-out series: stratified by class, groups kept together.

    Raises
    ------
    ValueError
        If a class or the groups are too few for the folds.
    """
    strata = labels if labels is not None and labels.ndim == 1 else None
    rarest = size if strata is None else int(np.unique(strata, return_counts=True)[1].min())
    units = rarest if groups is None else min(rarest, len(np.unique(groups)))
    if units < FOLDS:
        what = "series" if strata is None else "series of each class"
        what = what if groups is None else f"{what}, and as many groups"
        raise ArgumentError(
            f"calibrate needs at least {FOLDS} {what}, for {FOLDS} folds, but there are {units}; use calibrate=None.",
            argument="calibrate",
        )
    if groups is not None:
        kind = GroupKFold if strata is None else StratifiedGroupKFold
    else:
        kind = KFold if strata is None else StratifiedKFold
    splitter = kind(FOLDS, shuffle=True, random_state=seed % 2**31)
    found = list(splitter.split(np.arange(size), strata, groups))
    for kept, held in found:
        if strata is not None and len(np.unique(strata[kept])) < len(np.unique(strata)):
            raise ArgumentError(
                "calibrate: the groups of a class are too few to be in every fold; use calibrate=None.",
                argument="calibrate",
            )
        if not len(held):
            raise ArgumentError("calibrate: a fold has no series; use calibrate=None.", argument="calibrate")
    return found


def held_out_outputs(
    estimator: Any,
    series: IrregularSeries,
    targets: NDArray[Any],
    *,
    folds: list[tuple[Positions, Positions]],
    task: Any,
    seed: int,
    weights: NDArray[Any] | None,
    groups: NDArray[Any] | None,
    validation: Any,
    auxiliary: Auxiliary | None,
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

    Raises
    ------
    InterruptedFoldError
        If Ctrl-C ended the training of a fold.
    """
    per_row = bool(estimator.per_row)
    found = torch.full((len(targets), task.outputs), torch.nan)
    for number, (kept, held) in enumerate(folds):
        part = clone(estimator).set_params(
            calibrate=None, class_weight=None, task=copied(task), random_state=(seed + 1 + number) % 2**31, verbose=0
        )
        rows, _ = ragged.select(series.offsets, torch.from_numpy(kept))
        chosen = rows.numpy() if per_row else kept  # type: ignore[union-attr]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the same as for all series together
            try:
                part.fit(
                    series[kept],
                    targets[chosen],
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
        found[place] = outputs
        if estimator.verbose:
            print(f"calibration: fold {number + 1}/{len(folds)}", file=sys.stderr, flush=True)
    return found


def _given(auxiliary: Auxiliary, rows: Any) -> NDArray[Any]:
    """Targets at some rows in the form that `fit` takes them: classes as text."""
    targets = auxiliary.targets[rows].numpy()
    if auxiliary.task.goal == "regression":
        return targets
    known = ~np.isnan(targets)
    text = np.full(targets.shape, None, dtype=object)
    text[known] = [f"class {number:g}" for number in targets[known]]
    return text
