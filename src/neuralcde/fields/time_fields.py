"""The vector fields h of the ODEs dz = h(t, z, X) dt in GRU-ODE and ODE-RNN."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..contracts import check_sizes
from .mlp import feedforward


class GRUODEField(nn.Module):
    r"""The vector field of GRU-ODE: the continuous-time limit of a GRU, driven by the value of X (section 3.3).

    $$r = \sigma(W_r X + U_r z + b_r), \quad s = \sigma(W_s X + U_s z + b_s), \quad
      g = \tanh(W_g X + U_g (r \odot z) + b_g), \quad h(z, X) = (1 - s) \odot (g - z)$$

    The flow pulls every entry of z towards g. Once z is within [-1, 1], the exact solution stays there, and so does a
    numerical solution with small enough steps.

    Parameters
    ----------
    channels, hidden
        Size of X and of z.
    """

    def __init__(self, channels: int, hidden: int):
        super().__init__()
        check_sizes(channels=channels, hidden=hidden)
        self.channels, self.hidden = channels, hidden
        self.input_gates = nn.Linear(channels, 2 * hidden, bias=False)
        self.state_gates = nn.Linear(hidden, 2 * hidden)
        self.input_candidate = nn.Linear(channels, hidden, bias=False)
        self.state_candidate = nn.Linear(hidden, hidden)

    def forward(
        self, t: Float[Tensor, "batch"], z: Float[Tensor, "batch hidden"], x: Float[Tensor, "batch channels"]
    ) -> Float[Tensor, "batch hidden"]:
        """h(z, X)."""
        reset, stay = torch.sigmoid(self.input_gates(x) + self.state_gates(z)).chunk(2, dim=-1)
        candidate = torch.tanh(self.input_candidate(x) + self.state_candidate(reset * z))
        return (1 - stay) * (candidate - z)


class ODEField(nn.Module):
    r"""The vector field of ODE-RNN between observations: a feedforward network h(z) with tanh, independent of X.

    Parameters
    ----------
    hidden
        Size of z.
    width, depth
        `depth` hidden layers of `width` units.
    """

    def __init__(self, hidden: int, *, width: int = 32, depth: int = 3):
        super().__init__()
        check_sizes(hidden=hidden, width=width, depth=depth)
        self.hidden = hidden
        self.layers = feedforward(hidden, hidden, width=width, depth=depth, activation="tanh", final="identity")

    def forward(
        self, t: Float[Tensor, "batch"], z: Float[Tensor, "batch hidden"], x: Float[Tensor, "batch channels"]
    ) -> Float[Tensor, "batch hidden"]:
        """h(z)."""
        change: Tensor = self.layers(z)
        return change
