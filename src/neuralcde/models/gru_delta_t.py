"""GRU-dt."""

from __future__ import annotations

from typing import Any

from ..fields import GRUCell
from .jump_model import JumpModel


class GRUDeltaT(JumpModel, name="gru_dt"):
    r"""A GRU that jumps at observations and has the time gap among its inputs: $z \leftarrow \mathrm{GRU}(z, [\Delta t, x])$.

    Between observations the state stands still.

    Parameters
    ----------
    channels, outputs, hidden, variant, intensity, static, initial, pool, time_channel, gradient
        As in `JumpModel`, which also says what the cell sees.
    """

    title = "GRU-Δt"

    def __init__(self, channels: int, outputs: int, *, hidden: int = 47, **options: Any):
        super().__init__(channels, outputs, hidden=hidden, **options)
        self.cell = GRUCell(self.inputs, hidden)
