"""Recurrent cells, which update the state at an observation: z <- cell(z, inputs of the row)."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..contracts import check_sizes


class GRUCell(nn.Module):
    """A gated recurrent unit: `torch.nn.GRUCell` with the state as first argument.

    Parameters
    ----------
    inputs, hidden
        Size of the inputs of a row and of z.
    """

    def __init__(self, inputs: int, hidden: int):
        super().__init__()
        check_sizes(inputs=inputs, hidden=hidden)
        self.gru = nn.GRUCell(inputs, hidden)

    def forward(
        self, z: Float[Tensor, "batch hidden"], x: Float[Tensor, "batch inputs"]
    ) -> Float[Tensor, "batch hidden"]:
        """The state after the observation."""
        after: Tensor = self.gru(x, z)
        return after


class DecayGRUCell(nn.Module):
    r"""The cell of GRU-D: the state decays with the time since the last observation, then a GRU updates it.

    $$z \leftarrow \mathrm{GRU}(x, \gamma \odot z), \qquad \gamma = \exp(-\max(0, W \delta + b))$$

    (Che et al. 2018, equations 10 and 11).

    Parameters
    ----------
    inputs, gaps, hidden
        Size of x, of the gaps $\delta$ and of z. The inputs of a row are [x, $\delta$].
    """

    def __init__(self, inputs: int, gaps: int, hidden: int):
        super().__init__()
        check_sizes(inputs=inputs, gaps=gaps, hidden=hidden)
        self.inputs = inputs
        self.gru = nn.GRUCell(inputs, hidden)
        self.decay = nn.Linear(gaps, hidden)

    def forward(
        self, z: Float[Tensor, "batch hidden"], x: Float[Tensor, "batch inputs_and_gaps"]
    ) -> Float[Tensor, "batch hidden"]:
        """The state after the observation."""
        kept = torch.exp(-self.decay(x[:, self.inputs :]).relu())
        after: Tensor = self.gru(x[:, : self.inputs], kept * z)
        return after
