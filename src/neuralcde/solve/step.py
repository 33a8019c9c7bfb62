"""One Runge-Kutta step in plain torch.

Fixed grids, adaptive grids, partial steps to requested times and the reverse steps of the adjoint all use this step.
They differ in where the step lies, and in how the increment is computed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from .solvers import Tableau
from .terms import Term


class Place(NamedTuple):
    """Position of a batch of steps, each inside one piece of its path.

    A step backwards in time has negative length and duration.

    Parameters
    ----------
    pieces
        Coefficients of the piece that contains each step.
    start, length
        Start and length of the step in u, the variable of the piece, which runs from 0 to 1.
    since
        Time from the start of the series to the start of the step.
    duration
        Duration of the step in time.
    earliest, latest
        Bounds of the times at which the field is evaluated. The latest is just before the end of the step: at a knot,
        a field that jumps there in t must be evaluated on the side that the step lies on.
    """

    pieces: Float[Tensor, "batch powers channels"]
    start: Float[Tensor, "batch 1"]
    length: Float[Tensor, "batch 1"]
    since: Float[Tensor, "batch"]
    duration: Float[Tensor, "batch 1"]
    earliest: Float[Tensor, "batch"]
    latest: Float[Tensor, "batch"]

    def increment(self, term: Term, node: float, z: Float[Tensor, "batch hidden"]) -> Float[Tensor, "batch hidden"]:
        """The increment of the term over the step, evaluated at state z and at a node in [0, 1] of the step."""
        drive = term.drive(self.pieces, self.start + node * self.length, self.length)
        t = self.since + node * self.duration[:, 0]
        within = t.detach().clamp(self.earliest, self.latest)
        if t.requires_grad:  # the gradient is that of the time itself
            within = t + (within - t.detach())
        return term.increment(within, z, drive, self.duration)


def time_bounds(
    low: Float[Tensor, "batch"], high: Float[Tensor, "batch"], dtype: torch.dtype
) -> tuple[Float[Tensor, "batch"], Float[Tensor, "batch"]]:
    """The bounds `earliest` and `latest` of steps from `low` to `high`; equal for steps of no duration."""
    earliest, end = low.detach().to(dtype), high.detach().to(dtype)
    return earliest, torch.maximum(earliest, torch.nextafter(end, torch.full_like(end, -torch.inf)))


class Stepped(NamedTuple):
    """Result of a step: the state at its end, the increments of its stages, and the error estimate if requested."""

    end: Tensor
    stages: list[Tensor]
    error: Tensor | None


def runge_kutta(
    tableau: Tableau,
    increment: Callable[[int, Float[Tensor, "batch numbers"]], Float[Tensor, "batch numbers"]],
    state: Float[Tensor, "batch numbers"],
    *,
    with_error: bool = False,
) -> Stepped:
    r"""One Runge-Kutta step: $k_i = \mathrm{increment}(i, z + \sum_j a_{ij} k_j)$, then $z + \sum_i b_i k_i$.

    Parameters
    ----------
    tableau
        The method.
    increment
        Function of the stage number and the state at that stage; returns the increment over the whole step.
    state
        The state at the start of the step.
    with_error
        Whether to estimate the error, as the difference to the embedded method. This evaluates its extra stages too.
    """
    stages: list[Tensor] = []
    for stage in range(len(tableau.a) if with_error else tableau.stages):
        stages.append(increment(stage, _plus(state, tableau.a[stage], stages)))
    error = _weighted_sum(tableau.b_error, stages) if with_error else None
    return Stepped(_plus(state, tableau.b, stages), stages, error)


def _weighted_sum(weights: Sequence[float], stages: Sequence[Tensor]) -> Tensor | None:
    """The weighted sum of the stages; None if all weights are 0. There may be more stages than weights.

    (b has no weight for a stage that only the error estimate uses.)
    """
    parts = [weight * k for weight, k in zip(weights, stages, strict=False) if weight != 0]
    return functools.reduce(torch.add, parts) if parts else None


def _plus(state: Tensor, weights: Sequence[float], stages: Sequence[Tensor]) -> Tensor:
    total = _weighted_sum(weights, stages)
    return state if total is None else state + total
