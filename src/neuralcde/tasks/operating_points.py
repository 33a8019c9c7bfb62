"""What an alarm at a threshold on the predicted probability would mean, and the net benefit of acting on it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..figures import DASHED, DOTS, GREY, LINE, Column, Drawing, SlidingTable, draw, percent, short

Array = NDArray[Any]
SENSITIVITIES = (0.95, 0.9, 0.8, 0.7, 0.6, 0.5, 0.3)  # the rows of the table come nearest to these
START = 0.8  # sensitivity at which the slider starts
CURVE = 200  # points of a decision curve


class Counts(NamedTuple):
    """Numbers of true and false alarms at thresholds, and of positives and negatives in all."""

    true: NDArray[np.int64]
    false: NDArray[np.int64]
    positives: int
    negatives: int


def counts_at(thresholds: Array, p: Array, yes: Array) -> Counts:
    """Count the alarms at each threshold: cases whose probability is at least the threshold."""
    positive, negative = np.sort(p[yes]), np.sort(p[~yes])
    return Counts(
        len(positive) - np.searchsorted(positive, thresholds),
        len(negative) - np.searchsorted(negative, thresholds),
        len(positive),
        len(negative),
    )


def thresholds_of(p: Array) -> Array:
    """Round thresholds from 0.1 % to 99.9 %, finer near both ends; those that give other alarms than the one before."""
    low = [*range(1, 10), *range(10, 100, 5)]
    middle = range(100, 901, 10)
    grid = np.unique([*low, *middle, *(1000 - k for k in low)]) / 1000
    alarms = len(p) - np.searchsorted(np.sort(p), grid)
    chosen: Array = grid[np.flatnonzero(np.diff(alarms, prepend=-1))]
    return chosen


def operating_points(p: Array, yes: Array, names: tuple[str, str], cases: str, *, independent: bool) -> SlidingTable:
    """Sensitivity, specificity, predictive values and number of alarms at thresholds on the probability.

    Parameters
    ----------
    p
        Predicted probability of the positive class of each case.
    yes
        Whether each case is positive. Both classes must occur.
    names
        The negative and the positive class.
    cases
        What has one target each: "series", or "rows".
    independent
        Whether cases are independent, so that intervals for their shares make sense.
    """
    no_name, yes_name = (f'"{name}"' for name in names)
    thresholds = thresholds_of(p)
    found = counts_at(thresholds, p, yes)
    alarms, total = found.true + found.false, found.positives + found.negatives
    missed, silent = found.positives - found.true, total - alarms
    shares = (
        (found.true, np.full(len(thresholds), found.positives)),
        (found.negatives - found.false, np.full(len(thresholds), found.negatives)),
        (found.true, alarms),
        (silent - missed, silent),
    )
    columns = (
        Column(
            "alarm from", f"an alarm is given if the predicted probability of {yes_name} is at least this threshold"
        ),
        Column("sensitivity", f"of the {cases} with {yes_name}, the share with an alarm (recall)"),
        Column("specificity", f"of the {cases} with {no_name}, the share without an alarm"),
        Column(
            "PPV", f"positive predictive value: of the {cases} with an alarm, the share with {yes_name} (precision)"
        ),
        Column("NPV", f"negative predictive value: of the {cases} without an alarm, the share with {no_name}"),
        Column(f"alarms per 100 {cases}", f"how many of 100 {cases} get an alarm"),
    )
    rows = tuple(
        (
            percent(float(threshold)),
            *(percent(part[k] / of[k]) if of[k] else "-" for part, of in shares),
            f"{100 * alarms[k] / total:.1f}",
        )
        for k, threshold in enumerate(thresholds)
    )
    intervals = tuple(
        ("", *(_between(part[k], of[k]) if independent else "" for part, of in shares), "")
        for k in range(len(thresholds))
    )
    sensitivity = found.true / found.positives
    nearest = [int(np.abs(sensitivity - wanted).argmin()) for wanted in SENSITIVITIES]
    return SlidingTable(
        f"Alarms for {short(names[1], 40)}",
        f"Each row is a threshold on the predicted probability of {yes_name}, measured on the test {cases}. "
        + ("Small figures: 95 % intervals. " if independent else "")
        + "A lower threshold misses fewer cases and gives more false alarms. "
        "Choose a threshold for what a missed case and a false alarm cost, not for the highest figure.",
        columns,
        rows,
        intervals,
        shown=tuple(sorted(set(nearest))),
        start=int(np.abs(sensitivity - START).argmin()),
    )


def _between(part: int, of: int) -> str:
    """Wilson interval of a share, in percent."""
    if not of:
        return ""
    low, high = wilson(np.array([part / of]), np.array([of]))
    return f"{100 * low[0]:.0f} to {100 * high[0]:.0f} %"


def wilson(share: Array, size: Array, z: float = 1.96) -> tuple[Array, Array]:
    """Wilson interval of a share observed among `size` cases."""
    centre = (share + z**2 / (2 * size)) / (1 + z**2 / size)
    half = z / (1 + z**2 / size) * np.sqrt(share * (1 - share) / size + z**2 / (4 * size**2))
    return np.clip(centre - half, 0, 1), np.clip(centre + half, 0, 1)


def net_benefit(thresholds: Array, p: Array, yes: Array) -> Array:
    r"""Net benefit of acting on alarms at probability thresholds (Vickers and Elkin 2006).

    With $n$ cases it is $\mathrm{TP}/n - \mathrm{FP}/n \cdot t / (1 - t)$: whoever acts from the probability $t$ on
    holds a false alarm to be $t / (1 - t)$ times as bad as a true one is good.
    """
    found = counts_at(thresholds, p, yes)
    benefit: Array = (found.true - found.false * thresholds / (1 - thresholds)) / len(p)
    return benefit


def decision_curve(p: Array, yes: Array, name: str, beside: Array | None) -> Drawing:
    """Net benefit over thresholds: of the model, of alarms for all cases, and of the model beside it."""
    share = float(yes.mean())
    top = float(np.clip(max(3 * share, np.quantile(p, 0.99)), 0.1, 0.99))
    t = np.linspace(top / CURVE, top, CURVE)
    curves = [net_benefit(t, p, yes)] + ([] if beside is None else [net_benefit(t, beside, yes)])
    everybody = net_benefit(t, np.ones(len(p)), yes)

    def paint(axes: Any) -> None:
        axes.plot(t, everybody, color=GREY, linewidth=1.0, label="alarm for all")
        axes.axhline(0, **DASHED, label="no alarms")
        if beside is not None:
            axes.plot(t, curves[1], color=DOTS, linewidth=1.1, label="gradient boosting")
        axes.plot(t, curves[0], color=LINE, label="this model")
        highest = max(float(curve.max()) for curve in (*curves, everybody))
        axes.set(xlabel="probability from which you would act", ylabel="net benefit")
        axes.set(xlim=(0, top), ylim=(-0.15 * highest, 1.08 * highest))
        axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.3g} %")
        axes.legend()

    see = (
        "True alarms per case, minus the false alarms at the price that the threshold implies: whoever acts from 20 % "
        f'on accepts four false alarms for one true alarm for "{short(name)}". The model is of use at the thresholds '
        "where its line is the highest."
    )
    return draw("Decision curve", see, paint)
