"""Paths on parts of their intervals: the same function, with its first and last piece cut."""

from __future__ import annotations

import dataclasses

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..series import IrregularSeries, ragged
from .control_path import ControlPath, Ends
from .pieces import piece_offsets


def restricted(path: ControlPath, start: Ends | None, end: Ends | None) -> ControlPath:
    """`path.restrict(start, end)`."""
    own = path.interval
    low = own[:, 0] if start is None else _per_series(path, "start", start)
    high = own[:, 1] if end is None else _per_series(path, "end", end)
    reversed_ends = (low > high).nonzero()[:, 0].tolist()
    if reversed_ends:
        i = reversed_ends[0]
        raise ValueError(
            f"start={low[i].item()} lies after end={high[i].item()} for series "
            f"{ragged.series_name(path.series.ids, i)}; exchange the two."
        )
    part = parts(path, torch.arange(len(path), device=path.device), low, high)
    knots = path.knots.detach()
    ends = torch.stack([low, high], dim=1).detach()
    row = ragged.last_row_at_or_before(knots, path.series.offsets, ends, strict=False)
    if path.causality == "knots" and bool((knots[row] != ends).any()):
        return dataclasses.replace(part, causality="none")
    return part


def _per_series(path: ControlPath, name: str, given: Ends) -> Float[Tensor, "series"]:
    times = torch.as_tensor(given, dtype=torch.float64, device=path.device)
    if times.ndim > 1 or (times.ndim == 1 and len(times) != len(path)):
        raise ValueError(
            f"{name} has shape {tuple(times.shape)}; expected one time for all series, or one for each of the "
            f"{len(path)} series."
        )
    return path.asked_times(times.reshape(-1, 1).expand(len(path), 1))[:, 0]


def parts(
    path: ControlPath,
    owner: Int[Tensor, "parts"],
    low: Float[Tensor, "parts"],
    high: Float[Tensor, "parts"],
) -> ControlPath:
    """The path of series `owner` from `low` to `high`, for any number of parts; within the series' intervals."""
    series, per_gap = path.series, path.pieces_per_gap
    knots, starts, ends = series.times.detach(), series.offsets[:-1][owner], series.offsets[1:][owner]
    # The rows of a part: one at `low`, those of the series strictly between, and one at `high` if it is later. The row
    # of the series that each is, or that comes next before the first one, and next after the last one:
    begin = ragged.last_row_among(knots, starts, ends, low.detach(), strict=False)
    inside = ragged.last_row_among(knots, starts, ends, high.detach(), strict=True) - begin
    counts = inside.clamp(min=0) + 1 + (high > low).long()
    offsets = ragged.offsets_of(counts)
    of_row, place = ragged.series_of_rows(offsets), ragged.places_in_series(offsets)
    source = begin[of_row] + place
    final = (place == counts[of_row] - 1) & (place > 0)
    times = torch.where(final, high[of_row], torch.where(place == 0, low[of_row], series.times[source]))
    rows = _rows(series, source, times, offsets, owner)

    # The pieces of a part: that of the series between the same rows, from u = `left` to u = `right`.
    firsts = piece_offsets(offsets, per_gap)
    of_piece, place = ragged.series_of_rows(firsts), ragged.places_in_series(firsts)
    here = offsets[:-1][of_piece] + place // per_gap
    there = torch.minimum(here + 1, offsets[1:][of_piece] - 1)
    first, last = starts[of_piece], ends[of_piece] - 1
    row = torch.minimum(begin[of_piece] + place // per_gap, torch.maximum(last - 1, first))
    after = torch.minimum(row + 1, last)
    width = series.times[after] - series.times[row]
    width = torch.where(width > 0, width, 1.0)
    left, right = ((times[side] - series.times[row]) / width for side in (here, there))
    piece = path.piece_offsets[:-1][owner][of_piece] + (row - first) * per_gap
    if per_gap == 2:
        # A vertical piece belongs to the part if its row does: X at a row is the value after it. A part that is one
        # point at the last row is that value; one that ends between two rows has a vertical piece without a rise.
        reached = (times[there].detach() == knots[after]) & (after > row)
        point = (counts == 1)[of_piece]
        vertical = place % 2 == 1
        whole = vertical & reached
        left = torch.where(whole, 0.0, torch.where(vertical, right, left))
        piece = piece + (whole | (point & reached)).long()
    coefficients = _cut(path.coefficients[piece], left, right)
    return dataclasses.replace(path, series=rows, coefficients=coefficients)


def _rows(
    series: IrregularSeries,
    source: Int[Tensor, "rows"],
    times: Float[Tensor, "rows"],
    offsets: Int[Tensor, "bounds"],
    owner: Int[Tensor, "parts"],
) -> IrregularSeries:
    """The rows `source`; not observed where the time is another."""
    other = (series.times[source] != times).detach()
    return dataclasses.replace(
        series,
        times=times,
        values=series.values[source].masked_fill(other[:, None], torch.nan),
        offsets=offsets,
        static=series.static[owner],
        ids=series.ids[owner.cpu().numpy()],
    )


def _cut(
    pieces: Float[Tensor, "pieces powers channels"], left: Float[Tensor, "pieces"], right: Float[Tensor, "pieces"]
) -> Float[Tensor, "pieces powers channels"]:
    """Polynomials from u = `left` to u = `right`, in a variable that runs from 0 to 1 there; computed in float64."""
    powers = list(pieces.double().unbind(1))
    degree = len(powers) - 1
    for done in range(degree):  # the Taylor expansion at `left`, by repeated synthetic division
        for power in range(degree - 1, done - 1, -1):
            powers[power] = powers[power] + left[:, None] * powers[power + 1]
    factor, cut = torch.ones_like(left), []
    for coefficient in powers:
        cut.append(coefficient * factor[:, None])
        factor = factor * (right - left)
    return torch.stack(cut, dim=1).to(pieces.dtype)
