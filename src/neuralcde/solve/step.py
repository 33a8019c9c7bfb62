"""One Runge-Kutta step, which everything that moves a state in plain torch is built on.

Fixed and adaptive grids, partial steps to a time asked for, and the adjoint's way back differ in where their steps lie and
in what an increment is. The step itself is this one.
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
    """Where a batch of steps lies, each inside one piece of its path; a step back has a negative length and duration.

    Parameters
    ----------
    pieces
        Coefficients of the piece that each step lies in.
    start, length
        In u, the piece's own variable from 0 to 1.
    since
        Time since the start of the series at which the step starts.
    duration
        How long the step lasts.
    """

    pieces: Float[Tensor, "batch powers channels"]
    start: Float[Tensor, "batch 1"]
    length: Float[Tensor, "batch 1"]
    since: Float[Tensor, "batch"]
    duration: Float[Tensor, "batch 1"]

    def increment(self, term: Term, node: float, z: Float[Tensor, "batch hidden"]) -> Float[Tensor, "batch hidden"]:
        """What the term adds to the state z at a node, from 0 at the start of the step to 1 at its end."""
        drive = term.drive(self.pieces, self.start + node * self.length, self.length)
        return term.increment(self.since + node * self.duration[:, 0], z, drive, self.duration)


class Stepped(NamedTuple):
    """A step: the state at its end, the increments of its stages, and the error estimate where it was asked for."""

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
    r"""$k_i = \mathrm{increment}(i, z + \sum_j a_{ij} k_j)$, then $z + \sum_i b_i k_i$.

    Parameters
    ----------
    tableau
        The method.
    increment
        The increment over the whole step at stage i, for the state there.
    state
        z, or whatever is integrated.
    with_error
        Whether to estimate the error: the difference to the embedded method. This takes its extra stages, too.
    """
    stages: list[Tensor] = []
    for stage in range(len(tableau.a) if with_error else tableau.stages):
        stages.append(increment(stage, _plus(state, tableau.a[stage], stages)))
    error = _weighted_sum(tableau.b_error, stages) if with_error else None
    return Stepped(_plus(state, tableau.b, stages), stages, error)


def _weighted_sum(weights: Sequence[float], stages: Sequence[Tensor]) -> Tensor | None:
    """The sum of the stages; None where there is nothing to sum. b has no weight for a stage of the error estimate."""
    parts = [weight * k for weight, k in zip(weights, stages, strict=False) if weight != 0]
    return functools.reduce(torch.add, parts) if parts else None


def _plus(state: Tensor, weights: Sequence[float], stages: Sequence[Tensor]) -> Tensor:
    total = _weighted_sum(weights, stages)
    return state if total is None else state + total
