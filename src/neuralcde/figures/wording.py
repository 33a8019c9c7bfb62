"""Format numbers and names for people."""

from __future__ import annotations

import math
from typing import Any


def number(value: Any, digits: int = 3) -> str:
    """Format a number with `digits` significant digits; integers in full, and "-" for None, NaN and infinity."""
    if value is None or not math.isfinite(value):
        return "-"
    if value == int(value) and abs(value) < 1e15:
        return with_minus(f"{int(value):,}")
    if abs(value) >= 10**digits and abs(value) < 1e9:
        return with_minus(f"{value:,.0f}")
    return with_minus(f"{value:.{digits}g}")


def with_minus(text: str) -> str:
    """A number with the minus sign of print, U+2212, which the axes of figures have, too."""
    return text.replace("-", "\u2212")


def score(value: float) -> str:
    """Format a metric: three decimals if its absolute value is below 10, four significant digits otherwise."""
    return with_minus(f"{value:.3f}") if math.isfinite(value) and abs(value) < 10 else number(value, 4)


def percent(share: float) -> str:
    """Format a fraction as a percentage. Small fractions are not rounded to 0 %, nor large ones to 100 %."""
    if 0 < share < 0.001:
        return "< 0.1 %"
    if 0.999 < share < 1:
        return "> 99.9 %"
    return f"{100 * share:.1f} %" if 0 < share < 1 else f"{100 * share:.0f} %"


def duration(seconds: float) -> str:
    """Format a duration in seconds, minutes or hours."""
    if seconds < 100:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.3g} min" if seconds < 6000 else f"{seconds / 3600:.3g} h"


def short(name: object, limit: int = 28) -> str:
    """Shorten a name to at most `limit` characters."""
    text = " ".join(str(name).split())
    return text if len(text) <= limit else text[: limit - 1] + "…"
