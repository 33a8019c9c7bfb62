"""GRU-ODE."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ..fields import GRUODEField
from ..paths import ControlPath
from ..solve import FixedSteps, Steps, Term, TimeTerm
from .initial_state import Initial
from .solved_model import SolvedModel, Variant, check_variant


class GRUODE(SolvedModel, name="gru_ode"):
    r"""A state that flows in time and sees the value of the path: $\mathrm{d}z = h(z, X)\, \mathrm{d}t$ with a gated h (section 3.3).

    Parameters
    ----------
    channels, outputs, hidden, static, pool, time_channel, encoder, scheme, readout, solver, gradient
        As in `SolvedModel`.
    variant
        "standard": the output is read off z. "paper": off [X, z], as the released code has it. (That code also starts X at 0 and
        clamps z inside the field; here h sees X as it is, and the exact flow keeps z within [-1, 1] by itself.)
    steps
        The flow decays like exp(-t): an explicit solver needs steps below about 2.8 units of time (rk4). Scale times, or take
        `FixedSteps(1.0)`.
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
            raise ValueError('variant="paper" reads X itself and has no encoder.')
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
        """Steps of at most one mean gap: an explicit method must be short against the decay."""
        return FixedSteps(1.0 / substeps)

    def flow(self) -> Term:
        """h(z, X) dt."""
        return TimeTerm(self.field)

    def features(
        self, states: Float[Tensor, "series k hidden"], path: ControlPath, times: Float[Tensor, "series k"]
    ) -> Float[Tensor, "series k features"]:
        """What the readout sees at times: z, and X in the paper's variant."""
        return torch.cat([path.evaluate(times), states], dim=-1) if self.variant == "paper" else states

    def features_at_rows(
        self, states: Float[Tensor, "rows hidden"], path: ControlPath
    ) -> Float[Tensor, "rows features"]:
        """The same at the rows of the series."""
        return torch.cat([path.at_rows(), states], dim=-1) if self.variant == "paper" else states
