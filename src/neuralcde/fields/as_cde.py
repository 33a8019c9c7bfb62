"""An ODE driven by X, written as a controlled differential equation: the construction of theorem C.1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ..contracts import check_sizes
from .vector_field import VectorField


def as_cde(h: Callable[..., Any], hidden: int, channels: int, time: int = 0) -> VectorField:
    r"""The vector field of a CDE with the same solution as $\mathrm{d}z = h(t, z, X)\, \mathrm{d}t$ (theorem C.1).

    The vector field of a CDE does not see X, but its state can include a copy x of X. With time as channel $\tau$ of X,

    $$f(z, x) = \begin{bmatrix} 0 & h(t, z, x) & 0 \\ & I & \end{bmatrix}, \qquad
      \mathrm{d}\begin{bmatrix} z \\ x \end{bmatrix} = f(z, x)\, \mathrm{d}X
      = \begin{bmatrix} h(t, z, x)\, \mathrm{d}X^\tau \\ \mathrm{d}X \end{bmatrix},$$

    where h is in column $\tau$. The lower rows keep x = X if the initial state has x = X there. With
    $\mathrm{d}X^\tau = \mathrm{d}t$ the upper rows are the ODE. So a Neural CDE can represent every model of the form
    $\mathrm{d}z = h(t, z, X)\, \mathrm{d}t$, such as GRU-ODE. The converse is false: with f constant z is X itself,
    which no h can give (the paper's counter-example).

    Parameters
    ----------
    h
        A function or module h(t, z, X) -> (batch, hidden), e.g. a `GRUODEField`. The parameters of a module stay
        trainable.
    hidden, channels
        Size of z and of X.
    time
        Index of the time channel of X; `series.with_channels()` puts it at 0. It must have slope 1. If the series were
        scaled by s, its slope is 1/s: then pass s h in place of h.

    Returns
    -------
    VectorField
        f, for states of size hidden + channels. The initial state is [z0, X(t0)].

    Notes
    -----
    An evaluation of f costs one evaluation of h. Both equations have the same exact solution. On linear pieces, where
    x is exact at every stage, a Runge-Kutta solver gives the same numbers for both up to rounding. On cubic pieces
    the two numerical solutions converge to each other as the steps get smaller.

    Examples
    --------
    >>> import torch, neuralcde as nc
    >>> series = nc.IrregularSeries.from_list([([0.0, 1.0, 3.0], [[1.0], [2.0], [0.0]])]).with_channels()
    >>> path = nc.linear(series)
    >>> field = nc.as_cde(lambda t, z, x: x[:, 1:], hidden=1, channels=path.channels)  # dz = X^1 dt
    >>> start = torch.cat([torch.zeros(1, 1), path.evaluate(path.interval[:, :1])[:, 0]], dim=1)
    >>> nc.solve_cde(path, field, start).last.tolist()  # the area under the path, then X at its end
    [[3.5, 3.0, 0.0]]
    """
    return ODEAsCDE(h, hidden, channels, time)


class ODEAsCDE(VectorField):
    """The vector field that `as_cde` returns; parameters as there."""

    def __init__(self, h: Callable[..., Any], hidden: int, channels: int, time: int = 0):
        super().__init__()
        if isinstance(h, VectorField) or not callable(h):
            raise TypeError(f"h must be a module or function h(t, z, X) -> (batch, hidden), got {type(h).__name__}.")
        check_sizes(hidden=hidden, channels=channels)
        if not isinstance(time, int) or not 0 <= time < channels:
            raise ValueError(f"time must be one of the {channels} channels, 0 to {channels - 1}, got {time!r}.")
        self.h, self.hidden, self.channels, self.time = h, hidden, channels, time

    def forward(
        self, t: Float[Tensor, "batch"], z: Float[Tensor, "batch both"]
    ) -> Float[Tensor, "batch both channels"]:
        """The matrix f, with h in the column of time above an identity matrix."""
        change = self._change(t, z, self.channels)
        identity = torch.eye(self.channels, dtype=z.dtype, device=z.device)
        return torch.cat([change.unsqueeze(-1) * identity[self.time], identity.expand(len(z), -1, -1)], dim=1)

    def prod(
        self, t: Float[Tensor, "batch"], z: Float[Tensor, "batch both"], dx: Float[Tensor, "batch channels"]
    ) -> Float[Tensor, "batch both"]:
        """[h dt, dX], without forming the matrix."""
        change = self._change(t, z, dx.shape[-1])
        return torch.cat([change * dx[:, self.time, None], dx], dim=1)

    def _change(self, t: Tensor, z: Tensor, channels: int) -> Tensor:
        if (z.shape[-1], channels) != (self.hidden + self.channels, self.channels):
            raise ValueError(
                f"as_cde(h, hidden={self.hidden}, channels={self.channels}) needs states [z, X] of size "
                f"{self.hidden + self.channels} and a path of {self.channels} channels, got states of size "
                f"{z.shape[-1]} and {channels} channels; start at torch.cat([z0, X(t0)], dim=1)."
            )
        change: Tensor = self.h(t, z[:, : self.hidden], z[:, self.hidden :])
        if change.shape != (len(z), self.hidden):
            name = getattr(self.h, "__name__", type(self.h).__name__)
            raise ValueError(
                f"{name} must return shape (batch, hidden) = {(len(z), self.hidden)}, got {tuple(change.shape)}."
            )
        return change
