"""ODE-RNN."""

from __future__ import annotations

from typing import Any

from ..fields import GRUCell, ODEField
from ..solve import Term, TimeTerm
from .jump_model import JumpModel


class ODERNN(JumpModel, name="ode_rnn"):
    r"""A state that flows by itself, $\mathrm{d}z = h(z)\, \mathrm{d}t$, and jumps at observations, $z \leftarrow \mathrm{GRU}(z, x)$.

    (Rubanova et al. 2019.) h is a feedforward network with tanh.

    Parameters
    ----------
    channels, outputs, hidden, variant, intensity, static, initial, pool, time_channel, solver, steps, gradient
        As in `JumpModel`, which also says what the cell sees.
    width, depth
        Of h: `depth` hidden layers of `width` units.
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
