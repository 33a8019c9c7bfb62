"""Matplotlib figures as inline SVG, in a common style.

Text stays text in the SVG, and names that come from the user are escaped.
"""

from __future__ import annotations

import hashlib
import io
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

LINE, DOTS, DARK, GREY = "#1f6f8b", "#d1495b", "#22333b", "#8a9499"
COLOURS = (LINE, "#e08e1b", "#6a8d3f", "#7a5c9e", DOTS, DARK)  # of the lines in a figure, in this order
DASHED: dict[str, Any] = {"color": GREY, "linewidth": 1.0, "linestyle": (0, (4, 3))}
WIDTH, HEIGHT = 3.9, 2.9  # inches; three figures fit side by side on a desktop screen
LOOK: dict[Any, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": GREY,
    "axes.formatter.useoffset": False,
    "axes.grid": True,
    "axes.labelcolor": DARK,
    "axes.labelsize": 9.5,
    "axes.linewidth": 0.8,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": DARK,
    "axes.titlelocation": "left",
    "axes.titlesize": 9.5,
    "figure.facecolor": "none",
    "font.size": 9.5,
    "grid.alpha": 0.25,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "lines.linewidth": 1.5,
    "svg.fonttype": "none",
    "svg.hashsalt": "neuralcde",
    "text.color": DARK,
    "text.parse_math": False,  # a channel may be called "cost in $"
    "xtick.color": DARK,
    "xtick.labelsize": 8.5,
    "ytick.color": DARK,
    "ytick.labelsize": 8.5,
}


@dataclass(frozen=True)
class Drawing:
    """A figure of the report.

    Parameters
    ----------
    title
        Title of the figure.
    see
        Caption: how to read the figure.
    svg
        The figure as an SVG element.
    wide
        Whether the figure needs the full width of the page. On a narrow screen it scrolls horizontally.
    """

    title: str
    see: str
    svg: Markup
    wide: bool = False


@dataclass(frozen=True)
class Table:
    """A table of the report.

    Parameters
    ----------
    header
        Titles of the columns.
    rows
        Cells as text.
    see
        Caption: what the table shows.
    """

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    see: str


def draw(
    title: str,
    see: str,
    paint: Callable[[Any], None],
    *,
    rows: int = 1,
    size: tuple[float, float] = (WIDTH, HEIGHT),
    wide: bool = False,
) -> Drawing:
    """Make a figure: `paint` draws on its axes, or on a list of axes from top to bottom if `rows` is above 1."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(LOOK), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # the browser's fonts draw the text
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.subplots(rows, 1, sharex=True, squeeze=False)[:, 0]
        paint(axes[0] if rows == 1 else list(axes))
        file = io.StringIO()
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(file, format="svg", metadata=nothing)
    return Drawing(title, see, inline_svg(file.getvalue(), label=title), wide)


def inline_svg(text: str, *, label: str) -> Markup:
    """Convert an SVG file to an element of an HTML page.

    Comments, metadata and styles are removed. Ids get a prefix that is unique on the page. The label is for screen
    readers.
    """
    own = hashlib.sha256(f"{label}{text}".encode()).hexdigest()[:8]
    width, height = re.findall(r'viewBox="0 0 (\S+) (\S+)"', text)[0]
    body = text[text.index(">", text.index("<svg")) + 1 :]
    body = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>|<style.*?</style>", "", body, flags=re.DOTALL)

    def cleaned(tag: re.Match[str]) -> str:  # matplotlib escapes text, so only real tags match
        found = re.sub(r"font-family:[^;\"]*;?|transform=\"rotate\(-0 [^\"]*\"", "", tag[0])
        found = re.sub(r'(<g\b[^>]*?) id="[^"]*"', r"\1", found).replace("xlink:href", "href")
        found = re.sub(r'(id="|href="#|url\(#)', rf"\g<1>{own}-", found)
        return re.sub(r"(\d\.\d\d)\d+", r"\1", " ".join(found.split()))

    body = re.sub(r"<[^<>]+>", cleaned, body)
    body = re.sub(r">\s+<", "><", body).strip()
    return Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}">{}').format(width, height, label, Markup(body))
