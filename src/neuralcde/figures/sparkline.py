"""Small pictures for notebooks, drawn without matplotlib."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from markupsafe import Markup

LINE_COLOUR, DOT_COLOUR = "#1f6f8b", "#d1495b"
MARGIN = 3.0


def sparkline(
    points: Sequence[tuple[float, float]], *, dots: bool = True, width: int = 220, height: int = 34
) -> Markup:
    """A line through some points as a small SVG element, without axes.

    Parameters
    ----------
    points
        Pairs of finite numbers, in increasing order of the first.
    dots
        Whether the points are drawn, too.
    width, height
        Size in pixels.

    Examples
    --------
    >>> sparkline([(0.0, 1.0), (1.0, 3.0)], dots=False, width=20, height=10)[:75]
    Markup('<svg width="20" height="10" role="img"><polyline points="3.0,7.0 17.0,3.0" ')
    """
    placed = _placed(points, width, height)
    line = Markup('<polyline points="{}" fill="none" stroke="{}" stroke-width="1.3"/>').format(
        " ".join(f"{x:.1f},{y:.1f}" for x, y in placed), LINE_COLOUR
    )
    circles = Markup("").join(
        Markup('<circle cx="{}" cy="{}" r="1.8" fill="{}"/>').format(f"{x:.1f}", f"{y:.1f}", DOT_COLOUR)
        for x, y in (placed if dots else ())
    )
    return Markup('<svg width="{}" height="{}" role="img">{}{}</svg>').format(width, height, line, circles)


def _placed(points: Sequence[tuple[float, float]], width: int, height: int) -> list[tuple[float, float]]:
    """The points in pixels."""

    def scaled(values: Iterable[float], length: float) -> list[float]:
        numbers = list(values)
        low, high = min(numbers, default=0.0), max(numbers, default=0.0)
        span = high - low
        return [MARGIN + (length - 2 * MARGIN) * ((v - low) / span if span else 0.5) for v in numbers]

    across = scaled((x for x, _ in points), width)
    up = scaled((y for _, y in points), height)
    return [(x, height - y) for x, y in zip(across, up, strict=True)]
