"""The GRU-dt model."""

from __future__ import annotations

from typing import Any

from ..fields import GRUCell
from .jump_model import JumpModel


class GRUDeltaT(JumpModel, name="gru_dt"):
    r"""A GRU with the time gap as an additional input: $z \leftarrow \mathrm{GRU}(z, [\Delta t, x])$ at observations.

    Between observations the state is constant.

    Parameters
    ----------
    channels, outputs, hidden, variant, intensity, static, initial, pool, time_channel, gradient
        As in `JumpModel`, which lists the inputs of the cell.
    """

    title = "GRU-dt"

    def __init__(self, channels: int, outputs: int, *, hidden: int = 47, **options: Any):
        super().__init__(channels, outputs, hidden=hidden, **options)
        self.cell = GRUCell(self.inputs, hidden)
