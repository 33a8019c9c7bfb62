"""The GRU-ODE model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ..fields import GRUODEField
from ..solve import FixedSteps, Steps, Term, TimeTerm
from .initial_state import Initial
from .solved_model import SolvedModel, Variant, check_variant


class GRUODE(SolvedModel, name="gru_ode"):
    r"""An ODE driven by the value of the path, $\mathrm{d}z = h(z, X)\, \mathrm{d}t$ with a gated h (section 3.3).

    Parameters
    ----------
    channels, outputs, hidden, static, pool, time_channel, encoder, scheme, readout, solver, gradient
        As in `SolvedModel`.
    variant
        Input of the readout: z for "standard", [X, z] for "paper", as in the paper's released code. (That code also
        shifts X to start at 0 and clamps z inside the field. Here h gets X unchanged, and the exact flow keeps z
        within [-1, 1] without clamping.)
    steps
        As in `solve_cde`. The flow decays like exp(-t), so an explicit solver needs small steps to be stable: with rk4
        below about 2.8 units of time. Scale the times, or use `FixedSteps(1.0)`.
    initial
        "zero" (the default without static features), "static" (the default with them), "linear", "both".
    """

    title = "GRU-ODE"

    def __init__(
        self,
        channels: int,
        outputs: int,
        *,
        hidden: int = 32,
        variant: Variant = "standard",
        static: int = 0,
        initial: Initial | None = None,
        **options: Any,
    ):
        check_variant(variant)
        if options.get("encoder") is not None and variant == "paper":
            raise ValueError('variant="paper" reads X itself and does not support an encoder; use variant="standard".')
        super().__init__(
            channels,
            outputs,
            hidden=hidden,
            static=static,
            initial=("static" if static else "zero") if initial is None else initial,
            readout_features=hidden + (channels if variant == "paper" else 0),
            **options,
        )
        self.variant = variant
        self.field = GRUODEField(self.path_channels, hidden)

    @classmethod
    def default_steps(cls, substeps: int) -> Steps:
        """Steps of at most 1 / substeps units of time (mean gaps, for scaled series): stability needs short steps."""
        return FixedSteps(1.0 / substeps)

    def flow(self) -> Term:
        """h(z, X) dt."""
        return TimeTerm(self.field)

    def with_values(
        self, states: Float[Tensor, "*batch hidden"], values: Callable[[], Float[Tensor, "*batch channels"]]
    ) -> Float[Tensor, "*batch features"]:
        """The readout's input: z, or [X, z] in the paper's variant."""
        return torch.cat([values(), states], dim=-1) if self.variant == "paper" else states
