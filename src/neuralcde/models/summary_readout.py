"""A readout that sees the states, the static features, the clock and encoded summaries of the series."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..contracts import check_sizes
from ..engine import apply_layers
from ..series import IrregularSeries, ragged
from ..series.row_features import FAMILIES
from .dropout import Dropout
from .piecewise_linear import PiecewiseLinearEncoding
from .readout import Readout, Seen, rescale_layer
from .row_inputs import Features, RowInputs

SUMMARIES = tuple(name for name in FAMILIES if name not in ("observed", "seen"))  # those are told by the others
MOST_CASES = 200_000  # rows that quantiles are taken from
SERIES_AT_ONCE = 1024  # series whose features are held in memory together
ENCODINGS_AT_ONCE = 1 << 22  # numbers; the encodings of a row are eight times its features


class SummaryReadout(Readout, name="summary"):
    """A network with one hidden layer on states, static features, the clock and encoded summaries.

    Summaries are what is known at the last row (`RowInputs`). They and the static features enter through a
    piecewise-linear encoding and one layer. A state is a lossy memory; the summaries tell the readout the last value,
    the extremes and the counts exactly, as gradient boosting on a table of summary statistics would see them.

    Parameters
    ----------
    features, outputs
        Size of the states and of the output.
    data
        Number of data channels of the series.
    static
        Number of static features.
    width
        Width of both hidden layers.
    bins
        Number of bins of the encoding, per summary.
    hats
        Largest number of hat functions of the clock.
    families, intensity
        Families of summaries, as the `features` and `intensity` of `RowInputs`.
    dropout
        Probability with which a hidden unit is set to 0 in training; for encodings, two thirds of it.
    """

    varies = True

    def __init__(
        self,
        features: int,
        outputs: int,
        *,
        data: int,
        static: int = 0,
        width: int = 128,
        bins: int = 8,
        hats: int = 80,
        families: Features = SUMMARIES,
        intensity: bool = True,
        dropout: float = 0.5,
    ):
        super().__init__()
        check_sizes(width=width, bins=bins)
        self.dropout, self.encoding_dropout = Dropout(dropout), Dropout(dropout * 2 / 3)
        self.inputs = RowInputs(data, features=families, intensity=intensity, hats=hats)
        self.encoding = PiecewiseLinearEncoding(self.inputs.outputs - hats + static, bins)
        self.summary = nn.Sequential(nn.Linear(self.encoding.outputs + self.inputs.clock_outputs, width), nn.SiLU())
        self.layers = nn.Sequential(nn.Linear(width + features + static, width), nn.SiLU(), nn.Linear(width, outputs))

    @torch.no_grad()
    def fit(self, series: IrregularSeries, *, per_row: bool) -> None:
        """Learn quantiles from training series: of their last rows, or with `per_row` of all rows."""
        rows = torch.arange(len(series.times)) if per_row else series.offsets[1:] - 1
        rows = rows[:: max(1, len(rows) // MOST_CASES)]
        self.inputs.fit(series, rows)
        # Some series at a time: the features of all rows together might not fit in memory.
        chosen = torch.zeros(len(series.times), dtype=torch.bool).index_fill(0, rows, True)
        numbers = []
        for some in torch.split(torch.arange(len(series)), SERIES_AT_ONCE):
            part = series.at(some)
            here = chosen[series.offsets[some[0]] : series.offsets[some[-1] + 1]].nonzero()[:, 0]
            static = torch.nan_to_num(part.static, nan=0.0)[ragged.series_of(part.offsets, here)]
            numbers.append(self._numbers(self.inputs(part, here), static))
        self.encoding.fit(torch.cat(numbers))

    def _numbers(self, known: Float[Tensor, "*batch inputs"], static: Tensor) -> Float[Tensor, "*batch numbers"]:
        """The numbers to encode: summaries of the channels, the clock, static features."""
        return torch.cat([known[..., : self.inputs.outputs - self.inputs.hats], static], dim=-1)

    def forward(self, seen: Seen) -> Float[Tensor, "*batch outputs"]:
        """The outputs."""
        given = seen.known(self.inputs), seen.static, seen.state
        if self.training or torch.compiler.is_compiling():
            return self._outputs(*given)
        # Some rows at a time: the encodings of all rows together might not fit in memory.
        rows = max(1, ENCODINGS_AT_ONCE // (self.encoding.outputs * math.prod(given[0].shape[1:-1])))
        if len(given[0]) <= rows:
            return self._outputs(*given)
        return torch.cat([self._outputs(*part) for part in zip(*(torch.split(x, rows) for x in given), strict=True)])

    def _outputs(
        self,
        known: Float[Tensor, "*batch inputs"],
        static: Float[Tensor, "*batch static"],
        state: Float[Tensor, "*batch features"],
    ) -> Float[Tensor, "*batch outputs"]:
        """The outputs, given what is known at rows, the static features and the states."""
        clock = known[..., -self.inputs.clock_outputs :]
        encoded = torch.cat([self.encoding(self._numbers(known, static)), clock], dim=-1)
        if not self.training:
            summary = apply_layers(self.summary, encoded)
            return apply_layers(self.layers, torch.cat([summary, state, static], dim=-1))
        summary = self.dropout(self.summary(self.encoding_dropout(encoded)))
        first, activation, last = self.layers
        hidden = activation(first(torch.cat([summary, state, static], dim=-1)))
        return last(self.dropout(hidden))  # type: ignore[no-any-return]

    @torch.no_grad()
    def start_at(self, outputs: Float[Tensor, "outputs"]) -> None:
        """Set the last layer to these outputs, whatever the series: its weights start at 0."""
        self.layers[-1].weight.zero_()  # type: ignore[operator]
        self.layers[-1].bias.copy_(outputs)  # type: ignore[operator]

    def rescale(self, factor: float, about: Float[Tensor, "outputs"]) -> bool:
        """Scale the outputs by changing the last layer."""
        last = self.layers[-1]
        assert isinstance(last, nn.Linear)
        rescale_layer(last, factor, about)
        return True
