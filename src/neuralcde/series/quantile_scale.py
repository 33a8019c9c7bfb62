"""Monotone maps of channels through their training quantiles to about a standard normal distribution."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import relu
from torch.nn.utils.rnn import pad_sequence

KNOTS = 128  # most knots
FEWEST_KNOTS, VALUES_PER_KNOT = 8, 8  # small samples have one knot per 8 values, but at least 8
TAILS = (0.002, 0.004)  # further quantiles on both sides, so that an extreme value does not flatten the whole tail
EXTREME = 1e-3  # probabilities of the lowest and the highest knot are at least this far from 0 and 1
BEYOND = 0.5  # how far the map continues beyond the scores of its first and its last knot
LARGEST_SCORE = 10.0
CLOSEST = 1e-150  # smallest distance between two knots


@dataclass(frozen=True, eq=False)
class QuantileScale:
    r"""A strictly increasing, bounded map that sends the training values of a channel to normal scores.

    The knots $q_k$ are distinct quantiles of the training values. With $p_k$ the mid-rank of $q_k$ (the fraction of
    smaller values plus half of the fraction of equal values, between 0.001 and 0.999), the score of a knot is

    $$s_k = (\Phi^{-1}(p_k) - \mu) / \sigma,$$

    where $\mu$ and $\sigma$ give the training values mean 0 and deviation 1. (The deviation is smaller if nearly all
    values are equal, so that no score is beyond 10.) Between knots the map is linear. Beyond the last knot, where its
    slope is $m$, it continues as $s_K + 0.5 (1 - e^{-2 m (x - q_K)})$, and likewise before the first one.

    Parameters
    ----------
    knots, scores
        Strictly increasing float64 tensors of the same length, at least 2.

    Notes
    -----
    Computed in float64. Cost: one binary search per value. Gradients with respect to the values are those of the
    linear pieces; at a knot, that of the piece to its right.
    """

    knots: Float[Tensor, " knots"]
    scores: Float[Tensor, " knots"]

    @classmethod
    def fit(cls, ordered: Float[Tensor, " values"], *, most: int = KNOTS) -> QuantileScale | None:
        """The map of these training values, which are sorted and float64; None if they are all equal.

        It has at most `most` knots, and fewer for small samples.
        """
        size = len(ordered)
        if not size:
            return None
        inner = max(min(size // VALUES_PER_KNOT, most - 2 * len(TAILS)), FEWEST_KNOTS)
        tails = [p for p in TAILS if p * size >= VALUES_PER_KNOT]
        points = [*(k / (inner - 1) for k in range(inner)), *tails, *(1 - p for p in tails)]
        places = (torch.tensor(points, dtype=torch.float64) * (size - 1)).round().long().sort().values
        knots = ordered[places]  # values of the sample, never between two
        knots = knots[torch.cat([knots.new_ones(1, dtype=torch.bool), knots.diff() > CLOSEST])]
        if len(knots) < 2:
            return None
        ranks = torch.searchsorted(ordered, knots) + torch.searchsorted(ordered, knots, right=True)
        raw = cls(knots, torch.special.ndtri((ranks.double() / (2 * size)).clamp(EXTREME, 1 - EXTREME)))
        scores = raw.transform(ordered)
        centred = raw.scores - scores.mean()
        return cls(knots, centred / torch.maximum(scores.std(correction=0), centred.abs().max() / LARGEST_SCORE))

    def transform(self, values: Float[Tensor, " values"]) -> Float[Tensor, " values"]:
        """The scores of observed values, in their dtype."""
        return transform_columns(values[:, None], [self])[:, 0]

    def inverse(self, scores: Float[Tensor, " values"]) -> Float[Tensor, " values"]:
        """The values with these scores. A score at or beyond the bound of the map gives a finite value near it."""
        z = scores.double()
        knots, known = self.knots.to(z.device), self.scores.to(z.device)
        below, above = self._tail_units()
        most = 1 - torch.finfo(torch.float64).eps
        high, low = (relu(z - known[-1]) / BEYOND).clamp(max=most), (relu(known[0] - z) / BEYOND).clamp(max=most)
        x = _interpolate(z, known, knots) - above * torch.log1p(-high) + below * torch.log1p(-low)
        return x.to(scores.dtype)

    def _tail_units(self) -> tuple[float, float]:
        """Lengths over which the two tails approach their bounds. With them the slope is continuous at the ends."""
        units = BEYOND * self.knots.diff() / self.scores.diff()
        return float(units[0]), float(units[-1])


@functools.lru_cache(maxsize=16)  # a prediction for one series takes milliseconds, and this tenths of them
def _stacked(scales: tuple[QuantileScale, ...]) -> tuple[Tensor, Tensor, Tensor]:
    """Knots and scores of several maps, each (maps, knots), and the places of their last knots."""
    knots, scores = (
        pad_sequence([getattr(scale, name) for scale in scales], batch_first=True, padding_value=torch.inf)
        for name in ("knots", "scores")
    )
    return knots, scores, torch.tensor([[len(scale.knots) - 1] for scale in scales])


def transform_columns(
    values: Float[Tensor, "rows columns"], scales: Sequence[QuantileScale]
) -> Float[Tensor, "rows columns"]:
    """The scores of the values of several columns, each through its own map; NaN stays NaN."""
    missing = values.isnan()
    x = values.masked_fill(missing, 0.0).double().T.contiguous()  # the gradient of NaN would be NaN
    knots, scores, last = (part.to(x.device) for part in _stacked(tuple(scales)))
    piece = torch.searchsorted(knots, x.detach(), right=True) - 1
    piece = torch.minimum(piece, last - 1).clamp_(min=0)
    left, right = knots.gather(1, piece), knots.gather(1, piece + 1)
    first, second, before, top = knots[:, :1], knots[:, 1:2], knots.gather(1, last - 1), knots.gather(1, last)
    share = (x.clamp(first, top) - left) / (right - left)
    z = torch.lerp(scores.gather(1, piece), scores.gather(1, piece + 1), share)
    # Lengths over which the two tails approach their bounds. With them the slope is continuous at the ends.
    below = BEYOND * (second - first) / (scores[:, 1:2] - scores[:, :1])
    above = BEYOND * (top - before) / (scores.gather(1, last) - scores.gather(1, last - 1))
    z = z - BEYOND * torch.expm1(-relu(x - top) / above) + BEYOND * torch.expm1(-relu(first - x) / below)
    return z.T.to(values.dtype).masked_fill(missing, torch.nan)


def _interpolate(
    at: Float[Tensor, " values"], knots: Float[Tensor, " knots"], images: Float[Tensor, " knots"]
) -> Float[Tensor, " values"]:
    """Linear interpolation, constant outside the knots."""
    piece = (torch.searchsorted(knots, at.detach().contiguous(), right=True) - 1).clamp(0, len(knots) - 2)
    left, right = knots[piece], knots[piece + 1]
    inside = at.clamp(float(knots[0]), float(knots[-1]))
    return torch.lerp(images[piece], images[piece + 1], (inside - left) / (right - left))
