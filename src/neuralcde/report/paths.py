"""Plots of control paths."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from ..paths import ControlPath

SHOWN = 1200  # number of evaluation points per path


def draw_paths(paths: Mapping[str, ControlPath], file: Path, *, series: int = 0) -> Path:
    """Plot the paths of one series under several schemes: one row per scheme, one column per channel.

    Observations are drawn as dots.

    Parameters
    ----------
    paths
        Paths of the same series; the keys are the titles of the rows.
    file
        Image file to write; its extension chooses the format.
    series
        Position of the series to plot.

    Returns
    -------
    Path
        Absolute path of `file`.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    first = next(iter(paths.values()))[series]
    names = first.series.channel_names
    figure = Figure(figsize=(3.6 * len(names), 1.7 * len(paths) + 0.6), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(len(paths), len(names), squeeze=False, sharex=True, sharey="col")
    times = first.knots.detach().cpu()
    observed = first.series.values.detach().cpu().numpy()
    for row, (title, batch) in enumerate(paths.items()):
        path = batch[series]
        dense = torch.linspace(float(times[0]), float(times[-1]), SHOWN, dtype=torch.float64)[1:-1]
        t = torch.cat([dense, times, times])
        curve = torch.cat([path.evaluate(dense), path.evaluate(times, side="left"), path.evaluate(times)], dim=1)
        order = np.argsort(t.numpy(), kind="stable")  # at a knot the left limit comes before the right one
        line = curve[0].detach().cpu().numpy()[order]
        for column, name in enumerate(names):
            axes = grid[row, column]
            axes.plot(t.numpy()[order], line[:, column], color="#1f6f8b", linewidth=1.4)
            axes.plot(times, observed[:, column], "o", color="#d1495b", markersize=4.5, zorder=3)
            axes.spines[["top", "right"]].set_visible(False)
            axes.tick_params(labelsize=8)
            axes.grid(alpha=0.25)
            if row == 0:
                axes.set_title(name, fontsize=11)
            if column == 0:
                axes.set_ylabel(title, fontsize=9)
    for axes in grid[-1]:
        axes.set_xlabel("time", fontsize=9)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=130)
    return file.resolve()
