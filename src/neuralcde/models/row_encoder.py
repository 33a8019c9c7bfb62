"""From what is known at each row to the numbers that the path runs through."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..contracts import Named, Registry
from ..series import IrregularSeries
from ..series.channels import Role


class RowEncoder(nn.Module, Named):
    """A module that turns the rows of series into a few numbers each; the path runs through these, and through time.

    An encoder whose numbers at a row depend on the rows up to it alone leaves the model causal. Subclasses with a name and a
    constructor (channels, *, ...) can be chosen by name.
    """

    registry: ClassVar[Registry[type[RowEncoder]]]
    outputs: int  # numbers per row

    def forward(self, series: IrregularSeries) -> Float[Tensor, "rows outputs"]:
        """The numbers of every row."""
        raise NotImplementedError(f"{type(self).__name__} must define forward(series) -> (rows, outputs)")


RowEncoder.registry = Registry("row encoder", RowEncoder)


def encoded_series(encoder: RowEncoder, series: IrregularSeries) -> IrregularSeries:
    """The series whose channels are time and what the encoder makes of the rows."""
    encoded = encoder(series)
    if encoded.shape != (len(series.times), encoder.outputs):
        raise ValueError(
            f"{type(encoder).__name__} must give shape (rows, outputs) = {(len(series.times), encoder.outputs)}, got "
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
