"""Means of the state over time: over a whole series, up to each row, or up to given times."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from ..paths import ControlPath
from ..series import ragged


def mean_over_time(states: Float[Tensor, "rows features"], path: ControlPath) -> Float[Tensor, "series features"]:
    r"""The time average $\frac{1}{t_n - t_0} \int z \, \mathrm{d}t$ by the trapezoidal rule between rows.

    For a series of one row it is z itself. For models with jumps, `states` are those after the jumps.
    """
    # The trapezoidal rule as a weighted sum of the states: a row's weight is half of the gaps on both sides of it.
    offsets, times = path.series.offsets, path.knots
    first, last = offsets[:-1], offsets[1:] - 1
    gap = times.diff().index_fill(0, last[:-1], 0.0) / 2 if len(times) else times
    weight = torch.nn.functional.pad(gap, (0, 1)) + torch.nn.functional.pad(gap, (1, 0)) if len(times) else times
    total = times[last] - times[first]
    of_row = ragged.series_of_rows(offsets)
    weight = torch.where(total[of_row] > 0, weight / torch.where(total > 0, total, 1.0)[of_row], 1.0).to(states.dtype)
    if torch.is_grad_enabled() or not len(path):
        return states.new_zeros(len(path), states.shape[1]).index_add(0, of_row, weight[:, None] * states)
    # The same sums in the same order. index_add would start torch's threads, which one series alone waits for.
    return torch.segment_reduce(weight[:, None] * states, "sum", lengths=path.series.lengths)


def running_mean(states: Float[Tensor, "rows features"], path: ControlPath) -> Float[Tensor, "rows features"]:
    """The time average up to every row: `mean_over_time` of the series cut after that row."""
    offsets, times = path.series.offsets, path.knots
    if not len(times):
        return states
    first = offsets[:-1][ragged.series_of_rows(offsets)]
    area = times.diff()[:, None] * (states[1:] + states[:-1]) / 2  # float64, as times are
    area = torch.nn.functional.pad(area, (0, 0, 1, 0)).index_fill(0, offsets[:-1], 0.0)
    # One cumulative sum per series. With a single one over all rows, rounding would depend on the series before.
    total = torch.cat([part.cumsum(0) for part in torch.split(area, ragged.lengths(offsets).tolist())])
    passed = (times - times[first])[:, None]
    mean = total / torch.where(passed > 0, passed, 1.0)
    return torch.where(passed > 0, mean.to(states.dtype), states)


def running_mean_at(
    found: Float[Tensor, "series k features"],
    times: Float[Tensor, "series k"],
    states: Float[Tensor, "rows features"],
    path: ControlPath,
) -> Float[Tensor, "series k features"]:
    """The time average up to given times.

    Parameters
    ----------
    found, times
        The states at the times, and the times.
    states, path
        The states at all rows, and the path.
    """
    offsets, knots = path.series.offsets, path.knots
    row = ragged.last_row_at_or_before(knots, offsets, times, strict=False)
    start = knots[offsets[:-1]][:, None]
    return longer_mean(running_mean(states, path)[row], knots[row] - start, states[row], found, times - knots[row])


def longer_mean(
    mean: Float[Tensor, "*cases features"],
    passed: Float[Tensor, "*cases"],
    state: Float[Tensor, "*cases features"],
    found: Float[Tensor, "*cases features"],
    since: Float[Tensor, "*cases"],
) -> Float[Tensor, "*cases features"]:
    """The time average over an interval and one more gap, by the trapezoidal rule.

    Parameters
    ----------
    mean, passed
        The average over the interval, and its length.
    state, found
        The states at the start and the end of the gap.
    since
        The length of the gap.
    """
    passed, since = passed[..., None], since[..., None]
    area, total = mean * passed + since * (state + found) / 2, passed + since
    return torch.where(total > 0, (area / torch.where(total > 0, total, 1.0)).to(found.dtype), found)
