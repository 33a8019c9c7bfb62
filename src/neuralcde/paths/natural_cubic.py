"""Natural cubic splines: the paper's path."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from ..series import IrregularSeries
from .control_path import Causality, ControlPath
from .cubic import cubic_pieces
from .pieces import check_series
from .scheme import PathScheme
from .sweeps import by_row, by_step, neighbours


def natural_cubic(series: IrregularSeries) -> ControlPath:
    r"""Natural cubic spline through each channel's own observations: twice continuously differentiable.

    Among all curves through the observations $(t_j, x_j)$ of a channel it has the least $\int X''(t)^2 \mathrm{d}t$. Its slopes
    $d_j$ at the observations solve the tridiagonal system of the paper's lemma B.9, with $q_j = 1 / (t_{j+1} - t_j)$,

    $$q_{j-1} d_{j-1} + 2 (q_{j-1} + q_j) d_j + q_j d_{j+1} = 3 q_{j-1}^2 (x_j - x_{j-1}) + 3 q_j^2 (x_{j+1} - x_j),$$

    terms beyond the first and last observation left out. Before its first and after its last observation a channel is
    constant.

    Parameters
    ----------
    series
        The observations, usually with a time channel: `series.with_channels()`.

    Returns
    -------
    ControlPath
        With pieces of degree 3.

    Notes
    -----
    Causality: none. Every coefficient depends on all observations, later ones too. Over very uneven gaps the spline
    overshoots the data many times, `hermite` less, `linear` never.

    Differentiable in the values and in the times. Solved in float64, natively where the kernels were built, in
    O(rows x channels) time; four coefficients a piece and channel.

    Examples
    --------
    >>> import neuralcde as nc
    >>> path = nc.natural_cubic(nc.IrregularSeries.from_list([([0.0, 1.0, 2.0], [[0.0], [1.0], [0.0]])]))
    >>> path.derivative([0.0, 1.0, 2.0]).flatten().tolist(), path.derivative(2.0, order=2).item()
    ([1.5, 0.0, -1.5], 0.0)
    """
    check_series(series)
    return ControlPath(
        series, cubic_pieces(series, "natural", natural_slopes), 1, "natural_cubic", NaturalCubic.causality
    )


def natural_slopes(series: IrregularSeries) -> Float[Tensor, "rows channels"]:
    """The tridiagonal solve of all series and channels at once; the loop is over row numbers within a series."""
    before, after = neighbours(series)
    known = torch.where(series.values.isnan(), 0.0, series.values).double()
    pull = 3 * (before.q**2 * (known - known.gather(0, before.row)))
    pull = pull + 3 * (after.q**2 * (known.gather(0, after.row) - known))
    observed, q_in, q_out, right = (
        by_step(part, series.offsets) for part in (series.observed, before.q, after.q, pull)
    )
    if not len(right):
        return known
    zero = torch.zeros_like(right[0])
    pivot, carried, swept = zero, zero, []
    for row in range(len(right)):
        here, diagonal = observed[row], 2 * (q_in[row] + q_out[row]) - q_in[row] ** 2 * pivot
        new_carried = right[row] - q_in[row] * pivot * carried
        new_pivot = 1 / torch.where(diagonal > 0, diagonal, 1.0)
        pivot, carried = torch.where(here, new_pivot, pivot), torch.where(here, new_carried, carried)
        swept.append((pivot, carried))
    slope, slopes = zero, []
    for row in range(len(right) - 1, -1, -1):
        pivot, carried = swept[row]
        slope = torch.where(observed[row], (carried - q_out[row] * slope) * pivot, slope)
        slopes.append(slope)
    return by_row(slopes[::-1], series.offsets)


@dataclass
class NaturalCubic(PathScheme, name="natural_cubic"):
    """`nc.natural_cubic` as a scheme: the paper's, which looks ahead."""

    causality: ClassVar[Causality] = "none"

    def build(self, series: IrregularSeries) -> ControlPath:
        """The paths of a batch of series."""
        return natural_cubic(series)
