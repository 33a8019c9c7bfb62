"""Calibration: maps from the log odds of an ensemble to probabilities that are right on average."""

from __future__ import annotations

import reprlib
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, Self

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import expit, logit
from torch import Tensor

from ..contracts import Argument, ArgumentError
from ..tasks import Task
from .calibration_curve import Curve
from .json_shapes import COUNT, FINITE, POSITIVE, SHARE, OrNull, check_shape

Method = Literal["isotonic", "temperature"]
HOTTEST = 20.0  # largest temperature, and its inverse the smallest
STATE = {"cases": COUNT, "temperature": OrNull(POSITIVE), "curves": [{"knots": [FINITE], "values": [SHARE]}]}


@dataclass(frozen=True)
class Calibration:
    r"""A map of the outputs of a classifier, learnt from outputs for cases that it was not trained on.

    "temperature" divides the outputs by a number T. "isotonic" maps the log odds of each class or label by an
    increasing curve (see `Curve`), and makes the probabilities of several classes add up to 1. With n cases, no
    probability is below $1 / (n + 2)$ or above $1 - 1 / (n + 2)$: so few cases tell nothing about rarer events.

    Parameters
    ----------
    cases
        The number n.
    temperature
        The number T; None for "isotonic".
    curves
        The increasing curves, one per score of the task; none for "temperature".
    """

    cases: int
    temperature: float | None
    curves: tuple[Curve, ...]

    @property
    def method(self) -> Method:
        """The name of the map."""
        return "isotonic" if self.temperature is None else "temperature"

    @classmethod
    def fit(
        cls,
        method: Method,
        task: Task,
        outputs: Float[Tensor, "cases outputs"],
        targets: Float[Tensor, "cases ..."],
        weights: NDArray[Any] | None = None,
    ) -> Self:
        """Learn the map from outputs and their encoded targets; unknown ones (NaN) are left out.

        Parameters
        ----------
        method
            "isotonic" or "temperature".
        task
            The task, which gives the log odds and the losses.
        outputs, targets
            Outputs of models that were not trained on these cases, and the targets.
        weights
            One weight per case; None for equal weights.
        """
        known = ~targets.reshape(len(targets), -1).isnan().all(1)
        outputs, targets = outputs.double()[known], targets[known]
        heavy = np.ones(len(targets)) if weights is None else np.asarray(weights, dtype=np.float64)[known.numpy()]
        if method == "temperature":

            def loss(log_temperature: float) -> float:
                losses = task.losses(outputs / float(np.exp(log_temperature)), targets).numpy()
                return float(np.average(losses, weights=heavy))

            most = float(np.log(HOTTEST))
            found = minimize_scalar(loss, bounds=(-most, most), method="bounded", options={"xatol": 1e-4})
            return cls(len(targets), float(np.exp(found.x)), ())
        scores, truth = task.scores(outputs).numpy(), indicators_of(task, targets).numpy()
        there = ~np.isnan(truth)
        curves = (Curve.fit(scores[t, k], truth[t, k], heavy[t]) for k, t in enumerate(there.T))
        return cls(len(targets), None, tuple(curves))

    def __call__(self, task: Task, outputs: Float[Tensor, "*cases outputs"]) -> Float[Tensor, "*cases outputs"]:
        """The calibrated outputs: those whose probabilities are the calibrated ones."""
        if self.temperature is not None:
            chances = expit(task.scores(outputs.double() / self.temperature).cpu().numpy())
        else:
            scores = task.scores(outputs).cpu().numpy()
            chances = np.stack([curve(scores[..., k]) for k, curve in enumerate(self.curves)], axis=-1)
        edge = 1 / (self.cases + 2)
        log_odds = logit(chances.clip(edge, 1 - edge))
        return task.outputs_of_scores(torch.from_numpy(log_odds)).to(outputs)

    def to_state(self) -> dict[str, Any]:
        """The numbers as JSON can hold them."""
        curves = [{"knots": list(curve.knots), "values": list(curve.values)} for curve in self.curves]
        return {"cases": self.cases, "temperature": self.temperature, "curves": curves}

    @classmethod
    def from_state(cls, state: dict[str, Any], task: Task) -> Self:
        """The inverse of `to_state`; a ValueError if the state is not one that `to_state` gives."""
        check_shape(state, STATE, "calibration")
        curves, temperature = state["curves"], state["temperature"]
        wanted = len(task.score_names("y")) if temperature is None else 0
        if len(curves) != wanted:
            raise ValueError(f"calibration has {len(curves)} curves, expected {wanted}.")
        if temperature is not None and not 0.99 / HOTTEST < temperature < 1.01 * HOTTEST:
            raise ValueError(f"calibration.temperature is {temperature!r}, expected 1 / {HOTTEST:g} to {HOTTEST:g}.")
        for number, curve in enumerate(curves):
            knots, values = curve["knots"], curve["values"]
            increasing = all(a <= b for part in (knots, values) for a, b in pairwise(part))
            if not knots or len(knots) != len(values) or not increasing:
                raise ValueError(
                    f"calibration.curves[{number}] is {reprlib.repr(curve)}, expected equally many knots and values, "
                    "both increasing."
                )
        made = (Curve(tuple(curve["knots"]), tuple(curve["values"])) for curve in curves)
        return cls(state["cases"], temperature, tuple(made))


def indicators_of(task: Task, targets: Tensor) -> Float[Tensor, "cases scores"]:
    """The truth behind each score, 1 or 0, NaN where unknown; a task that has none cannot be calibrated."""
    found = task.indicators(targets)
    if found is None:
        raise ArgumentError(
            Argument("calibrate"),
            f": the task {type(task).__name__} does not say how it is calibrated; use ",
            Argument("calibrate", None),
            ", or define its indicators(targets) and outputs_of_scores(log_odds).",
            argument="calibrate",
        )
    return found
