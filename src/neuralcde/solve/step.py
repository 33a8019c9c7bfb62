"""Where a step lies: the piece and the part of it that a step of a solver covers, and the increments there.

Fixed grids, adaptive grids, partial steps to requested times and the reverse steps of the adjoint differ in nothing
else.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

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
