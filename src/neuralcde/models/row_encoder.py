"""Row encoders, which map the rows of series to the features that the path interpolates."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..contracts import Named, Registry
from ..series import IrregularSeries
from ..series.channels import Role
from .variations import Variations


class RowEncoder(nn.Module, Named):
    """Base class of row encoders: modules that map every row of a series to `outputs` features.

    The path then interpolates these features, with time as first channel. The model stays causal if the features of a
    row depend only on the rows up to it. A subclass with a constructor (channels, *, ...) can be registered under a
    name, by which users choose it.
    """

    registry: ClassVar[Registry[type[RowEncoder]]]
    outputs: int  # features per row
    varies: ClassVar[bool] = False
    """Whether it defines `of_variations`, which makes explanations much faster for long series."""

    def fit(self, series: IrregularSeries) -> None:
        """Learn statistics of the training series, e.g. quantiles; optional. Called once, before the training."""

    def forward(self, series: IrregularSeries) -> Float[Tensor, "rows outputs"]:
        """The features of every row."""
        raise NotImplementedError(f"{type(self).__name__} must define forward(series) -> (rows, outputs)")

    def of_variations(self, part: Variations) -> Float[Tensor, "cases outputs"]:
        """The features of rows of which only some channels are observed; optional."""
        raise NotImplementedError(f"{type(self).__name__} must define of_variations(part), because it varies")

    def encode(self, known: Float[Tensor, "rows inputs"]) -> Float[Tensor, "rows outputs"]:
        """The features of rows, given the `RowInputs` of each, which the encoder has as `inputs`; needed for streams.

        Optional. `forward(series)` must then be `encode(inputs(series))`.
        """
        raise NotImplementedError(f"{type(self).__name__} must define encode(known) -> (rows, outputs), and inputs")


RowEncoder.registry = Registry("row encoder", RowEncoder)


def encoded_series(encoder: RowEncoder, series: IrregularSeries) -> IrregularSeries:
    """The series with time and the encoded features as channels."""
    encoded = encoder(series)
    if encoded.shape != (len(series.times), encoder.outputs):
        raise ValueError(
            f"{type(encoder).__name__} must return shape (rows, outputs) = {(len(series.times), encoder.outputs)}, got "
            f"{tuple(encoded.shape)}."
        )
    data: Role = "data"
    roles: list[Role] = ["time", *[data] * encoder.outputs]
    timed = series if "time" in series.roles else series.with_channels()
    place = timed.roles.index("time")
    return dataclasses.replace(
        series,
        values=torch.cat([timed.values[:, place : place + 1].to(encoded.dtype), encoded], dim=1),
        channel_names=("time", *(f"encoded {k}" for k in range(encoder.outputs))),
        roles=tuple(roles),
    )
