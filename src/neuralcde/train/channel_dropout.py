"""Dropping whole channels of a series at random, as if they had never been observed."""

from __future__ import annotations

import dataclasses

import torch

from ..paths import ControlPath
from ..series import ragged


def drop_channels(path: ControlPath, share: float, generator: torch.Generator) -> ControlPath:
    """The path without a random `share` of its data channels, drawn for every series anew: they are 0 and not observed.

    Where observations of each channel are counted, a dropped channel's count is 0 too; and so is time x its first value.
    """
    roles = path.series.roles
    data = [k for k, role in enumerate(roles) if role == "data"]
    counts = [k for k, role in enumerate(roles) if role == "count"]
    starts = [k for k, role in enumerate(roles) if role == "start"]
    gone = torch.zeros(len(path), path.channels, dtype=torch.bool)
    gone[:, data] = torch.rand(len(path), len(data), generator=generator) < share
    if len(counts) == len(data):
        gone[:, counts] = gone[:, data]
    if starts:
        gone[:, starts] = gone[:, data]
    derived = counts + starts
    gone = gone.to(path.device)
    of_row, of_piece = ragged.series_of_rows(path.series.offsets), ragged.series_of_rows(path.piece_offsets)
    values = path.series.values.masked_fill(gone[of_row], torch.nan)
    values[:, derived] = path.series.values[:, derived].masked_fill(gone[of_row][:, derived], 0.0)
    coefficients = path.coefficients.masked_fill(gone[of_piece][:, None], 0.0)
    return dataclasses.replace(path, series=dataclasses.replace(path.series, values=values), coefficients=coefficients)
