"""Panels one below the other for `plot` methods, on matplotlib's own axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

WIDTH, HEIGHT = 6.0, 1.5  # inches of one panel


def panels_of(names: Sequence[str], axes: Any = None, *, height: float = HEIGHT) -> list[Any]:
    """One panel per name, with a shared horizontal axis; the given axes if there are any.

    Parameters
    ----------
    names
        Titles of the panels.
    axes
        Axes of matplotlib, one per name; None to make a figure.
    height
        Height of a panel in inches.
    """
    if axes is not None:
        given = list(axes) if hasattr(axes, "__len__") else [axes]
        if len(given) != len(names):
            raise ValueError(f"axes are {len(given)}, but there are {len(names)} panels: {list(names)}.")
    else:
        try:
            from matplotlib import pyplot
        except ImportError as reason:
            raise ImportError("plots need matplotlib: pip install 'neuralcde[cli]'.") from reason
        _, grid = pyplot.subplots(
            len(names), 1, sharex=True, squeeze=False, figsize=(WIDTH, 0.6 + height * len(names)), layout="constrained"
        )
        given = list(grid[:, 0])
    for panel, name in zip(given, names, strict=True):
        panel.set_title(name, loc="left", fontsize=9.5, parse_math=False)
        panel.spines[["top", "right"]].set_visible(False)
        panel.grid(alpha=0.25)
        panel.tick_params(labelsize=8.5)
    return given
