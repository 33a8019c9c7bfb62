"""What training changes at random in the series of a batch: channels are left out, or a little larger or smaller."""

from __future__ import annotations

import dataclasses

import torch
from jaxtyping import Float
from torch import Tensor

from ..paths import ControlPath
from ..series import ragged


def drop_channels(path: ControlPath, share: float, generator: torch.Generator) -> ControlPath:
    """The path without a random `share` of its data channels, drawn for every series anew: they are 0 and not observed.

    Where observations of each channel are counted, a dropped channel's count is 0 too; and so is time x its first value.
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
    r"""The path with every channel of every series multiplied by a random factor of its own.

    $$X_k \leftarrow (1 + \sigma \xi_k) X_k, \qquad \xi_k \sim N(0, 1)$$

    with $\sigma$ the `deviation`: the same series, a little larger, smaller, faster or slower. Of scaled data 0 is the mean, so
    what is far from it moves most. Counts of observations stay; time x a first value is multiplied as both are. The
    clock stays, too: only the channel that tells the time is multiplied, not the gaps that jumps see nor the time of an ODE.
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
    """The path, and the observations that it carries, with each series' channels multiplied."""
    factors, series = factors.to(path.device), path.series
    values = series.values * factors[ragged.series_of_rows(series.offsets)]
    coefficients = path.coefficients * factors[ragged.series_of_rows(path.piece_offsets)][:, None]
    return dataclasses.replace(path, series=dataclasses.replace(series, values=values), coefficients=coefficients)
