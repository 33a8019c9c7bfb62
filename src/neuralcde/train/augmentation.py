"""Random augmentation of training batches: dropping channels and scaling them."""

from __future__ import annotations

import dataclasses

import torch
from jaxtyping import Float
from torch import Tensor

from ..paths import ControlPath
from ..series import ragged


def drop_channels(path: ControlPath, share: float, generator: torch.Generator) -> ControlPath:
    """Drop a random `share` of the data channels, independently for every series.

    A dropped channel is 0 and counts as not observed. Its count channel (if counts are per channel) and its start
    channel (time times first value) are 0 too.
    """
    data, counts, starts = (_with_role(path, role) for role in ("data", "count", "start"))
    gone = torch.zeros(len(path), path.channels, dtype=torch.bool)
    gone[:, data] = torch.rand(len(path), len(data), generator=generator) < share
    if len(counts) == len(data):
        gone[:, counts] = gone[:, data]
    if starts:
        gone[:, starts] = gone[:, data]
    dropped = _multiplied(path, (~gone).to(path.dtype))
    unseen = gone.index_fill(1, torch.tensor(counts + starts, dtype=torch.long), value=False).to(path.device)
    values = dropped.series.values.masked_fill(unseen[ragged.series_of_rows(path.series.offsets)], torch.nan)
    return dataclasses.replace(dropped, series=dataclasses.replace(dropped.series, values=values))


def jitter_channels(path: ControlPath, deviation: float, generator: torch.Generator) -> ControlPath:
    r"""Multiply every data channel and the time channel of every series by an independent random factor.

    $$X_k \leftarrow (1 + \sigma \xi_k) X_k, \qquad \xi_k \sim N(0, 1)$$

    with $\sigma$ the `deviation`. Count channels are not changed. A start channel (time times first value) is
    multiplied by both factors. Only the time channel is scaled, not the times of the rows: the gaps that cells get
    and the time of an ODE stay the same.
    """
    data, starts, times = (_with_role(path, role) for role in ("data", "start", "time"))
    factors = torch.ones(len(path), path.channels, dtype=path.dtype)
    for channels in (data, times):
        noise = torch.randn(len(path), len(channels), generator=generator, dtype=path.dtype)
        factors[:, channels] += deviation * noise
    if starts:
        factors[:, starts] = factors[:, data] * factors[:, times].prod(1, keepdim=True)
    return _multiplied(path, factors)


def _with_role(path: ControlPath, role: str) -> list[int]:
    return [position for position, own in enumerate(path.series.roles) if own == role]


def _multiplied(path: ControlPath, factors: Float[Tensor, "series channels"]) -> ControlPath:
    """The path and its series with the channels multiplied by factors per series."""
    factors, series = factors.to(path.device), path.series
    values = series.values * factors[ragged.series_of_rows(series.offsets)]
    coefficients = path.coefficients * factors[ragged.series_of_rows(path.piece_offsets)][:, None]
    return dataclasses.replace(path, series=dataclasses.replace(series, values=values), coefficients=coefficients)
