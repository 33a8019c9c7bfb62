"""The exact split of a solution among gaps and channels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ..fields import VectorField, as_field
from ..paths import ControlPath
from .solve import solve_cde
from .solvers import Solver
from .steps import Steps


def channel_contributions(
    path: ControlPath,
    field: VectorField | Callable[..., Any],
    z0: Float[Tensor, "series hidden"],
    *,
    solver: str | Solver = "rk4",
    steps: Steps | None = None,
) -> Float[Tensor, "rows channels hidden"]:
    r"""What each channel of the path moved the state by, in each gap between two rows.

    The equation is linear in dX, so that its solution is a sum over gaps and channels,

    $$z(t_n) = z(t_0) + \sum_{i=1}^{n} \sum_c \int_{t_{i-1}}^{t_i} f_c(z_s)\, \mathrm{d}X^c_s,$$

    with $f_c$ the column of f for channel c. The split is exact for the solution that the solver computes: the solver
    sums the same products of f and dX, channel by channel. It says along which channel the state moved, not what would
    have happened without an observation: that is what the estimators' `explain` says.

    Parameters
    ----------
    path, field, z0, solver, steps
        As in `solve_cde`.

    Returns
    -------
    Tensor
        The integrals over the gap that ends at each row; 0 for the first row of a series. For each series, the sum
        over rows and channels is `solve_cde(...).last - z0`.

    Notes
    -----
    Cost: the plain torch loop, with a state of size hidden x (1 + channels).

    Examples
    --------
    >>> import torch, neuralcde as nc
    >>> path = nc.linear(nc.IrregularSeries.from_list([([0.0, 1.0], [[0.0, 0.0], [2.0, -1.0]])]))
    >>> def total(t, z):
    ...     return torch.ones(len(z), 1, 2)
    >>> nc.channel_contributions(path, total, torch.zeros(1, 1))[1].tolist()
    [[2.0], [-1.0]]
    """
    channels, hidden = path.channels, z0.shape[1]
    start = torch.cat([z0, z0.new_zeros(len(z0), channels * hidden)], dim=1)
    found = solve_cde(path, _Split(as_field(field), hidden), start, solver=solver, steps=steps, save="knots").at_knots
    passed = found[:, hidden:]
    before = torch.nn.functional.pad(passed[:-1], (0, 0, 1, 0))
    parts = (passed - before).index_fill(0, path.series.offsets[:-1], 0.0)
    return parts.reshape(-1, channels, hidden)


class _Split(VectorField):
    """A field on [z, integrals of the columns of f]; the integrals do not act on z."""

    def __init__(self, field: VectorField, hidden: int):
        super().__init__()
        self.field, self.hidden = field, hidden

    def prod(self, t: Tensor, z: Tensor, dx: Tensor) -> Tensor:
        """[f dX, f_c dX_c for every channel c]."""
        z = z[:, : self.hidden]
        each = self.field(t, z).expand(*z.shape, dx.shape[1]) * dx[:, None]
        return torch.cat([each.sum(2), each.transpose(1, 2).flatten(1)], dim=1)
