"""Figures of regression tasks: predicted against true values, and residuals."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import r2_score

from ..figures import DASHED, DOTS, LINE, Drawing, draw, number, score, short
from .evaluation import Evaluation

TARGETS = 4  # maximum number of targets with figures
POINTS = 1500  # maximum number of points of a scatter plot


def regression_figures(predicted: NDArray[Any], truth: NDArray[Any], test: Evaluation) -> list[Drawing]:
    """Three figures per target: predicted against true, residuals against predicted, and their histogram.

    `predicted` and `truth` are in the units of y, of shape (cases, targets).
    """
    drawings = []
    for k, name in enumerate(test.names[:TARGETS]):
        known = ~np.isnan(truth[:, k])
        if known.any():
            pair = truth[known, k], predicted[known, k]
            drawings += _figures_of(short(name), *pair, test.cases, several=len(test.names) > 1)
    return drawings


def _figures_of(name: str, truth: Any, predicted: Any, cases: str, *, several: bool) -> list[Drawing]:
    residual = predicted - truth
    shown = np.arange(len(truth))
    if len(truth) > POINTS:
        shown = np.random.default_rng(0).choice(len(truth), POINTS, replace=False)
    subset = f" {POINTS:,} of {len(truth):,} {cases} are shown." if len(truth) > POINTS else ""
    dots = {"color": LINE, "marker": "o", "linestyle": "", "markersize": 3.2, "alpha": 0.55, "markeredgewidth": 0}
    of, level = "", ""
    if several:
        of, level = f": {name}", f" R² is {score(r2_score(truth, predicted))}."

    def scatter(axes: Any) -> None:
        ends = np.array([min(truth.min(), predicted.min()), max(truth.max(), predicted.max())])
        axes.plot(ends, ends, **DASHED)
        axes.plot(truth[shown], predicted[shown], **dots)
        axes.set(xlabel=f"true {name}", ylabel="predicted")

    def residual_plot(axes: Any) -> None:
        axes.axhline(0, **DASHED)
        axes.plot(predicted[shown], residual[shown], **dots)
        axes.set(xlabel=f"predicted {name}", ylabel="predicted minus true")

    def histogram(axes: Any) -> None:
        axes.hist(residual, bins=min(40, max(8, round(len(residual) ** 0.5))), color=LINE, alpha=0.85)
        axes.axvline(0, **DASHED)
        axes.axvline(residual.mean(), color=DOTS, linewidth=1.4)
        axes.set(xlabel="predicted minus true", ylabel=cases)
        axes.yaxis.get_major_locator().set_params(integer=True)

    low, high = np.quantile(residual, [0.05, 0.95])
    return [
        draw(
            f"Predicted against true{of}",
            "Dots on the dashed line are exact. A cloud flatter than the line means that predictions of extreme values "
            f"are too close to the mean.{level}{subset}",
            scatter,
        ),
        draw(
            f"Residuals{of}",
            "Ideally a horizontal band around zero. A slope, a bend or a fan shows structure that the model misses.",
            residual_plot,
        ),
        draw(
            f"Histogram of the residuals{of}",
            f"90 % of the residuals lie between {number(low)} and {number(high)}. The red line is their mean, "
            f"{number(residual.mean())}, which should be near zero.",
            histogram,
        ),
    ]
