"""Recurrences along the observations of each channel, vectorised over series and channels in plain torch."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from ..series import IrregularSeries, ragged
from .pieces import next_observed_row


class Neighbour(NamedTuple):
    """For every observation, the row of an adjacent observation of the same channel, and q = 1 / gap; q = 0 if none."""

    row: Int[Tensor, "rows channels"]
    q: Float[Tensor, "rows channels"]


def neighbours(series: IrregularSeries) -> tuple[Neighbour, Neighbour]:
    """The previous and the next observation of the same channel, for each observation."""
    previous = ragged.previous_observed_row(series.observed, series.offsets)

    def neighbour(row: Tensor) -> Neighbour:
        there = series.observed & (row >= 0)
        row = row.clamp(min=0)
        gap = torch.where(there, (series.times[row] - series.times[:, None]).abs(), 1.0)
        return Neighbour(row, torch.where(there, 1 / gap, 0.0))

    return neighbour(previous), neighbour(next_observed_row(series))


def by_step(
    rows: Shaped[Tensor, "rows channels"], offsets: Int[Tensor, "bounds"]
) -> Shaped[Tensor, "steps series channels"]:
    """Ragged rows as a zero-padded tensor: step k holds the k-th row of every series."""
    lengths = ragged.lengths(offsets)
    steps = int(lengths.max()) if len(lengths) else 0
    block = rows.new_zeros(steps, len(lengths), rows.shape[1])
    return block.index_put(_places(offsets), rows)


def by_row(steps: list[Tensor], offsets: Int[Tensor, "bounds"]) -> Shaped[Tensor, "rows channels"]:
    """The inverse of `by_step`, for a list of steps."""
    return torch.stack(steps)[_places(offsets)]


def _places(offsets: Int[Tensor, "bounds"]) -> tuple[Tensor, Tensor]:
    series = ragged.series_of_rows(offsets)
    return ragged.places_in_series(offsets), series
