"""Readouts, which map states to outputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ..contracts import Named, Registry
from ..engine import apply_layers
from ..paths import ControlPath
from ..series import IrregularSeries, ragged
from .row_inputs import RowInputs


@dataclass(frozen=True, eq=False)
class Seen:
    """The input of a readout: for every output, the state and the last row at or before it.

    Parameters
    ----------
    state
        The state, or its mean over time up to this point.
    path
        The path that drives the model.
    row
        Index of the last row at or before each output.
    given
        The series that the model was given. With an encoder, those that it encodes.
    """

    state: Float[Tensor, "*batch features"]
    path: ControlPath
    row: Int[Tensor, "*batch"]
    given: IrregularSeries

    @property
    def values(self) -> Float[Tensor, "*batch channels"]:
        """X at the row."""
        return self.path.at_rows()[self.row]

    @property
    def static(self) -> Float[Tensor, "*batch static"]:
        """The static features of the row's series; missing ones are 0."""
        return torch.nan_to_num(self.path.series.static[ragged.series_of(self.path.series.offsets, self.row)], nan=0.0)

    def known(self, inputs: RowInputs) -> Float[Tensor, "*batch inputs"]:
        """These features of what is known at the row."""
        found: Tensor = inputs(self.given, self.row)
        return found


class Readout(nn.Module, Named):
    """Base class of readouts: modules that map a `Seen` to outputs.

    A subclass with a constructor (features, outputs, *, ...) can be registered under a name, by which users choose
    it. Its constructor also gets the keyword arguments `channels` (of the path), `data` (channels of the series without
    time) and `static`, if it has them.
    """

    registry: ClassVar[Registry[type[Readout]]]

    def fit(self, series: IrregularSeries, *, per_row: bool) -> None:
        """Learn statistics of the training series, e.g. quantiles; optional. See `PathModel.fit_inputs`."""

    def forward(self, seen: Seen) -> Float[Tensor, "*batch outputs"]:
        """The outputs."""
        raise NotImplementedError(f"{type(self).__name__} must define forward(seen) -> (..., outputs)")

    def start_at(self, outputs: Float[Tensor, "outputs"]) -> None:
        """Initialise the readout such that its outputs are these on average, e.g. by setting a bias; optional."""

    def rescale(self, factor: float, about: Float[Tensor, "outputs"]) -> bool:
        """Change the outputs y to about + factor * (y - about), by changing weights; returns whether it can.

        Optional. Training uses it to scale overconfident outputs.
        """
        return False


Readout.registry = Registry("readout", Readout)


class LinearReadout(Readout, name="linear"):
    r"""The paper's linear readout $\ell(z) = W z + b$.

    Parameters
    ----------
    features, outputs
        Size of the state and of the output.
    """

    def __init__(self, features: int, outputs: int):
        super().__init__()
        self.linear = nn.Linear(features, outputs)

    def forward(self, seen: Seen) -> Float[Tensor, "*batch outputs"]:
        """W z + b."""
        return apply_layers(self.linear, seen.state)

    @torch.no_grad()
    def start_at(self, outputs: Float[Tensor, "outputs"]) -> None:
        """Set the bias to these outputs."""
        self.linear.bias.copy_(outputs)

    def rescale(self, factor: float, about: Float[Tensor, "outputs"]) -> bool:
        """Scale the outputs by changing weights and bias."""
        rescale_layer(self.linear, factor, about)
        return True


@torch.no_grad()
def rescale_layer(layer: nn.Linear, factor: float, about: Float[Tensor, "outputs"]) -> None:
    """Change the outputs y of a linear layer to about + factor * (y - about)."""
    layer.weight.mul_(factor)
    layer.bias.mul_(factor).add_((1 - factor) * about.to(layer.bias))
