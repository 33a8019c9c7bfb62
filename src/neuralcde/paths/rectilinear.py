"""Rectilinear interpolation: in each gap time moves first, then the values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ..series import IrregularSeries
from ..series.channels import Role
from .control_path import Causality, ControlPath
from .pieces import check_series, first_rows, forward_filled, in_blocks, piece_offsets
from .scheme import PathScheme


def rectilinear(series: IrregularSeries) -> ControlPath:
    r"""Rectilinear path: straight lines $(t_0, x_0) \to (t_1, x_0) \to (t_1, x_1) \to (t_2, x_1) \to \ldots$

    Each gap has two pieces. On the first, the time channel and the start channels $t x_0$ move to the next row while
    the data channels are constant. On the second, of duration 0, the data and count channels move to the new row
    while time is constant. A missing value is replaced by the channel's last observation, or by 0 before its first
    one.

    Parameters
    ----------
    series
        The observations, usually with a time channel: `series.with_channels()`.

    Returns
    -------
    ControlPath
        With pieces of degree 1, two per gap.

    Notes
    -----
    Causality: everywhere. X up to any time t, between knots too, never depends on observations after t. The price is
    twice the number of pieces (Morrill et al. 2022).

    Examples
    --------
    >>> import neuralcde as nc
    >>> path = nc.rectilinear(nc.IrregularSeries.from_list([([0.0, 1.0], [[3.0], [5.0]])]).with_channels())
    >>> path.evaluate(1.0, side="left").tolist(), path.evaluate(1.0).tolist(), path.durations.tolist()
    ([[1.0, 3.0]], [[1.0, 5.0]], [1.0, 0.0])
    """
    check_series(series)
    coefficients = in_blocks(series, 2, _pieces, per_gap=2)
    return ControlPath(series, coefficients, 2, "rectilinear", Rectilinear.causality)


def _pieces(series: IrregularSeries) -> Float[Tensor, "pieces 2 channels"]:
    values = forward_filled(series).values
    row = first_rows(series.offsets)
    rise = torch.zeros_like(values)
    rise[:-1] = values.diff(dim=0)
    rise[series.offsets[1:] - 1] = 0.0
    with_time = _moves_with_time(series.roles).to(series.device)
    start, rise = values[row], rise[row]
    first_rise = torch.where(with_time, rise, 0.0)
    across = torch.stack([start, first_rise], dim=1)
    up = torch.stack([start + first_rise, rise - first_rise], dim=1)
    both = torch.stack([across, up], dim=1).flatten(0, 1)
    # A series of one row has one piece, not two.
    firsts = piece_offsets(series.offsets, 1)[:-1][series.lengths == 1]
    keep = torch.ones(len(both), dtype=torch.bool, device=series.device)
    keep[2 * firsts + 1] = False
    return both[keep]


def _moves_with_time(roles: Sequence[Role]) -> Bool[Tensor, " channels"]:
    """Mask of the channels that move on the first piece of a gap."""
    return torch.tensor([role in ("time", "start") for role in roles])


@dataclass
class Rectilinear(PathScheme, name="rectilinear"):
    """`nc.rectilinear` as a path scheme. Causal everywhere."""

    causality: ClassVar[Causality] = "everywhere"
    memory: ClassVar[int] = 1

    def build(self, series: IrregularSeries) -> ControlPath:
        """The paths of a batch of series."""
        return rectilinear(series)

    def gap(
        self,
        times: Float[Tensor, "streams rows"],
        values: Float[Tensor, "streams rows channels"],
        roles: Sequence[Role],
    ) -> Float[Tensor, "streams pieces powers channels"]:
        """The two pieces before the last row: first time moves, then the values."""
        before, after = values.unbind(1)
        rise = after - before
        first = torch.where(_moves_with_time(roles).to(rise.device), rise, 0.0)
        across = torch.stack([before, first], dim=1)
        return torch.stack([across, torch.stack([before + first, rise - first], dim=1)], dim=1)
