"""The reversible Heun method."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from .solver import Increment, Solver


@dataclass(frozen=True)
class ReversibleHeun(Solver):
    r"""Heun's method with its stages taken along a second state y, which makes every step exactly reversible.

    From $y_0 = z_0$, with $k(u, y)$ the increment over the step with the field evaluated at the point u and at y,

    $$y_{n+1} = 2 z_n - y_n + k(u_n, y_n), \qquad
      z_{n+1} = z_n + \tfrac12 \left(k(u_n, y_n) + k(u_{n+1}, y_{n+1})\right).$$

    A step backwards in time has the same formula with the increments of opposite sign, and undoes the step up to
    rounding, however long it is. So `gradient="reversible"` gives the gradient of the steps that were taken, while only
    every thousandth state is stored.

    Notes
    -----
    It is stable for purely imaginary eigenvalues only: where the state decays, z and y drift apart unless the steps
    are short. Two evaluations of the field per step; the path changes its direction at knots, so that an increment
    cannot serve two steps. It runs in plain torch, not on the native engine.
    """

    name: str = "reversible_heun"
    order: int = 2
    citation: str = "Kidger, Foster, Li and Lyons 2021, arXiv:2105.13493"
    reversible: bool = True

    @property
    def stages(self) -> int:
        """Evaluations of the field per step."""
        return 2

    def carry(self, z: Float[Tensor, "batch hidden"]) -> Float[Tensor, "batch carried"]:
        """The states, and again as the second states."""
        return torch.cat([z, z], dim=1)

    def step(self, increment: Increment, state: Float[Tensor, "batch carried"]) -> Float[Tensor, "batch carried"]:
        """Both states after one step."""
        z, y = state.chunk(2, dim=1)
        first = increment(0.0, y)
        y = 2 * z - y + first
        return torch.cat([z + (first + increment(1.0, y)) / 2, y], dim=1)


reversible_heun = ReversibleHeun()
