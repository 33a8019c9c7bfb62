"""Linear interpolation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from .._native import kernels
from .._native.transforms import transformed
from ..series import IrregularSeries
from ..series.channels import Role
from .control_path import Causality, ControlPath
from .pieces import check_fill, check_series, first_rows, forward_filled, in_blocks, own_gaps, piece_offsets
from .scheme import Fill, PathScheme, causality_of_fill


def linear(series: IrregularSeries, *, fill: Fill = "interpolate") -> ControlPath:
    r"""Linear path: straight lines between observations.

    $$X(t) = x_0 + \frac{t - t_0}{t_1 - t_0} (x_1 - x_0)$$

    between consecutive observations $(t_0, x_0)$ and $(t_1, x_1)$ of a channel.

    Parameters
    ----------
    series
        The observations, usually with a time channel: `series.with_channels()`.
    fill
        How missing values are filled. `"interpolate"`: lines run between the channel's own observations, and X is
        constant before the first and after the last one. `"forward"`: the channel's last observation is carried forward
        (0 before the first), and lines run between rows.

    Returns
    -------
    ControlPath
        With pieces of degree 1.

    Notes
    -----
    Causality: with `fill="forward"` X at a knot depends only on observations up to it; with
    `"interpolate"` that holds for complete data only, since a missing value depends on the channel's next
    observation. Between knots X looks ahead to the next row. Every solver that steps from knot to knot integrates a
    linear path without quadrature error.

    Cost: O(rows x channels) time, two coefficients per piece and channel.

    Examples
    --------
    >>> import neuralcde as nc
    >>> nan = float("nan")
    >>> series = nc.IrregularSeries.from_list([([0.0, 1.0, 2.0], [[0.0], [nan], [4.0]])])
    >>> nc.linear(series).evaluate(1.0).item(), nc.linear(series, fill="forward").evaluate(1.0).item()
    (2.0, 0.0)
    """
    check_series(series)
    check_fill(fill)
    if fill == "forward":
        return ControlPath(series, in_blocks(series, 2, _between_rows), 1, "linear", causality_of_fill(fill))
    differentiable = series.values.requires_grad or series.times.requires_grad or transformed()
    if kernels is None or series.device.type != "cpu" or differentiable:
        return ControlPath(series, in_blocks(series, 2, in_torch), 1, "linear", causality_of_fill(fill))
    coefficients = series.values.new_empty(int(piece_offsets(series.offsets, 1)[-1]), 2, series.channels)
    rows = series.times.contiguous(), series.values.contiguous(), series.offsets.contiguous()
    kernels.linear(*rows, coefficients, torch.get_num_threads())
    return ControlPath(series, coefficients, 1, "linear", causality_of_fill(fill))


def in_torch(series: IrregularSeries) -> Float[Tensor, "pieces 2 channels"]:
    """Lines between a channel's own observations, in plain torch: differentiable, and the kernel's specification."""
    gaps = own_gaps(series)
    known = torch.where(series.values.isnan(), 0.0, series.values).double()
    start = known.gather(0, gaps.before)
    slope = (known.gather(0, gaps.after) - start) / gaps.width
    line = torch.stack([start + slope * gaps.since, slope * gaps.duration], dim=1)
    return torch.where(gaps.none[:, None], 0.0, line).to(series.dtype)


def _between_rows(series: IrregularSeries) -> Float[Tensor, "pieces 2 channels"]:
    complete = bool(series.observed.all())  # as encoded rows are
    values = series.values if complete else forward_filled(series).values
    row = first_rows(series.offsets)
    # The only piece of a series with one row is constant: there the next row is the row itself.
    last = torch.zeros(len(values), dtype=torch.bool, device=values.device)
    last[series.offsets[1:] - 1] = True
    start, end = values.index_select(0, row), values.index_select(0, row + ~last[row])
    return torch.stack([start, end - start], dim=1)


@dataclass
class Linear(PathScheme, name="linear"):
    """`nc.linear` as a path scheme. With the default `fill="forward"` it is causal at the knots.

    Parameters
    ----------
    fill
        As in `nc.linear`.
    """

    fill: Fill = "forward"
    memory: ClassVar[int] = 1

    def __post_init__(self) -> None:
        check_fill(self.fill)

    def build(self, series: IrregularSeries) -> ControlPath:
        """The paths of a batch of series."""
        return linear(series, fill=self.fill)

    def gap(
        self,
        times: Float[Tensor, "streams rows"],
        values: Float[Tensor, "streams rows channels"],
        roles: Sequence[Role],
    ) -> Float[Tensor, "streams pieces powers channels"]:
        """The piece before the last row, with `fill="forward"`."""
        before, after = values.unbind(1)
        return torch.stack([before, after - before], dim=1)[:, None]

    @property
    def causality(self) -> Causality:
        """`"knots"` with `fill="forward"`, else `"none"`."""
        return causality_of_fill(self.fill)
