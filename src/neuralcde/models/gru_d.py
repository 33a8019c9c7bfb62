"""GRU-D."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..fields import DecayGRUCell
from .jump_model import JumpModel
from .observations import Observations


class GRUD(JumpModel, name="gru_d"):
    r"""A GRU whose memory fades: the state decays with the gaps, and so does the last value of a channel (Che et al. 2018).

    Standard variant, with $\delta_c$ the time since channel c was last observed, m the mask and $\bar x$ the channels' means:

    $$\hat x = m\, x + (1 - m) (\gamma_x x_\text{last} + (1 - \gamma_x)\, \bar x), \quad \gamma_x = \exp(-\max(0, w \odot \delta + b)),$$
    $$z \leftarrow \mathrm{GRU}(\gamma_z \odot z, [\Delta t, m, \hat x]), \quad \gamma_z = \exp(-\max(0, W \delta + b')).$$

    With `intensity=True` it sees the mask, and is the GRU-D of Che et al. with the gap as one more input. The paper's variant has
    the decay of the state alone, $\gamma_z$ of the one gap.

    Parameters
    ----------
    channels, outputs, hidden, variant, intensity, static, initial, pool, time_channel, gradient
        As in `JumpModel`, which also says what the cell sees.
    means
        $\bar x$, one number a data channel; None for 0, which it is for scaled data.
    """

    title = "GRU-D"

    means: Tensor

    def __init__(self, channels: int, outputs: int, *, hidden: int = 47, means: Tensor | None = None, **options: Any):
        super().__init__(channels, outputs, hidden=hidden, **options)
        gaps = self.data if self.variant == "standard" else 1
        self.cell = DecayGRUCell(self.inputs, gaps, hidden)
        if self.variant == "standard":
            self.fade = nn.ParameterDict({"weight": torch.zeros(self.data), "bias": torch.zeros(self.data)})
            nn.init.uniform_(self.fade["weight"], -1.0, 1.0)
        means = (
            torch.zeros(self.data)
            if means is None
            else torch.as_tensor(means).detach().to(torch.get_default_dtype(), copy=True)
        )
        if means.shape != (self.data,):
            raise ValueError(f"means must be {self.data} numbers, one a data channel, got shape {tuple(means.shape)}.")
        self.register_buffer("means", means)

    def cell_inputs(self, seen: Observations) -> Float[Tensor, "rows inputs"]:
        """What the cell sees of every row: its inputs, then the gaps that the state decays with."""
        if self.variant == "paper":
            return torch.cat([super().cell_inputs(seen), seen.gap], dim=1)
        kept = torch.exp(-(self.fade["weight"] * seen.channel_gaps + self.fade["bias"]).relu())
        known = torch.where(seen.known, seen.filled, self.means)
        faded = torch.where(seen.observed, known, self.means + kept * (known - self.means))
        return torch.cat([self._with_gap(seen, faded), seen.channel_gaps], dim=1)
