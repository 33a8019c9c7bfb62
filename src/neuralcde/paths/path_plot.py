"""A plot of the control path of one series, with its observations."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ..figures import DOTS, LINE, panels_of, short
from ..series.display import clock_of_series, position_of
from .control_path import ControlPath

POINTS = 1000  # evaluations between the knots


def plot_path(path: ControlPath, id: Any, axes: Any) -> list[Any]:
    """`path.plot(id)`."""
    one = path[position_of(path.series, id)]
    knots, names = one.knots.detach().cpu(), one.series.channel_names
    inside = torch.linspace(float(knots[0]), float(knots[-1]), POINTS, dtype=torch.float64)[1:-1]
    t = torch.cat([inside, knots, knots]).to(one.knots.device)
    at_knots = t[len(inside) : len(inside) + len(knots)]
    found = [one.evaluate(t[: len(inside)]), one.evaluate(at_knots, side="left"), one.evaluate(at_knots)]
    values = torch.cat(found, dim=1)[0].detach().cpu().numpy()
    times = t.cpu().numpy()
    order = np.argsort(times, kind="stable")  # at a knot the left limit comes before the right one
    panels = panels_of([short(name, 60) for name in names], axes)
    clock = clock_of_series(one.series)
    rows, observed = clock.on_axis(one.series.times.detach().cpu().numpy()), one.series.values.detach().cpu().numpy()
    for k, panel in enumerate(panels):
        panel.plot(clock.on_axis(times[order]), values[order, k], color=LINE, linewidth=1.2)
        panel.plot(rows, observed[:, k], "o", color=DOTS, markersize=3.5)
    panels[-1].set_xlabel(clock.label)
    return panels
