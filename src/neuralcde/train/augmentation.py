"""Random augmentation of training batches: dropping rows and channels, and scaling channels."""

from __future__ import annotations

import dataclasses
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from ..contracts import Argument, ArgumentError
from ..paths import ControlPath, PathDataset
from ..series import IrregularSeries, ragged

Batch = TypeVar("Batch", bound=ControlPath | IrregularSeries)


def drop_rows(data: PathDataset, share: float, generator: torch.Generator) -> PathDataset:
    """Drop a random `share` of the rows, with their targets if there is one per row; each series keeps its first row.

    The paths are built from the rows that are left.

    Raises
    ------
    ValueError
        If the paths of the data are already built.
    """
    series = data.source
    if isinstance(series, ControlPath):
        raise ArgumentError(
            Argument("row_dropout", share),
            " needs paths that are built batch by batch: PathDataset(series, targets, build=nc.linear).",
        )
    kept = torch.rand(len(series.times), generator=generator) >= share
    kept[series.offsets[:-1].cpu()] = True
    before = torch.nn.functional.pad(kept.cumsum(0), (1, 0)).to(series.device)  # rows kept before each row
    rows = kept.nonzero()[:, 0].to(series.device)
    left = dataclasses.replace(
        series,
        times=series.times.index_select(0, rows),
        values=series.values.index_select(0, rows),
        offsets=before[series.offsets],
    )
    targets, weights = data.targets, data.weights
    if data.per_row:
        targets = None if targets is None else targets[rows.to(targets.device)]
        weights = None if weights is None else weights[rows.to(weights.device)]
    auxiliary = None if data.auxiliary is None else data.auxiliary[rows.to(data.auxiliary.device)]
    return PathDataset(left, targets, per_row=data.per_row, weights=weights, auxiliary=auxiliary, build=data.build)


def drop_channels(path: Batch, share: float, generator: torch.Generator) -> Batch:
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
    series = _series(dropped)
    values = series.values.masked_fill(unseen[ragged.series_of_rows(series.offsets)], torch.nan)
    return _with_values(dropped, values)


def jitter_channels(path: Batch, deviation: float, generator: torch.Generator) -> Batch:
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


def _series(batch: ControlPath | IrregularSeries) -> IrregularSeries:
    return batch if isinstance(batch, IrregularSeries) else batch.series


def _with_values(batch: Batch, values: Float[Tensor, "rows channels"]) -> Batch:
    if isinstance(batch, IrregularSeries):
        return dataclasses.replace(batch, values=values)
    return dataclasses.replace(batch, series=dataclasses.replace(batch.series, values=values))


def _with_role(batch: ControlPath | IrregularSeries, role: str) -> list[int]:
    return [position for position, own in enumerate(_series(batch).roles) if own == role]


def _multiplied(batch: Batch, factors: Float[Tensor, "series channels"]) -> Batch:
    """The batch with its channels multiplied by factors per series."""
    factors, series = factors.to(batch.device), _series(batch)
    found = _with_values(batch, series.values * factors[ragged.series_of_rows(series.offsets)])
    if isinstance(found, IrregularSeries):
        return found
    coefficients = found.coefficients * factors[ragged.series_of_rows(found.piece_offsets)][:, None]
    return dataclasses.replace(found, coefficients=coefficients)
