"""Pictures of control paths."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from ..paths import ControlPath

SHOWN = 1200  # points along a path


def draw_paths(paths: Mapping[str, ControlPath], file: Path, *, series: int = 0) -> Path:
    """Draw one series under several schemes: a row a scheme, a column a channel, observations as dots.

    Parameters
    ----------
    paths
        Paths of the same series, by the title of their row.
    file
        Where to save; the ending chooses the format.
    series
        Position of the series to draw.

    Returns
    -------
    Path
        `file`, absolute.
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
        order = np.argsort(t.numpy(), kind="stable")  # at a knot: left, then right
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
