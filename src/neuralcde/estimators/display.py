"""How a fitted estimator shows itself in a notebook: what it learnt from, its epochs, and the risk of one series."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from markupsafe import Markup

from ..figures import COLOURS, LINE, number, panels_of, score, sparkline
from ..series import IrregularSeries
from ..series.display import clock_of_series, position_of
from ..tasks import metric_title
from .fitted_estimator import FittedEstimator

BETWEEN = 200  # times between the first and the last row at which the prediction is drawn


def summary_html(estimator: FittedEstimator) -> str:
    """What the estimator was fitted on, its epochs and its validation metric, as a table."""
    task, history = estimator.task_, estimator.history_
    preparation = estimator.preparation_
    facts: list[tuple[str, Any]] = [
        ("task", task.title),
        (
            "fitted on",
            f"{number(preparation.fitted_on)} series, {number(len(preparation.scaler.channel_names_in_))} channels",
        ),
        ("model", estimator.module_.title if not estimator.ensemble_ else f"the mean of {estimator.ensemble_}"),
        ("epochs", f"{len(history)}, weights of epoch {estimator.best_epoch_}"),
        ("loss", _line([row["loss"] for row in history])),
    ]
    name = f"validation_{task.metric}"
    values = [row[name] for row in history if name in row]
    if values:
        best = score(history[estimator.best_epoch_ - 1][name])
        facts.append((f"{metric_title(task.metric)} on validation series", Markup("{} {}").format(best, _line(values))))
    rows = Markup("").join(Markup("<tr><th>{}</th><td>{}</td></tr>").format(*fact) for fact in facts)
    return str(Markup("<table>{}</table>").format(rows))


def _line(values: list[float]) -> Markup:
    points = [(float(k), value) for k, value in enumerate(values) if math.isfinite(value)]
    return sparkline(points, dots=False, width=160, height=26)


def plot_risk(estimator: FittedEstimator, series: IrregularSeries, id: Any, axes: Any) -> Any:
    """`estimator.plot_risk(series, id)`."""
    place = position_of(series, id)
    one = series.at(slice(place, place + 1))
    rows = one.times.numpy()
    times = np.unique(np.concatenate([np.linspace(rows[0], rows[-1], BETWEEN), rows]))
    outputs = estimator.calibrated(estimator.outputs_at(one, times)[0], over_time=True)
    task = estimator.task_
    names = task.target_names("target")
    forecast = task.forecast(outputs, _unknown(estimator, outputs), names)
    title = forecast.title.partition(";")[0] + before_calibration(estimator)
    (panel,) = panels_of([title], None if axes is None else [axes], height=2.6)
    at_rows = np.searchsorted(times, rows)
    several, clock = len(forecast.curves) > 1, clock_of_series(one)
    for k, curve in enumerate(forecast.curves):
        colour = COLOURS[k] if several else LINE
        panel.plot(clock.on_axis(times), curve.values, color=colour, linewidth=1.3, label=f"\u200b{curve.name}")
        panel.plot(clock.on_axis(rows), np.asarray(curve.values)[at_rows], "o", color=colour, markersize=3)
    if forecast.probability:
        panel.set_ylim(-0.03, 1.03)
    if several:
        panel.legend(frameon=False, fontsize=8.5)
    panel.set_xlabel(clock.label)
    return panel


def before_calibration(estimator: FittedEstimator) -> str:
    """The end of the title of a figure of predictions over time that the calibration does not hold for."""
    return "" if estimator.calibrated_over_time else ", before calibration"


def _unknown(estimator: FittedEstimator, outputs: torch.Tensor) -> torch.Tensor:
    """One target that is not known, as the task encodes it."""
    task = estimator.task_
    return task.encode(np.full(np.shape(task.decode(outputs[:1])), np.nan))
