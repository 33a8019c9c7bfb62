"""The initial state of a series."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..engine import apply_layers
from ..paths import ControlPath

Initial = Literal["zero", "linear", "static", "both"]
STATIC_WIDTH = 256  # as in the paper, appendix D.3


class InitialState(nn.Module):
    r"""The initial state $z_0 = \zeta(X(t_0), \text{static})$.

    Parameters
    ----------
    kind
        `"zero"`: 0. `"linear"`: a linear map of $X(t_0)$. `"static"`: a network with one hidden ReLU layer of 256
        units on the static features alone, as in the paper's sepsis experiment. `"both"`: the sum of the last two.
    channels, static, hidden
        Number of channels of X and of static features, and size of the state. A missing static feature is set to 0,
        which is its mean after scaling.
    """

    def __init__(self, kind: Initial, channels: int, static: int, hidden: int):
        super().__init__()
        if kind not in ("zero", "linear", "static", "both"):
            raise ValueError(f'initial={kind!r} is not "zero", "linear", "static" or "both".')
        if (static > 0) != (kind in ("static", "both")):
            remedy = 'initial="static" or "both" uses them' if static else "give their number, static=..."
            raise ValueError(f"initial={kind!r} does not fit {static} static features; {remedy}.")
        self.hidden = hidden
        self.of_start = nn.Linear(channels, hidden) if kind in ("linear", "both") else None
        self.of_static = (
            nn.Sequential(nn.Linear(static, STATIC_WIDTH), nn.ReLU(), nn.Linear(STATIC_WIDTH, hidden))
            if static
            else None
        )

    def forward(self, path: ControlPath) -> Float[Tensor, "series hidden"]:
        """The initial state of every series."""
        return self.of(path.coefficients[path.piece_offsets[:-1], 0], path.series.static)

    def of(
        self, start: Float[Tensor, "series channels"], static: Float[Tensor, "series features"]
    ) -> Float[Tensor, "series hidden"]:
        """The initial states, given X(t0) and the static features."""
        z0 = start.new_zeros(start.shape[0], self.hidden)
        if self.of_start is not None:
            z0 = apply_layers(self.of_start, start)
        if self.of_static is not None:
            z0 = z0 + apply_layers(self.of_static, torch.nan_to_num(static, nan=0.0))
        return z0
