"""The check that the outputs of a model are finite."""

from __future__ import annotations

from torch import Tensor

from ..contracts import Argument, ArgumentError
from ..series import IrregularSeries, ragged


def check_finite(outputs: Tensor, series: IrregularSeries, *, of_series: Tensor | None = None) -> None:
    """Refuse outputs that are NaN or infinite: decoding would silently turn them into a class or a number.

    `of_series` is the position of the series of each output; None if there is one output per series.
    """
    wrong = ~outputs.isfinite().all(1)
    if not wrong.any():
        return
    found = wrong.nonzero()[:, 0].cpu()
    found = found if of_series is None else of_series[found]
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
