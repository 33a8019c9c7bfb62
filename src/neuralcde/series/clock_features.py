"""Clock features: the origin of time, and functions of it."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from .channels import time_since_start
from .irregular_series import IrregularSeries


def has_common_origin(series: IrregularSeries) -> bool:
    """Whether the times of series count from a common origin, such as the admission to a hospital.

    That is assumed if all series start closer to 0 than the longest series lasts. Otherwise the times are moments, such
    as dates.
    """
    if not len(series):
        return False
    starts = series.times[series.offsets[:-1]]
    return bool(starts.abs().max() <= time_since_start(series.times, series.offsets).max())


def clock_knots(times_since_start: Float[Tensor, " n"], count: int) -> Float[Tensor, " knots"]:
    """Knots for `hat_functions`: the distinct training times, or `count` of them if there are more.

    Then half of the knots are evenly spaced quantiles, and the others are evenly spaced times. Quantiles alone would
    leave no knots where few series end, and that may be where the risk changes most.

    Parameters
    ----------
    times_since_start
        Time since the start of its series for every training row.
    count
        Largest number of knots.

    Returns
    -------
    Tensor
        Strictly increasing, from the minimum to the maximum; fewer than `count` where some coincide.

    Examples
    --------
    >>> clock_knots(torch.tensor([0.0, 0.0, 0.0, 1.0, 4.0]), 5).tolist()
    [0.0, 1.0, 4.0]
    """
    if count < 1:
        raise ValueError(f"count must be at least 1, got {count}.")
    if not len(times_since_start):
        raise ValueError("times_since_start is empty; knots need at least one training row.")
    ordered = times_since_start.sort().values
    distinct: Tensor = torch.unique_consecutive(ordered)
    if len(distinct) <= count:
        return distinct
    even = torch.linspace(0, 1, count // 2, dtype=ordered.dtype, device=ordered.device)
    # Quantiles by position; torch.quantile refuses more than 16 million numbers.
    place = torch.linspace(0, len(ordered) - 1, count - count // 2, dtype=torch.float64, device=ordered.device)
    knots = torch.cat([ordered[place.round().long()], torch.lerp(ordered[0], ordered[-1], even)])
    return knots.unique()  # type: ignore[no-untyped-call, no-any-return]


def hat_functions(times: Float[Tensor, " n"], knots: Float[Tensor, " knots"]) -> Float[Tensor, "n knots"]:
    """Piecewise linear hat functions at increasing knots; they sum to 1 everywhere.

    Hat k is 1 at knot k and falls linearly to 0 at the knots beside it. The first is 1 before the first knot, the last
    is 1 after the last knot.

    Parameters
    ----------
    times
        Where the functions are evaluated.
    knots
        Strictly increasing, at least one.

    Examples
    --------
    >>> hat_functions(torch.tensor([-1.0, 0.5, 3.0]), torch.tensor([0.0, 2.0])).tolist()
    [[1.0, 0.0], [0.75, 0.25], [0.0, 1.0]]
    """
    exporting = torch.compiler.is_compiling()  # then the values of knots are not known
    if not len(knots) or not (exporting or bool((knots.diff() > 0).all())):
        raise ValueError(f"knots must be at least one number and increase strictly, got {knots.tolist()}.")
    # rise[:, k]: share of the gap between knots k and k + 1 that has passed, from 0 to 1
    rise = ((times[:, None] - knots[:-1]) / knots.diff()).clamp(0, 1)
    padded = torch.nn.functional.pad(rise, (1, 0), value=1.0)
    return padded - torch.nn.functional.pad(rise, (0, 1))
