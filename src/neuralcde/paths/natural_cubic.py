"""Natural cubic splines, the paper's path scheme."""

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

    Among all curves through the observations $(t_j, x_j)$ of a channel, it minimises $\int X''(t)^2 \mathrm{d}t$.
    With $q_j = 1 / (t_{j+1} - t_j)$, its slopes $d_j$ at the observations solve the tridiagonal system of the paper's
    lemma B.9,

    $$q_{j-1} d_{j-1} + 2 (q_{j-1} + q_j) d_j + q_j d_{j+1} = 3 q_{j-1}^2 (x_j - x_{j-1}) + 3 q_j^2 (x_{j+1} - x_j).$$

    Terms beyond the first and last observation are left out. Before its first and after its last observation a channel
    is constant.

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
    Not causal: every coefficient depends on all observations, including later ones. Where gaps are
    very uneven, the spline can overshoot the data by a large multiple; `hermite` overshoots less, `linear` never.

    Differentiable in the values and in the times. Solved in float64, by native kernels where they were built. Cost:
    O(rows x channels) time, four coefficients per piece and channel.

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
    """The slopes of the spline: Thomas's tridiagonal algorithm for all series and channels at once.

    The loops run over row numbers within a series, so step k works on the k-th row of every series.
    """
    before, after = neighbours(series)
    # Right-hand side. A missing neighbour has q = 0, which drops its terms from the equation.
    known = torch.where(series.values.isnan(), 0.0, series.values).double()
    pull = 3 * (before.q**2 * (known - known.gather(0, before.row)))
    pull = pull + 3 * (after.q**2 * (known.gather(0, after.row) - known))
    observed, q_in, q_out, right = (
        by_step(part, series.offsets) for part in (series.observed, before.q, after.q, pull)
    )
    if not len(right):
        return known
    # Forward elimination. `pivot` is the inverse of the eliminated diagonal, `carried` the eliminated right-hand
    # side. At a row where the channel is missing both keep the values of its previous observation.
    zero = torch.zeros_like(right[0])
    pivot, carried, swept = zero, zero, []
    for row in range(len(right)):
        here, diagonal = observed[row], 2 * (q_in[row] + q_out[row]) - q_in[row] ** 2 * pivot
        new_carried = right[row] - q_in[row] * pivot * carried
        new_pivot = 1 / torch.where(diagonal > 0, diagonal, 1.0)
        pivot, carried = torch.where(here, new_pivot, pivot), torch.where(here, new_carried, carried)
        swept.append((pivot, carried))
    # Back substitution, from the last row to the first.
    slope, slopes = zero, []
    for row in range(len(right) - 1, -1, -1):
        pivot, carried = swept[row]
        slope = torch.where(observed[row], (carried - q_out[row] * slope) * pivot, slope)
        slopes.append(slope)
    return by_row(slopes[::-1], series.offsets)


@dataclass
class NaturalCubic(PathScheme, name="natural_cubic"):
    """`nc.natural_cubic` as a path scheme: the paper's choice. Not causal."""

    causality: ClassVar[Causality] = "none"

    def build(self, series: IrregularSeries) -> ControlPath:
        """The paths of a batch of series."""
        return natural_cubic(series)
