"""Figures of the data: how long the series are, and how far apart their rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..series.tables import TableFormat
from .clock import unit_of
from .figure import LINE, Drawing, draw
from .wording import number


def data_figures(summary: dict[str, Any], format: TableFormat) -> list[Drawing]:
    """Lengths and gaps as histograms."""
    lengths = summary["lengths"]
    low, middle, high = (lengths["quantiles"][k] for k in (1, 3, 5))
    drawings = [
        histogram(
            "Length of the series",
            f"Half of the series have {number(middle)} rows or fewer, nine in ten between {number(low)} and {number(high)}.",
            lengths,
            xlabel="rows",
            ylabel="series",
        )
    ]
    if summary["gaps"]:
        quantiles = summary["gaps"]["quantiles"]
        factor, unit = unit_of(format, quantiles[3])
        low, middle, high = (quantiles[k] * factor for k in (1, 3, 5))
        even = (
            "The rows are evenly spaced."
            if high <= 1.001 * low
            else f"Rows are not evenly spaced: half of the gaps are below {number(middle)}, nine in ten between {number(low)} and "
            f"{number(high)} ({unit})."
        )
        drawings.append(
            histogram(
                "Time between rows",
                even,
                summary["gaps"],
                xlabel=f"gap ({unit})",
                ylabel="gaps",
                factor=factor,
            )
        )
    return drawings


def histogram(title: str, see: str, found: dict[str, Any], *, xlabel: str, ylabel: str, factor: float = 1.0) -> Drawing:
    """What `distribution` counted."""

    def paint(axes: Any) -> None:
        axes.stairs(found["counts"], np.asarray(found["edges"]) * factor, fill=True, color=LINE, alpha=0.85)
        if found["logarithmic"]:
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
            axes.xaxis.set_minor_formatter(lambda value, _: "")
        axes.yaxis.get_major_locator().set_params(integer=True)
        axes.yaxis.set_major_formatter(lambda value, _: number(value))
        axes.set(xlabel=xlabel, ylabel=ylabel)
        axes.grid(visible=False, axis="x")

    return draw(title, see, paint)
