"""What gradient boosting needs to know about a task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True, eq=False)
class BoostingProblem:
    """A part of a task that gradient boosting can learn: one target, and the outputs that its raw scores stand for.

    Parameters
    ----------
    goal
        "classification" for targets 0, 1, ..., with log-loss; "regression" for numbers, with the squared error.
    targets
        One per case; NaN where unknown.
    weights
        Factor per case on its loss, for class weights; None for equal weights.
    columns
        The outputs that the raw scores are: a single one for a number or for the logit of class 1, or one per class.
    """

    goal: Literal["classification", "regression"]
    targets: Float[Tensor, " cases"]
    weights: Float[Tensor, " cases"] | None
    columns: tuple[int, ...]
