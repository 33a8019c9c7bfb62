"""Targets at rows for a second loss in training, and their task."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from ..contracts import ArgumentError
from ..series import IrregularSeries
from ..tasks import Task, classification_task, regression_task
from .inputs import as_targets, where_known

MOST_CLASSES = 20  # more different whole numbers are quantities


class Auxiliary(NamedTuple):
    """The auxiliary task, and its encoded targets, one per row."""

    task: Task
    targets: Tensor


def as_auxiliary(given: Any, series: IrregularSeries, *, by_id: bool) -> Auxiliary | None:
    """The argument `auxiliary` of `fit`; None if it is not given.

    Text, truth values and at most 20 different whole numbers are classes. Other numbers are quantities.
    """
    if given is None:
        return None
    try:
        targets = as_targets(given, series, by_id=by_id, per_row=True)
    except ArgumentError as reason:
        raise ArgumentError(
            f"auxiliary, which is given per row like y with per_row: {reason}", argument="auxiliary"
        ) from reason
    known = np.asarray(targets[where_known(targets)].tolist())
    if len(np.unique(known)) < 2:
        raise ArgumentError(
            f"auxiliary has {len(np.unique(known))} different known values; nothing can be learnt from fewer than two.",
            argument="auxiliary",
        )
    numbers = known.dtype.kind in "iuf"
    quantity = numbers and (len(np.unique(known)) > MOST_CLASSES or bool((known != np.round(known)).any()))
    task = regression_task(known) if quantity else classification_task(known)
    return Auxiliary(task, task.encode(targets))
