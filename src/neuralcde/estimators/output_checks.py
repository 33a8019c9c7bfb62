"""Checks around the outputs of a model: times inside the series, finite numbers."""

from __future__ import annotations

from torch import Tensor

from ..contracts import Argument, ArgumentError
from ..series import IrregularSeries, ragged


def check_within(series: IrregularSeries, asked: Tensor) -> None:
    """Refuse times, of shape (k,) or (series, k), that lie outside the observed range of a series."""
    low, high = series.times[series.offsets[:-1]], series.times[series.offsets[1:] - 1]
    asked = asked.reshape(1) if asked.ndim == 0 else asked
    if asked.ndim > 2 or (asked.ndim == 2 and len(asked) != len(series)):
        raise ArgumentError(
            f"times of shape {tuple(asked.shape)} do not fit {len(series)} series; expected (k,) for all series, or "
            f"({len(series)}, k).",
            argument="times",
        )
    outside = ((asked < low[:, None]) | (asked > high[:, None]) | asked.isnan()).nonzero()
    if len(outside):
        i, j = outside[0].tolist()
        time, first, last = (
            series.format.show(float(t)) for t in (asked.expand(len(series), -1)[i, j], low[i], high[i])
        )
        raise ArgumentError(
            f"times: {time} lies outside series {ragged.series_name(series.ids, i)}, which was observed from {first} "
            f"to {last}; there is no extrapolation. To use other times for each series, pass times of shape "
            f"({len(series)}, k).",
            argument="times",
        )


def check_finite(outputs: Tensor, series: IrregularSeries, *, per_row: bool = False) -> None:
    """Refuse outputs that are NaN or infinite: decoding would silently turn them into a class or a number."""
    wrong = ~outputs.isfinite().reshape(len(outputs), -1).all(1)
    if not wrong.any():
        return
    found = wrong.nonzero()[:, 0].cpu()
    found = ragged.series_of_rows(series.offsets)[found] if per_row else found
    count = len(set(found.tolist()))
    raise ArgumentError(
        f"X: the model's output for series {ragged.series_name(series.ids, int(found[0]))} is not finite ({count} of "
        f"{len(series)} series). Look for values far outside the range of the training series; if there are none, fit "
        "again with ",
        Argument("gradient_clip", 1.0),
        " or a smaller ",
        Argument("learning_rate"),
        ".",
        argument="X",
    )
