"""The row encoder of the estimators: a small network on what is known at each row."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from ..contracts import check_sizes
from ..engine import apply_layers
from ..series import IrregularSeries
from .dropout import Dropout
from .row_encoder import RowEncoder
from .row_inputs import Features, RowInputs
from .variations import Variations


class RowMLP(RowEncoder, name="mlp"):
    """A network with one hidden layer on what is known at each row: `RowInputs`.

    The path then has `outputs` channels and time, however many channels the series have. It sees when values were
    measured, and it does not depend on later rows.

    Parameters
    ----------
    channels
        Channels of the series: time and data, from `series.with_channels()`.
    outputs
        Number of features that the path interpolates.
    width
        Width of the hidden layer.
    features, intensity, hats
        As in `RowInputs`.
    dropout
        Probability with which a hidden unit is set to 0 in training.
    """

    varies = True

    def __init__(
        self,
        channels: int,
        *,
        outputs: int = 16,
        width: int = 64,
        features: Features = "all",
        intensity: bool = True,
        hats: int = 32,
        dropout: float = 0.1,
    ):
        super().__init__()
        check_sizes(outputs=outputs, width=width)
        self.outputs, self.dropout = outputs, Dropout(dropout)
        self.inputs = RowInputs(channels - 1, features=features, intensity=intensity, hats=hats)
        self.layers = nn.Sequential(nn.Linear(self.inputs.outputs, width), nn.SiLU(), nn.Linear(width, outputs))

    def fit(self, series: IrregularSeries) -> None:
        """Learn the places of the hat functions from training series."""
        self.inputs.fit(series)

    def forward(self, series: IrregularSeries) -> Float[Tensor, "rows outputs"]:
        """The features of every row."""
        return self.encode(self.inputs(series))

    def encode(self, known: Float[Tensor, "rows inputs"]) -> Float[Tensor, "rows outputs"]:
        """The features of rows, given what is known at each."""
        if not self.training:
            return apply_layers(self.layers, known)
        first, activation, last = self.layers
        return last(self.dropout(activation(first(known))))  # type: ignore[no-any-return]

    def of_variations(self, part: Variations) -> Float[Tensor, "cases outputs"]:
        """The features of rows of which only some channels are observed; without dropout."""
        return apply_layers(self.layers, self.inputs.of_variations(part))
