"""The results of a test, and the parts of a report that a task makes of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from numpy.typing import NDArray
from torch import Tensor

Role = Literal["surest", "typical", "worst"]  # of an example among the test series, by its loss


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Outputs and targets of the test series, with names for people.

    Parameters
    ----------
    outputs
        Raw outputs of the model, (cases, outputs).
    targets
        Encoded targets; NaN where unknown.
    names
        Names of the classes, labels or targets.
    cases
        What has one target each: "series", or "rows".
    beside
        Raw outputs of gradient boosting for the same cases, for comparison; None if there are none.
    """

    outputs: Tensor
    targets: Tensor
    names: list[str]
    cases: str
    beside: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Curve:
    """One line of a forecast.

    Parameters
    ----------
    name
        Its entry in the legend.
    values
        Predictions, one per time.
    truth
        The true value: one number, or one per row; None to draw none.
    """

    name: str
    values: NDArray[Any]
    truth: NDArray[Any] | None = None


@dataclass(frozen=True, eq=False)
class Forecast:
    """How predictions for one series develop over time.

    Parameters
    ----------
    title
        What the curves show.
    curves
        One or several; several get a legend.
    probability
        Whether the values are probabilities, so that the axis runs from 0 to 1.
    """

    title: str
    curves: list[Curve]
    probability: bool = False
