"""The calibration slope: how the predicted log odds should be stretched to fit the outcomes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

Array = NDArray[Any]
BINS = 2000  # most distinct logits; more are replaced by means of neighbours
STEPS = 30
LARGEST_STEP = 3.0
STEEPEST = 100.0  # a steeper slope is of classes that a threshold separates, where it has no finite value


def calibration_slopes(weights: Array, logits: Array, truth: Array) -> Array:
    r"""The slope $b$ of the logistic regression $\mathrm{logit}\, P(y = 1) = a + b\, o$ on the predicted logits $o$.

    It is 1 for calibrated predictions. Below 1 they are too extreme, which is a sign of overfitting; above 1 they are
    too cautious.

    Parameters
    ----------
    weights
        How often each resample draws each case, (resamples, cases).
    logits, truth
        Predicted logits, and 0 or 1 per case; a truth of NaN is unknown.

    Returns
    -------
    array
        One slope per resample; NaN where it is not defined: only one class, equal logits, or separable classes.
    """
    known = ~np.isnan(truth)
    order = np.flatnonzero(known)[np.argsort(logits[known], kind="stable")]
    if len(order) < 2 or logits[order[0]] == logits[order[-1]]:
        return np.full(len(weights), np.nan)
    starts = np.flatnonzero(np.r_[True, np.diff(logits[order]) != 0])
    if len(starts) > BINS:
        starts = np.unique(np.linspace(0, len(order), BINS, endpoint=False).astype(int))
    sizes = np.diff(np.r_[starts, len(order)])
    x = np.add.reduceat(logits[order], starts) / sizes
    middle, spread = x.mean(), x.std()
    x = (x - middle) / spread
    drawn = weights[:, order]
    total = np.add.reduceat(drawn, starts, axis=1)
    positive = np.add.reduceat(drawn * (truth[order] > 0.5), starts, axis=1)
    defined = (positive.sum(1) > 0) & (positive.sum(1) < total.sum(1))
    return np.where(defined, _newton(total, positive, x, middle, spread) / spread, np.nan)


def _newton(total: Array, positive: Array, x: Array, middle: float, spread: float) -> Array:
    """Slopes on the standardised logits x, by Newton's method from the predictions themselves."""
    a, b = np.full(len(total), middle), np.full(len(total), spread)
    step = np.full(len(total), np.inf)
    with np.errstate(all="ignore"):
        for _ in range(STEPS):
            p = expit(a[:, None] + b[:, None] * x)
            error, curvature = positive - total * p, total * p * (1 - p)
            g0, g1 = error.sum(1), error @ x
            h00, h01, h11 = curvature.sum(1), curvature @ x, curvature @ x**2
            scale = h00 * h11 - h01**2
            da, db = (h11 * g0 - h01 * g1) / scale, (h00 * g1 - h01 * g0) / scale
            step = np.maximum(np.abs(da), np.abs(db))
            shrink = np.minimum(1.0, LARGEST_STEP / step)
            a, b = a + shrink * da, b + shrink * db
            if not (step > 1e-9).any():
                break
    return np.where((step < 1e-6) & (np.abs(b) < STEEPEST), b, np.nan)
