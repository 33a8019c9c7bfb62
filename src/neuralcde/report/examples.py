"""Figures of example test series: observations, the path X that the model sees, and the prediction over time."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..estimators.display import before_calibration
from ..explanations import Explanation
from ..figures import COLOURS, DARK, DASHED, DOTS, GREY, LINE, WIDTH, Drawing, draw, number, short
from ..series import FarValueWarning, IrregularSeries
from ..series.clock import Clock, clock_of
from ..series.tables import static_columns
from ..tasks.evaluation import Role
from ..tasks.task import GENERAL_VERDICTS
from .explained import channels_of_terms
from .run import Run

Array = NDArray[Any]
CHANNELS = 4  # maximum number of channels in a figure
DENSE = 400  # number of evaluation points per path, in addition to its knots
DRAWN = 400  # maximum number of observations per channel, and of predictions, in a figure
BELOW: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (0, -0.42), "ncols": 2, "handlelength": 1.2}


def example_figures(run: Run, explanation: Explanation | None) -> list[Drawing]:
    """One figure per example series; the explanation of these series, if there is one, tells which channels matter."""
    with warnings.catch_warnings():  # fit has warned already, and the page lists these values
        warnings.simplefilter("ignore", FarValueWarning)
        chosen = telling_channels(run, explanation)
        return [
            _figure(run, run.examples[[k]], position, role, chosen)
            for k, (position, role) in enumerate(run.data["examples"])
        ]


def telling_channels(run: Run, explanation: Explanation | None) -> list[int]:
    """Positions of the channels that moved the outputs for the examples the most, in table order.

    Without an explanation, they are those whose removal changes these outputs the most.
    """
    examples, estimator = run.examples, run.estimator
    if explanation is not None:
        return sorted(channels_of_terms(explanation)[:CHANNELS])
    there = [k for k in range(examples.channels) if bool(examples.observed[:, k].any())]
    if len(there) <= CHANNELS:
        return there
    outputs = estimator.outputs(examples)
    changes = []
    for k in there:
        values = examples.values.clone()
        values[:, k] = torch.nan
        without = estimator.outputs(dataclasses.replace(examples, values=values))
        changes.append(float((without - outputs).abs().sum()))
    return sorted(there[k] for k in np.argsort(changes)[-CHANNELS:])


def _figure(run: Run, series: IrregularSeries, position: int, role: Role, channels: list[int]) -> Drawing:
    times = series.times.numpy()
    clock = clock_of(series.format, float(times[0]), float(times[-1]))
    t, path = path_of(run, series)
    observed, scales = series.values.numpy(), run.estimator.preparation_.scaler.scale_.numpy()
    rows = _spread(len(times), DRAWN)
    known = since_first(series, t)

    def paint(panels: Any) -> None:
        panels = panels if isinstance(panels, list) else [panels]
        for axes, k in zip(panels, channels, strict=False):
            axes.plot(_shown(t, clock), np.where(known[:, k], path[:, k], np.nan), color=LINE, linewidth=1.2)
            axes.plot(_shown(times, clock)[rows], observed[rows, k], "o", color=DOTS, markersize=3.2)
            axes.set_title(short(series.channel_names[k], 44))
            axes.yaxis.get_major_locator().set_params(nbins=4)
            if not known[:, k].any():
                axes.text(0.5, 0.5, "not observed", transform=axes.transAxes, ha="center", va="center", color=GREY)
                axes.set_yticks([])
            elif np.ptp(path[known[:, k], k]) < 1e-4 * scales[k]:  # constant up to rounding errors
                axes.set_ylim(path[-1, k] - scales[k], path[-1, k] + scales[k])
        _prediction(panels[-1], run, series, position, clock)
        panels[-1].set_xlabel(clock.label)
        if len(times) == 1:
            panels[-1].set_xticks(_shown(times, clock))

    title, see = _words(run, series, position, role, clock)
    size = (WIDTH, 0.55 + 0.98 * len(channels) + 1.45)
    return draw(title, see, paint, rows=len(channels) + 1, size=size)


def path_of(run: Run, series: IrregularSeries) -> tuple[Array, Array]:
    """Times, and the data channels of X at them in the units of the table; left and right limits at each knot."""
    preparation = run.estimator.preparation_
    prepared = preparation.series(series)
    path = preparation.path(prepared)
    knots = path.knots
    inside = torch.linspace(float(knots[0]), float(knots[-1]), DENSE, dtype=torch.float64)[1:-1]
    if len(knots) > DENSE:
        knots = knots[_spread(len(knots), DENSE)]
    t = torch.cat([inside, knots, knots])
    values = torch.cat([path.evaluate(inside), path.evaluate(knots, side="left"), path.evaluate(knots)], dim=1)[0]
    order = t.argsort(stable=True)
    data = [k for k, role in enumerate(prepared.roles) if role == "data"]
    scaler = preparation.scaler
    raw = scaler.inverse_values(values[order][:, data].double())
    return (t[order] * scaler.time_scale_).numpy(), raw.numpy()


def since_first(series: IrregularSeries, t: Array) -> NDArray[np.bool_]:
    """Whether each channel of one series was observed at or before each time.

    Before that, the path has the mean of the training series, which is no observation.
    """
    times, observed = series.times.numpy(), series.observed.numpy()
    first = np.where(observed.any(0), times[observed.argmax(0)], np.inf)
    # the times of the path went through the scaler and back
    found: NDArray[np.bool_] = t[:, None] >= first - 1e-9 * max(1.0, float(np.abs(times).max()))
    return found


def _prediction(axes: Any, run: Run, series: IrregularSeries, position: int, clock: Clock) -> None:
    """Draw the last panel: the prediction after each row."""
    times = series.times.numpy()
    rows = _spread(len(times), DRAWN)
    outputs = run.estimator.outputs_at(series, times[rows])[0]
    if run.estimator.calibrated_over_time:
        outputs = run.estimator.calibrated(outputs, over_time=True)
    forecast = run.estimator.task_.forecast(outputs, run.targets[run.rows_of(position)], run.names)
    look = {"linewidth": 1.5, "marker": "o" if len(rows) <= 60 else "", "markersize": 2.6}
    t, several = _shown(times, clock)[rows], len(forecast.curves) > 1
    for place, curve in enumerate(forecast.curves):
        colour, truth_colour = (COLOURS[place], COLOURS[place]) if several else (DARK, GREY)
        # matplotlib leaves labels that start with _ out of the legend; the zero-width space in front keeps them
        axes.plot(t, curve.values, color=colour, label=f"\u200b{curve.name}", **look)
        if curve.truth is not None and len(curve.truth) == 1:
            axes.axhline(curve.truth[0], **DASHED | {"color": truth_colour})
        elif curve.truth is not None:
            axes.plot(t, curve.truth[rows], **DASHED | {"color": truth_colour})
    if forecast.probability:
        axes.set(ylim=(-0.04, 1.04))
        axes.set_yticks([0, 0.5, 1], ["0", "½", "1"])
    title, semicolon, rest = forecast.title.partition(";")
    axes.set_title(f"{title}{before_calibration(run.estimator)}{semicolon}{rest}")
    if several:
        axes.legend(**BELOW)


def _words(run: Run, series: IrregularSeries, position: int, role: Role, clock: Clock) -> tuple[str, str]:
    """Title and caption of an example's figure."""
    facts = [f"{len(series.times):,} rows, {int(series.observed.sum()):,} values"]
    if clock.since:
        facts.append(f"start {clock.since}")
    features = static_columns(series.static.numpy(), series.format)
    facts += [f"{short(key)} {_value(column[0])}" for key, column in features[:6]]
    verdict, sentence = _verdict(run, run.rows_of(position), role)
    return f"{short(series.ids[0], 40)}: {verdict}", f"{sentence}. {'; '.join(facts)}."


def _verdict(run: Run, part: slice, role: Role) -> tuple[str, str]:
    """Why the example was chosen, for the title, and its prediction, for the caption."""
    if run.estimator.per_row:
        return GENERAL_VERDICTS[role], "Ranked by its mean loss"
    return run.estimator.task_.verdict(run.outputs[part], run.targets[part], run.names, role)


def _value(item: Any) -> str:
    if isinstance(item, str):
        return short(item)
    return "unknown" if item is None or item != item else number(float(item))


def _shown(times: Array, clock: Clock) -> Array:
    return clock.on_axis(times)


def _spread(size: int, most: int) -> Array:
    """At most `most` evenly spaced positions from 0 to `size` - 1."""
    return np.arange(size) if size <= most else np.unique(np.linspace(0, size - 1, most).round().astype(int))
