"""The inputs of row encoders and of readouts: what is known at each row, from the rows up to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ..contracts import ArgumentError
from ..series import IrregularSeries
from ..series.channels import time_since_start
from ..series.clock_features import clock_knots, has_common_origin, hat_functions
from ..series.row_features import FAMILIES, INTENSITY_FAMILIES, check_families, shared_row_features
from ..series.row_statistics import RowStatistics
from .variations import Variations

Features = Sequence[str] | Literal["all"]


class RowInputs(nn.Module):
    """What is known at each row: features of every data channel, the clock, and hat functions of it.

    All of it depends on the rows up to the row alone. The features of channels are those of
    `neuralcde.series.row_features`.

    The clock is the time of the row if the times of the training series have a common origin (`has_common_origin`),
    such as the admission to a hospital. Otherwise it is the time since the first row of the series.

    Parameters
    ----------
    channels
        Number of data channels.
    features
        Names of the families of features per channel; "all" for all of them.
    intensity
        Whether to include families that tell when something was measured: "observed", "seen", "count", "elapsed".
    hats
        Largest number of hat functions of the clock, see `clock_knots`; 0 for none.
    """

    knots: Tensor
    scale: Tensor
    common_origin: Tensor

    def __init__(self, channels: int, *, features: Features = "all", intensity: bool = True, hats: int = 32):
        super().__init__()
        chosen = FAMILIES if isinstance(features, str) and features == "all" else features
        check_families(chosen, argument="features")
        self.families = tuple(name for name in chosen if intensity or name not in INTENSITY_FAMILIES)
        if chosen and not self.families:
            raise ArgumentError(
                f"features={chosen!r} all tell when something was measured, which intensity=False leaves out (it is "
                'the default where no value is missing); add a family of values, such as "last".',
                argument="features",
            )
        self.channels, self.hats = channels, hats
        # Unused hat functions have knots at infinity, which safetensors may not hold: their place is the last knot.
        self.register_buffer("knots", torch.arange(float(hats)))
        self.register_buffer("scale", torch.ones(()))
        self.register_buffer("common_origin", torch.zeros(()))  # 1 if there is one

    @property
    def outputs(self) -> int:
        """Number of features per row."""
        return len(self.families) * self.channels + self.clock_outputs

    @property
    def clock_outputs(self) -> int:
        """Number of features of the clock: the time, and its hat functions."""
        return 1 + self.hats

    @torch.no_grad()
    def fit(self, series: IrregularSeries, rows: Int[Tensor, "cases"] | None = None) -> None:
        """Learn the origin and unit of time and the places of the hat functions from training series, or some rows."""
        self.common_origin.fill_(float(has_common_origin(series)))
        times = self.times(series)
        times = times if rows is None else times[rows]
        longest = float(times.abs().max()) if len(times) else 0.0
        self.scale.fill_(longest if longest > 0 else 1.0)
        if self.hats:
            # Distinct in the dtype of the knots: times that differ by rounding alone would divide by zero.
            found: Tensor = torch.unique_consecutive(clock_knots(times, self.hats).to(self.knots.dtype))
            step = float(found.diff().max()) if len(found) > 1 else 1.0
            # Too few distinct times: the other hat functions stand beyond the last knot and are never reached.
            beyond = found[-1] + step * torch.arange(1, self.hats - len(found) + 1, dtype=found.dtype)
            self.knots.copy_(torch.cat([found, beyond]))

    def forward(
        self, series: IrregularSeries, rows: Int[Tensor, "*cases"] | None = None
    ) -> Float[Tensor, "*cases outputs"]:
        """The features of every row, or of some rows: those of the channels, family by family, then the clock."""
        channels, times = self.of_channels(series, rows), self.times(series)
        times = times if rows is None else times[rows]
        return torch.cat([channels, self.clock(times).to(series.dtype)], dim=-1)

    def of_variations(self, part: Variations) -> Float[Tensor, "cases outputs"]:
        """The features of rows of which only some channels are observed, as `forward` gives them for such series."""
        times = self.times(part.history.series)[part.row]
        channels = part.features(self.families)
        return torch.cat([channels, self.clock(times).to(channels.dtype)], dim=-1)

    def of_statistics(self, known: RowStatistics) -> Float[Tensor, "streams outputs"]:
        """The features of the last row of streams."""
        since_start = known.time - known.start
        times = since_start + self.common_origin.double() * (known.time - since_start)
        channels = known.features(self.families)
        return torch.cat([channels, self.clock(times).to(channels.dtype)], dim=-1)

    def times(self, series: IrregularSeries) -> Float[Tensor, " rows"]:
        """The clock at every row, in float64."""
        since_start = time_since_start(series.times, series.offsets)
        return since_start + self.common_origin.double() * (series.times - since_start)

    def clock(self, times: Float[Tensor, "*cases"]) -> Float[Tensor, "*cases clock"]:
        """The time as a fraction of the latest in training, and its hat functions."""
        columns = [(times[..., None] / self.scale.double()).to(self.knots.dtype)]
        if self.hats:
            hats = hat_functions(times.to(self.knots.dtype).flatten(), self.knots)
            # Each hat function is 0 for most rows; the factor gives it a variance near 1, like the other features.
            columns.append(self.hats**0.5 * hats.reshape(*times.shape, self.hats))
        return torch.cat(columns, dim=-1)

    def of_channels(
        self, series: IrregularSeries, rows: Int[Tensor, "*cases"] | None = None
    ) -> Float[Tensor, "*cases features"]:
        """The features of the data channels of every row, or of some rows, family by family."""
        data = [place for place, role in enumerate(series.roles) if role == "data"]
        channels = slice(data[0], data[-1] + 1)  # the data channels come last, one after another
        return shared_row_features(series.times, series.values, channels, series.offsets, self.families, rows)
