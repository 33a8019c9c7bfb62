"""The GRU-D model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..fields import DecayGRUCell
from .jump_model import JumpModel
from .observations import Observations


class GRUD(JumpModel, name="gru_d"):
    r"""A GRU with decay: the state and the last value of each channel decay with the time gaps (Che et al. 2018).

    In the standard variant, with $\delta_c$ the time since channel c was last observed, m the observed mask and
    $\bar x$ the means of the channels,

    $$\hat x = m\, x + (1 - m) (\gamma_x x_\text{last} + (1 - \gamma_x)\, \bar x), \quad
      \gamma_x = \exp(-\max(0, w \odot \delta + b)),$$
    $$z \leftarrow \mathrm{GRU}(\gamma_z \odot z, [\Delta t, m, \hat x]), \quad
      \gamma_z = \exp(-\max(0, W \delta + b')).$$

    With `intensity=True` the inputs include the mask m, and the model is the GRU-D of Che et al. with the time gap as
    an additional input. In the paper's variant only the state decays, with $\gamma_z$ a function of the single gap
    $\Delta t$.

    Parameters
    ----------
    channels, outputs, hidden, variant, intensity, static, initial, pool, time_channel, gradient
        As in `JumpModel`, which lists the inputs of the cell.
    means
        $\bar x$, of shape (data channels,). None for 0, the mean of scaled data.
    """

    title = "GRU-D"

    means: Tensor

    def __init__(
        self,
        channels: int,
        outputs: int,
        *,
        hidden: int = 47,
        means: Tensor | Sequence[float] | None = None,
        **options: Any,
    ):
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
            raise ValueError(f"means must be {self.data} values, one per data channel, got shape {tuple(means.shape)}.")
        self.register_buffer("means", means)

    def cell_inputs(self, seen: Observations) -> Float[Tensor, "rows inputs"]:
        """The inputs of the cell at every row, followed by the gaps that the state decays with."""
        if self.variant == "paper":
            return torch.cat([super().cell_inputs(seen), seen.gap], dim=1)
        kept = torch.exp(-(self.fade["weight"] * seen.channel_gaps + self.fade["bias"]).relu())
        known = torch.where(seen.known, seen.filled, self.means)
        faded = torch.where(seen.observed, known, self.means + kept * (known - self.means))
        return torch.cat([self._with_gap(seen, faded), seen.channel_gaps], dim=1)
