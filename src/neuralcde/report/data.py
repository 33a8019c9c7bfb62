"""Figures and facts about the data: lengths of the series, and time between rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..figures import LINE, Drawing, draw, number
from ..series.clock import unit_of
from ..series.table_format import TableFormat


def data_figures(summary: dict[str, Any], format: TableFormat) -> list[Drawing]:
    """Histograms of the lengths and of the gaps between rows; none for constant ones."""
    lengths, gaps = summary["lengths"], summary["gaps"]
    drawings = []
    if differ(lengths):
        low, middle, high = (number(lengths["quantiles"][k]) for k in (1, 3, 5))
        see = f"Half of the series have {middle} rows or fewer, and 90 % have between {low} and {high}."
        drawings.append(histogram("Length of the series", see, lengths, xlabel="rows", ylabel="series"))
    if gaps and differ(gaps):
        factor, unit = unit_of(format, gaps["quantiles"][3])
        low, middle, high = (number(gaps["quantiles"][k] * factor) for k in (1, 3, 5))
        see = (
            f"Rows are not evenly spaced: half of the gaps are {middle} or less, and 90 % are between {low} and {high} "
            f"({unit})."
        )
        drawings.append(histogram("Time between rows", see, gaps, xlabel=f"gap ({unit})", ylabel="gaps", factor=factor))
    return drawings


def data_facts(summary: dict[str, Any], format: TableFormat) -> dict[str, str]:
    """Ranges of the lengths and of the gaps between rows, as text."""

    def between(found: dict[str, Any], factor: float, unit: str) -> str:
        low, high = (number(found["quantiles"][k] * factor) for k in (0, -1))
        return f"{low} to {high} {unit}" if differ(found) else f"always {low} {unit}"

    facts = {"rows per series": between(summary["lengths"], 1.0, "")}
    if summary["gaps"]:
        factor, unit = unit_of(format, summary["gaps"]["quantiles"][3])
        facts["time between rows"] = between(summary["gaps"], factor, f"({unit})")
    return facts


def far_rows(far: dict[str, Any], format: TableFormat) -> list[dict[str, Any]]:
    """One row per listed value far outside the usual range, as text; the count of its channel and part beside it."""
    return [
        {
            "part": part,
            "channel": entry["channel"],
            "count": count["count"],
            "series": entry["series"],
            "time": "-" if entry["time"] is None else format.show(entry["time"]),
            "value": number(entry["value"], 4),
            "usual": " to ".join(number(end, 4) for end in entry["usual"]),
        }
        for part, found in far.items()
        for count in found["counts"]
        for entry in found["listed"]
        if entry["channel"] == count["name"]
    ]


def differ(found: dict[str, Any]) -> bool:
    """Whether the numbers differ by more than rounding errors."""
    low, high = found["quantiles"][0], found["quantiles"][-1]
    return bool(high - low > 1e-6 * abs(high))


def histogram(title: str, see: str, found: dict[str, Any], *, xlabel: str, ylabel: str, factor: float = 1.0) -> Drawing:
    """Histogram of a `distribution`."""

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
