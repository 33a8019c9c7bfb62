"""Three test series: what was observed, the path X that the model sees, and what it predicts as time goes on."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..series import IrregularSeries
from ..series.tables import static_columns
from ..tasks import BinaryTask, MulticlassTask, RegressionTask
from .clock import Clock, clock_of
from .figure import COLOURS, DARK, DOTS, GREY, LINE, WIDTH, Drawing, draw
from .run import Run
from .wording import number, percent, short

Array = NDArray[Any]
CHANNELS = 4  # that are drawn
DENSE = 400  # points of a path, beside its knots
DRAWN = 400  # observations of a channel, and times of a prediction
BELOW: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (0, -0.42), "ncols": 2, "handlelength": 1.2}
LINES = 4  # classes, labels or targets of which the prediction is drawn


def example_figures(run: Run) -> list[Drawing]:
    """A figure for each example."""
    chosen = telling_channels(run)
    return [
        _figure(run, run.examples[[k]], position, role, chosen)
        for k, (position, role) in enumerate(run.data["examples"])
    ]


def telling_channels(run: Run) -> list[int]:
    """The channels without which the outputs for the examples would differ the most, in the order of the table."""
    examples, estimator = run.examples, run.estimator
    there = [k for k in range(examples.channels) if bool(examples.observed[:, k].any())]
    if len(there) <= CHANNELS:
        return there
    outputs = estimator._outputs(examples)
    changes = []
    for k in there:
        values = examples.values.clone()
        values[:, k] = torch.nan
        without = estimator._outputs(dataclasses.replace(examples, values=values))
        changes.append(float((without - outputs).abs().sum()))
    return sorted(there[k] for k in np.argsort(changes)[-CHANNELS:])


def _figure(run: Run, series: IrregularSeries, position: int, role: str, channels: list[int]) -> Drawing:
    times = series.times.numpy()
    clock = clock_of(series.format, float(times[0]), float(times[-1]))
    t, path = path_of(run, series)
    observed, scales = series.values.numpy(), run.estimator.preparation_.scaler.scale_.numpy()
    rows = _spread(len(times), DRAWN)

    def paint(panels: Any) -> None:
        panels = panels if isinstance(panels, list) else [panels]
        for axes, k in zip(panels, channels, strict=False):
            axes.plot(_shown(t, clock), path[:, k], color=LINE, linewidth=1.2)
            axes.plot(_shown(times, clock)[rows], observed[rows, k], "o", color=DOTS, markersize=3.2)
            axes.set_title(short(series.channel_names[k], 44))
            axes.yaxis.get_major_locator().set_params(nbins=4)
            if np.ptp(path[:, k]) < 1e-4 * scales[k]:  # constant but for rounding
                axes.set_ylim(path[0, k] - scales[k], path[0, k] + scales[k])
        _prediction(panels[-1], run, series, position, clock)
        panels[-1].set_xlabel(clock.label)
        if len(times) == 1:
            panels[-1].set_xticks(_shown(times, clock))

    title, see = _words(run, series, position, role, clock)
    size = (WIDTH, 0.55 + 0.98 * len(channels) + 1.45)
    return draw(title, see, paint, rows=len(channels) + 1, size=size)


def path_of(run: Run, series: IrregularSeries) -> tuple[Array, Array]:
    """Times, and the data channels of X in the user's units there; at a knot before and after it."""
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
    raw = values[order][:, data].double() * scaler.scale_ + scaler.mean_
    return (t[order] * scaler.time_scale_).numpy(), raw.numpy()


def _prediction(axes: Any, run: Run, series: IrregularSeries, position: int, clock: Clock) -> None:
    """The last panel: what is predicted after each row."""
    task = run.estimator.task_
    times = series.times.numpy()
    rows = _spread(len(times), DRAWN)
    outputs = run.estimator._outputs_at(series, times[rows])[0]
    truth = run.targets[run.rows_of(position)].numpy()
    look = {"linewidth": 1.5, "marker": "o" if len(rows) <= 60 else "", "markersize": 2.6}
    t = _shown(times, clock)

    def truths(values: Array, colour: str) -> None:
        if len(values) == 1:
            axes.axhline(values[0], color=colour, linewidth=1.1, linestyle=(0, (4, 3)))
        else:
            axes.plot(t[rows], values[rows], color=colour, linewidth=1.1, linestyle=(0, (4, 3)))

    if isinstance(task, RegressionTask):
        several = len(task.means) > 1
        scale, mean = (np.ones(1), np.zeros(1)) if several else (np.array(task.scales), np.array(task.means))
        for k, name in enumerate(run.names[:LINES]):
            colour = COLOURS[k] if several else DARK
            axes.plot(t[rows], outputs[:, k].numpy() * scale[0] + mean[0], color=colour, label=short(name, 18), **look)
            truths(truth[:, k] * scale[0] + mean[0], colour)
        axes.set_title(f"predicted {'targets, standardised' if several else short(run.label)}; dashed: true")
        if several:
            axes.legend(**BELOW)
        return
    p = task.probabilities(outputs)  # type: ignore[attr-defined]
    axes.set(ylim=(-0.04, 1.04))
    axes.set_yticks([0, 0.5, 1], ["0", "½", "1"])
    if isinstance(task, BinaryTask):
        axes.plot(t[rows], p[:, 1], color=DARK, **look)
        if len(truth) > 1:
            truths(truth, GREY)
        dashed = "; dashed: true" if len(truth) > 1 else ""
        axes.set_title(f"predicted chance of {short(run.names[1], 24)}{dashed}")
        return
    told = []
    if len(truth) == 1:
        told = [int(truth[0])] if isinstance(task, MulticlassTask) else np.flatnonzero(truth[0] == 1).tolist()
    likely = np.argsort(-p.max(0), kind="stable").tolist()
    for place, k in enumerate([*told, *(k for k in likely if k not in told)][:LINES]):
        # matplotlib leaves names that start with _ out of legends, but not those that start with no space at all
        name = f"\u200b{short(run.names[k], 14)}" + (" (true)" if k in told else "")
        axes.plot(t[rows], p[:, k], color=COLOURS[place], label=name, **look)
    axes.set_title("predicted chance")
    axes.legend(**BELOW)


def _words(run: Run, series: IrregularSeries, position: int, role: str, clock: Clock) -> tuple[str, str]:
    """Title and sentence of an example."""
    facts = [f"{len(series.times):,} rows, {int(series.observed.sum()):,} values"]
    if clock.since:
        facts.append(f"start {clock.since}")
    features = static_columns(series.static.numpy(), series.format)
    facts += [f"{short(key)} {_value(column[0])}" for key, column in features[:6]]
    verdict, told = _judged(run, run.rows_of(position), role)
    return f"{short(series.ids[0], 40)}: {verdict}", f"{told}. {'; '.join(facts)}."


def _judged(run: Run, part: slice, role: str) -> tuple[str, str]:
    """What an example is an example of, and what was predicted."""
    task, truth, outputs = run.estimator.task_, run.targets[part].numpy(), run.outputs[part]
    verdict = {"surest": "the best", "typical": "a typical one", "worst": "the worst"}[role]
    if run.estimator.per_row:
        return verdict, "Judged by its mean loss"
    if isinstance(task, RegressionTask):
        found, known = np.ravel(task.decode(outputs)), truth[0] * np.array(task.scales) + np.array(task.means)
        names = [f"{short(name)} " if len(found) > 1 else "" for name in run.names[:LINES]]
        pairs = [f"{name}{number(found[k])}, true {number(known[k])}" for k, name in enumerate(names)]
        return verdict, f"Predicted {'; '.join(pairs)}"
    p = task.probabilities(outputs)[0]  # type: ignore[attr-defined]
    answer = int(p.argmax())
    if not isinstance(task, BinaryTask | MulticlassTask):
        yes = ", ".join(short(run.names[k]) for k in np.flatnonzero(truth[0] == 1)[:6])
        return verdict, f"True: {yes or 'none'}; likeliest: {short(run.names[answer])} with {percent(p[answer])}"
    true = int(truth[0])
    told = f"Predicted {short(run.names[answer])} with {percent(p[answer])}"
    if true == answer:
        return {"surest": "sure and right", "typical": "typical", "worst": "the least sure"}[role], f"{told}, rightly"
    missed = {"surest": "the best of its class, missed", "typical": "typical, and missed", "worst": "the worst mistake"}
    return missed[role], f"{told}, wrongly: it is {short(run.names[true])}, which gets {percent(p[true])}"


def _value(item: Any) -> str:
    if isinstance(item, str):
        return short(item)
    return "unknown" if item is None or item != item else number(float(item))


def _shown(times: Array, clock: Clock) -> Array:
    return (times - clock.start) * clock.factor


def _spread(size: int, most: int) -> Array:
    """Positions from the first to the last, at most so many."""
    return np.arange(size) if size <= most else np.unique(np.linspace(0, size - 1, most).round().astype(int))
