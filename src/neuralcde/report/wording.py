"""Numbers and names as people read them."""

from __future__ import annotations

import math
from typing import Any

# name of a metric -> its title, what it means, whether more of it is better
METRICS = {
    "auroc": ("AUROC", "how often a random case of one kind gets a higher score than one of the other kind", True),
    "average_precision": ("Average precision", "share of true alarms, averaged over the share of cases found", True),
    "accuracy": ("Accuracy", "share of right answers", True),
    "balanced_accuracy": ("Balanced accuracy", "share of right answers in a class, averaged over classes", True),
    "log_loss": ("Log-loss", "mean of -log of the probability given to what was so", False),
    "r2": ("R²", "share of the variance explained", True),
    "rmse": ("RMSE", "root of the mean squared error, in the target's units", False),
    "mae": ("MAE", "mean size of the error, in the target's units", False),
}


def metric_title(name: str) -> str:
    """What a metric is called in text."""
    return METRICS[name][0] if name in METRICS else name.replace("_", " ")


def number(value: Any, digits: int = 3) -> str:
    """A number with so many significant digits, without an exponent where it is not needed; a dash for none."""
    if value is None or not math.isfinite(value):
        return "-"
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    if abs(value) >= 10**digits:
        return f"{value:,.0f}" if abs(value) < 1e9 else f"{value:.{digits}g}"
    return f"{value:.{digits}g}"


def score(value: float) -> str:
    """A metric: three decimals where it is of the size of one."""
    return f"{value:.3f}" if math.isfinite(value) and abs(value) < 10 else number(value, 4)


def percent(share: float) -> str:
    """A share; little is not nothing, and much is not all."""
    if 0 < share < 0.001:
        return "< 0.1 %"
    if 0.999 < share < 1:
        return "> 99.9 %"
    return f"{100 * share:.1f} %" if 0 < share < 1 else f"{100 * share:.0f} %"


def duration(seconds: float) -> str:
    """Seconds, or minutes, or hours."""
    if seconds < 100:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.3g} min" if seconds < 6000 else f"{seconds / 3600:.3g} h"


def short(name: object, limit: int = 28) -> str:
    """A name that fits."""
    text = " ".join(str(name).split())
    return text if len(text) <= limit else text[: limit - 1] + "…"
