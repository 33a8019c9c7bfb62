"""Base class of the models that update their state at observations, with the inputs of their cell."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..paths import ControlPath
from ..solve import Jump
from .initial_state import Initial
from .observations import Observations
from .solved_model import SolvedModel, Variant, check_variant


class JumpModel(SolvedModel):
    """A model whose cell updates the state at every row with an observation.

    The inputs of the cell are values, the time gap, and optionally the observed mask:

    | variant | intensity | inputs of the cell |
    |---|---|---|
    | standard | no | gap, forward-filled values |
    | standard | yes | gap, observed mask, forward-filled values |
    | paper | no | values of the path, the gap added to the first |
    | paper | yes | gap, observed mask, values of the path |

    The gap is the time since the last row at which anything was observed. In the paper's variant the values of
    unobserved channels are those of the path, which may depend on later observations.

    Parameters
    ----------
    channels, outputs, hidden, static, pool, time_channel, encoder, scheme, readout, solver, steps, gradient
        As in `SolvedModel`.
    variant
        "standard", the usual definition of the model, or "paper", that of the paper's appendix D and released code.
    intensity
        Whether the path has a count of observations for every data channel, from
        `series.with_channels(counts="per_channel")`: the observational intensity of section 4.2. A flow is driven by
        the counts; a cell gets their increments, which are the observed mask.
    initial
        "zero" (the default without static features), "static" (the default with them), "linear", "both".
    """

    cell: nn.Module
    data: int  # data channels of the path

    def __init__(
        self,
        channels: int,
        outputs: int,
        *,
        hidden: int,
        variant: Variant = "standard",
        intensity: bool = False,
        static: int = 0,
        initial: Initial | None = None,
        **options: Any,
    ):
        check_variant(variant)
        initial = ("static" if static else "zero") if initial is None else initial
        super().__init__(channels, outputs, hidden=hidden, static=static, initial=initial, **options)
        self.variant, self.intensity = variant, intensity
        self.data, rest = divmod(self.path_channels - int(self.time_channel), 2 if intensity else 1)
        if rest or self.data < 1:
            expected = "time, " * self.time_channel + "a count for each data channel, " * intensity
            counts = ', counts="per_channel"' if intensity else ""
            raise ValueError(
                f"{self.path_channels} channels are not {expected}and data; make the series with "
                f"with_channels(time={self.time_channel}{counts}) and pass channels=path.channels."
            )
        alone = variant == "paper" and not intensity
        self.inputs = self.data * (2 if intensity else 1) + (0 if alone else 1)

    def jump(self, path: ControlPath) -> Jump:
        """The cell, at the rows where something was observed."""
        seen = Observations(path)
        return Jump(self.cell, self.cell_inputs(seen), seen.jumps)

    def cell_inputs(self, seen: Observations) -> Float[Tensor, "rows inputs"]:
        """The inputs of the cell at every row."""
        return self._with_gap(seen, seen.filled if self.variant == "standard" else seen.interpolated)

    def _with_gap(self, seen: Observations, values: Float[Tensor, "rows data"]) -> Float[Tensor, "rows inputs"]:
        if self.variant == "paper" and not self.intensity:
            return values + torch.nn.functional.pad(seen.gap, (0, self.data - 1))
        mask = [seen.observed.to(values.dtype)] if self.intensity else []
        return torch.cat([seen.gap, *mask, values], dim=1)

    def _check_path(self, path: ControlPath) -> None:
        super()._check_path(path)
        data, counts = (sum(role == kind for role in path.series.roles) for kind in ("data", "count"))
        if data != self.data or counts != (self.data if self.intensity else 0):
            wanted = f"{self.data} data channels and {self.data if self.intensity else 0} counts"
            raise ValueError(
                f"{type(self).__name__}(intensity={self.intensity}) needs a path with {wanted}, but it has {data} and "
                f'{counts}; series.with_channels(counts="per_channel") adds counts, and intensity=True uses them.'
            )
