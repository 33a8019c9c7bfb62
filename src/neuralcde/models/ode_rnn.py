"""The ODE-RNN model."""

from __future__ import annotations

from typing import Any

from ..fields import GRUCell, ODEField
from ..solve import Term, TimeTerm
from .jump_model import JumpModel


class ODERNN(JumpModel, name="ode_rnn"):
    r"""An autonomous ODE between observations and a GRU at observations (Rubanova et al. 2019).

    $$\mathrm{d}z = h(z)\, \mathrm{d}t, \qquad z \leftarrow \mathrm{GRU}(z, x)$$

    h is a feedforward network with tanh.

    Parameters
    ----------
    channels, outputs, hidden, variant, intensity, static, initial, pool, time_channel, solver, steps, gradient
        As in `JumpModel`, which lists the inputs of the cell.
    width, depth
        h has `depth` hidden layers of `width` units.
    """

    title = "ODE-RNN"

    def __init__(
        self, channels: int, outputs: int, *, hidden: int = 32, width: int = 32, depth: int = 3, **options: Any
    ):
        super().__init__(channels, outputs, hidden=hidden, **options)
        self.field = ODEField(hidden, width=width, depth=depth)
        self.cell = GRUCell(self.inputs, hidden)

    def flow(self) -> Term:
        """h(z) dt."""
        return TimeTerm(self.field)
