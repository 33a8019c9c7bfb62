"""Cubic Hermite interpolation with backward differences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from ..series import IrregularSeries
from ..series.channels import Role
from .control_path import Causality, ControlPath
from .cubic import cubic_pieces
from .pieces import check_fill, check_series, forward_filled, in_blocks
from .scheme import Fill, PathScheme, causality_of_fill
from .sweeps import neighbours


def hermite(series: IrregularSeries, *, fill: Fill = "interpolate") -> ControlPath:
    r"""Cubic Hermite path with backward differences: continuously differentiable, and local.

    Between consecutive observations $(t_0, x_0)$ and $(t_1, x_1)$ of a channel, let $s = t - t_0$ and
    $h = t_1 - t_0$, let $D = (x_1 - x_0) / h$ be the slope of this gap, and m the slope of the gap before it (for the
    first gap m = D). Then

    $$X(t) = x_0 + m s + 2 (D - m) \frac{s^2}{h} - (D - m) \frac{s^3}{h^2}.$$

    This cubic leaves $x_0$ with slope m and reaches $x_1$ with slope D (Morrill et al. 2022, "On the choice of
    interpolation scheme for neural CDEs").

    Parameters
    ----------
    series
        The observations, usually with a time channel: `series.with_channels()`.
    fill
        How missing values are filled. `"interpolate"`: cubics run between the channel's own observations, and X is
        constant before the first and after the last one. `"forward"`: the channel's last observation is carried forward
        (0 before the first), and cubics run between rows.

    Returns
    -------
    ControlPath
        With pieces of degree 3.

    Notes
    -----
    Causality: with `fill="forward"` X at a knot depends only on observations up to it; with `"interpolate"` that holds
    for complete data only. Between knots X looks ahead to the next row.

    Differentiable in the values and in the times. Cost: O(rows x channels) time, four coefficients per piece and
    channel.

    Examples
    --------
    >>> import neuralcde as nc
    >>> path = nc.hermite(nc.IrregularSeries.from_list([([0.0, 1.0, 2.0], [[0.0], [1.0], [1.0]])]))
    >>> path.derivative([0.0, 1.0, 2.0]).flatten().tolist()
    [1.0, 1.0, 0.0]
    """
    check_series(series)
    check_fill(fill)
    if fill == "interpolate":
        return ControlPath(
            series, cubic_pieces(series, "backward", backward_slopes), 1, "hermite", causality_of_fill(fill)
        )
    coefficients = in_blocks(series, 4, lambda part: cubic_pieces(forward_filled(part), "backward", backward_slopes))
    return ControlPath(series, coefficients, 1, "hermite", causality_of_fill(fill))


def backward_slopes(series: IrregularSeries) -> Float[Tensor, "rows channels"]:
    """Slope of the gap before each observation; at a channel's first observation, that of the gap after it."""
    before, after = neighbours(series)
    known = torch.where(series.values.isnan(), 0.0, series.values).double()
    arriving = (known - known.gather(0, before.row)) * before.q
    return torch.where(before.q > 0, arriving, (known.gather(0, after.row) - known) * after.q)


@dataclass
class Hermite(PathScheme, name="hermite"):
    """`nc.hermite` as a path scheme. With the default `fill="forward"` it is causal at the knots.

    Parameters
    ----------
    fill
        As in `nc.hermite`.
    """

    fill: Fill = "forward"
    memory: ClassVar[int] = 2

    def __post_init__(self) -> None:
        check_fill(self.fill)

    def build(self, series: IrregularSeries) -> ControlPath:
        """The paths of a batch of series."""
        return hermite(series, fill=self.fill)

    def gap(
        self,
        times: Float[Tensor, "streams rows"],
        values: Float[Tensor, "streams rows channels"],
        roles: Sequence[Role],
    ) -> Float[Tensor, "streams pieces powers channels"]:
        """The piece before the last row, with `fill="forward"`. It leaves with the slope of the gap before it."""
        start = values[:, 1].double()
        earlier, duration = (times.diff(dim=1)[..., None]).unbind(1)
        rise = values[:, 2].double() - start
        slope = (start - values[:, 0].double()) / torch.where(earlier > 0, earlier, 1.0)
        leaving = torch.where(earlier > 0, slope * duration, rise)
        bend = rise - leaving
        return torch.stack([start, leaving, 2 * bend, -bend], dim=1)[:, None].to(values.dtype)

    @property
    def causality(self) -> Causality:
        """`"knots"` with `fill="forward"`, else `"none"`."""
        return causality_of_fill(self.fill)
