"""Increasing curves from log odds to probabilities: isotonic regression, smoothed and mixed with a logistic curve."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.isotonic import IsotonicRegression
from sklearn.model_selection import StratifiedKFold

FOLDS = 5
SHARES = np.linspace(0, 1, 11)  # of the isotonic curve in the mixture
POINTS = 101  # quantiles of the log odds at which the mixture is written down
STEEPEST = 100.0  # largest slope of the logistic curve

Array = NDArray[Any]


@dataclass(frozen=True)
class Curve:
    """A piecewise-linear map from log odds to probabilities, constant outside its knots."""

    knots: tuple[float, ...]
    values: tuple[float, ...]

    @classmethod
    def fit(cls, log_odds: Array, truth: Array, weights: Array) -> Self:
        r"""Learn a curve from log odds and the truth, 1 or 0.

        It is the mixture $w\, \text{isotonic} + (1 - w)\, \text{logistic}$, with the weight w, from 0 to 1, that has
        the least log-loss in cross-validation over five folds of the cases. From few cases the logistic curve is
        learnt better; from many, the isotonic one has any shape. With fewer than five cases of a class, $w = 1$.
        """
        seen = weights > 0
        log_odds, truth, weights = log_odds[seen], truth[seen], weights[seen]
        curve = cls.isotonic(log_odds, truth, weights)
        if min((truth > 0.5).sum(), (truth <= 0.5).sum()) < FOLDS:
            return curve
        both = np.empty((2, len(truth)))
        for kept, held in StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(log_odds, truth > 0.5):
            part = log_odds[kept], truth[kept], weights[kept]
            both[:, held] = cls.isotonic(*part)(log_odds[held]), Logistic.fit(*part)(log_odds[held])
        edge = 1 / (len(truth) + 2)
        mixed = np.clip(SHARES[:, None] * both[0] + (1 - SHARES[:, None]) * both[1], edge, 1 - edge)
        losses = -np.log(np.where(truth > 0.5, mixed, 1 - mixed)) @ weights
        share = SHARES[losses.argmin()]
        knots = np.union1d(curve.knots, np.quantile(log_odds, np.linspace(0, 1, POINTS)))
        values = share * curve(knots) + (1 - share) * Logistic.fit(log_odds, truth, weights)(knots)
        return cls(tuple(knots.tolist()), tuple(np.maximum.accumulate(values).tolist()))

    @classmethod
    def isotonic(cls, log_odds: Array, truth: Array, weights: Array) -> Self:
        """The centred isotonic regression (Oron and Flournoy 2017).

        Isotonic regression pools neighbouring cases into blocks, each with the share of ones among its cases. It jumps
        from block to block, which is more than the cases can tell. Here each share holds at the mean log odds of its
        block, and between two of these the curve is linear, which has a smaller error.

        Where a share is 0 or 1, among n cases, it is 1 / (n + 2) or 1 - 1 / (n + 2) instead, but not beyond that of the
        next block.
        """
        steps = IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip").fit(log_odds, truth, weights)
        values, block, counts = np.unique(steps.predict(log_odds), return_inverse=True, return_counts=True)
        centres = np.bincount(block, weights * log_odds) / np.bincount(block, weights)
        edge = 1 / (counts + 2)
        if len(values) > 1 and values[0] == 0:
            values[0] = min(edge[0], values[1])
        if len(values) > 1 and values[-1] == 1:
            values[-1] = max(1 - edge[-1], values[-2])
        return cls(tuple(centres.tolist()), tuple(values.tolist()))

    def __call__(self, log_odds: Array) -> NDArray[np.float64]:
        """The probabilities."""
        found: NDArray[np.float64] = np.interp(log_odds, self.knots, self.values)
        return found


@dataclass(frozen=True)
class Logistic:
    """The curve expit(slope * log odds + offset)."""

    slope: float
    offset: float

    @classmethod
    def fit(cls, log_odds: Array, truth: Array, weights: Array) -> Self:
        """Logistic regression of the truth on log odds, with an increasing curve (Platt 1999).

        As there, the N cases that are 1 count as (N + 1) / (N + 2), and those that are 0 likewise: the slope then stays
        finite for classes that the log odds separate.
        """
        ones, zeros = (truth > 0.5).sum(), (truth <= 0.5).sum()
        goal = np.where(truth > 0.5, (ones + 1) / (ones + 2), 1 / (zeros + 2))

        def loss(x: Array) -> tuple[float, Array]:
            score = x[0] * log_odds + x[1]
            wrong = weights * (expit(score) - goal)
            value = float(weights @ (np.logaddexp(0, score) - goal * score))
            return value / weights.sum(), np.array([wrong @ log_odds, wrong.sum()]) / weights.sum()

        found = minimize(loss, [1.0, 0.0], jac=True, method="L-BFGS-B", bounds=[(0.0, STEEPEST), (None, None)])
        return cls(*map(float, found.x))

    def __call__(self, log_odds: Array) -> NDArray[np.float64]:
        """The probabilities."""
        found: NDArray[np.float64] = expit(self.slope * log_odds + self.offset)
        return found
