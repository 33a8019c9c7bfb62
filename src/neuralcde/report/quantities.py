"""Figures of a regressor's test: predicted against true, and what is left."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.metrics import r2_score

from ..tasks import RegressionTask
from .figure import DASHED, DOTS, LINE, Drawing, draw
from .run import Run
from .wording import number, score, short

TARGETS = 4  # that are drawn
POINTS = 1500  # of a scatter


def regression_figures(run: Run) -> list[Drawing]:
    """Three figures for every target: predicted against true, residuals against predicted, and their histogram."""
    task = run.estimator.task_
    assert isinstance(task, RegressionTask)
    drawings = []
    for k, name in enumerate(run.names[:TARGETS]):
        scaled = np.stack([run.targets[:, k].numpy(), run.outputs[:, k].double().numpy()])
        truth, found = (scaled * task.scales[k] + task.means[k])[:, ~np.isnan(scaled[0])]
        if len(truth):
            drawings += _figures_of(short(name), truth, found, run.cases, several=len(run.names) > 1)
    return drawings


def _figures_of(name: str, truth: Any, found: Any, cases: str, *, several: bool) -> list[Drawing]:
    residual = found - truth
    shown = np.arange(len(truth))
    if len(truth) > POINTS:
        shown = np.random.default_rng(0).choice(len(truth), POINTS, replace=False)
    few = f" {POINTS:,} of {len(truth):,} {cases} are drawn." if len(truth) > POINTS else ""
    dots = {"color": LINE, "marker": "o", "linestyle": "", "markersize": 3.2, "alpha": 0.55, "markeredgewidth": 0}
    of, level = "", ""
    if several:
        of, level = f": {name}", f" R² is {score(r2_score(truth, found))}."

    def scatter(axes: Any) -> None:
        ends = np.array([min(truth.min(), found.min()), max(truth.max(), found.max())])
        axes.plot(ends, ends, **DASHED)
        axes.plot(truth[shown], found[shown], **dots)
        axes.set(xlabel=f"true {name}", ylabel="predicted")

    def against(axes: Any) -> None:
        axes.axhline(0, **DASHED)
        axes.plot(found[shown], residual[shown], **dots)
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
            f"Dots on the dashed line are right; a cloud flatter than the line means that extremes are predicted too mildly.{level}{few}",
            scatter,
        ),
        draw(
            f"Residuals{of}",
            "A level band around zero is as it should be; a slope, a bend or a fan is something that the model misses.",
            against,
        ),
        draw(
            f"Histogram of the residuals{of}",
            f"Nine in ten lie between {number(low)} and {number(high)}; the red line is their mean, {number(residual.mean())}, which should be "
            "near zero.",
            histogram,
        ),
    ]
