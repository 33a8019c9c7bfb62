"""The picture of an explanation: the risk over time, and the observations that moved it most."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..figures import DARK, DOTS, GREY, LINE, Drawing, draw, number, percent, short, with_minus
from ..series.clock import clock_of
from .explanation import Explanation, Term

WIDE = (7.8, 4.2)  # inches
BAND = 0.45  # fraction of the height that is left for the texts
LINE_HEIGHT = 0.085  # of a text, as a fraction of the height


def drawing(one: Explanation, name: str | None, count: int) -> Drawing:
    """The picture as SVG."""
    place = one.place_of(name)
    title = f"{short(one.series.ids[0], 40)}: {_quantity(one, place, ' over time')}"
    return draw(title, caption(one, place), lambda axes: paint(one, axes, name, count), size=WIDE, wide=True)


def caption(one: Explanation, place: int) -> str:
    """How to read the picture, with what was known before the first observation."""
    shown = percent if one.probabilities else number
    early = " (before calibration)" if one.before_calibration else ""
    parts = [f"Knowing nothing{early}: {shown(float(one.risk(one.start[0, place])))}"]
    known = one.known[0]
    for column in np.argsort(-abs(one.static[0, :, place]))[:3]:
        if known[column]:
            value = one.static_values[column][0]
            text = short(value, 14) if isinstance(value, str) else number(float(value))
            parts.append(f"{short(one.static_columns[column], 20)} {text}: {signed(one.static[0, column, place])}")
    unit = f", in {one.unit}" if one.unit else ""
    return (
        f"{'; '.join(parts)}. A vertical step is what the observations at a time changed; between them time passes. "
        f"The numbers are the changes{unit}."
    )


def paint(one: Explanation, axes: Any, name: str | None, count: int) -> None:
    """Draw the only series of an explanation."""
    place, times = one.place_of(name), one.series.times.numpy()
    clock = clock_of(one.series.format, float(times[0]), float(times[-1]))
    t = clock.on_axis(times)
    after = one.risk(one.at_rows[:, place])
    before = one.risk(one.at_rows[:, place] - one.observations[:, :, place].sum(1))
    line = np.stack([before, after], axis=1).reshape(-1)
    axes.plot(t.repeat(2), line, color=LINE, linewidth=1.4)
    top = list(zip(one.top(0, count, one.names[place]), one.largest(place, count), strict=True))
    marked = [(term, row) for term, (row, _) in top]
    low, high = float(line.min()), float(line.max())
    span = max(high - low, 0.02 if one.probabilities else 1e-3 * max(1.0, abs(high)))
    axes.set_ylim(low - 0.06 * span, low + 1.06 * span / (1 - BAND if top else 1))
    middle = int(np.searchsorted(times, (times[0] + times[-1]) / 2, side="right"))
    behind = {"facecolor": axes.get_facecolor(), "edgecolor": "none", "pad": 0.8}  # hides lines of other texts
    for k, (term, row, left) in enumerate(_in_order(marked, middle)):
        axes.plot(t[row], after[row], "o", color=DOTS, markersize=4)
        line_of_text = {"arrowstyle": "-", "color": GREY, "linewidth": 0.6, "shrinkA": 0, "shrinkB": 2}
        axes.annotate(
            words(term),
            (t[row], after[row]),
            (t[row], 0.97 - LINE_HEIGHT * k),
            textcoords=("data", "axes fraction"),
            ha="left" if left else "right",
            va="top",
            fontsize=9,
            color=DARK,
            parse_math=False,
            bbox=behind,
            arrowprops=line_of_text | {"relpos": (0 if left else 1, 0)},
        )
    axes.set_yticks([tick for tick in axes.get_yticks() if low - 0.06 * span <= tick <= high + 0.06 * span])
    if one.probabilities:
        axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.3g} %")
    axes.set_title(_quantity(one, place), parse_math=False)
    axes.set_xlabel(clock.label, parse_math=False)
    if len(t) == 1:
        axes.set_xticks(t)


def _in_order(marked: list[tuple[Term, int]], middle: int) -> list[tuple[Term, int, bool]]:
    """The texts from top to bottom with their rows, and whether each is to the right of its line.

    Those of rows before the middle are. So only lines of these can cross a text, one on the other side.
    """
    terms = sorted(marked, key=lambda item: (item[1], -abs(item[0].term)))
    left = [(term, row, True) for term, row in terms if row < middle]
    return left + [(term, row, False) for term, row in reversed(terms) if row >= middle]


def words(term: Term) -> str:
    """An observation and its change: "lactate 4.1 (+0.83)"."""
    value = short(term.value, 14) if isinstance(term.value, str) else number(term.value)
    return f"{short(term.column, 20)} {value} ({signed(term.term)})"


def signed(change: float) -> str:
    """A change with its sign, for people."""
    return with_minus(f"{change:+.2g}")


def _quantity(one: Explanation, place: int, when: str = "") -> str:
    name, early = short(one.names[place], 24), ", before calibration" if one.before_calibration else ""
    return f"predicted {'chance of ' * one.probabilities}{name}{when}{early}"
