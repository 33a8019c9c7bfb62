"""Scaling of single rows by a fitted `SeriesScaler`, as plain tensor operations."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from .quantile_scale import BEYOND, QuantileScale
from .scaling import SeriesScaler


class RowScaling:
    """Scales the times and values of rows as `SeriesScaler.transform` scales whole series.

    Parameters
    ----------
    scaler
        The fitted scaler. Values far outside the usual range count as not observed.
    use
        Factor per channel after scaling.
    dtype
        The dtype of the training series; values are rounded to it first.
    """

    def __init__(self, scaler: SeriesScaler, use: Sequence[float], dtype: torch.dtype):
        self.dtype, self.time_scale = dtype, scaler.time_scale_
        self.mean, self.deviation = scaler.mean_.to(dtype), scaler.scale_.to(dtype)
        self.use = torch.tensor(use, dtype=dtype)
        self.maps = tuple(scaler.quantiles_)
        limits = [(-torch.inf, torch.inf) if one is None else (one.lowest, one.highest) for one in scaler.usual_]
        self.lowest, self.highest = torch.tensor(limits, dtype=dtype).reshape(-1, 2).unbind(1)
        # Channels without a map get one that is not used, so that all are computed together.
        unused = torch.tensor([0.0, 1.0], dtype=torch.float64)
        made = [one if one is not None else QuantileScale(unused, unused) for one in self.maps]
        self.mapped = torch.tensor([one is not None for one in self.maps])
        self.any_mapped = any(one is not None for one in self.maps)
        self.counts = torch.tensor([len(one.knots) for one in made])
        self.knots = pad_sequence([one.knots for one in made], batch_first=True, padding_value=torch.inf)
        self.scores = pad_sequence([one.scores for one in made], batch_first=True, padding_value=torch.inf)

    def times(self, t: Float[Tensor, " rows"]) -> Float[Tensor, " rows"]:
        """Scaled times."""
        return t / self.time_scale

    def values(self, given: Float[Tensor, "rows channels"], dtype: torch.dtype) -> Float[Tensor, "rows channels"]:
        """Scaled values, in float32 as the models of estimators have it, then in this dtype; NaN stays NaN."""
        x = given.to(self.dtype)
        far = (x < self.lowest) | (x > self.highest)
        x = x.masked_fill(far, torch.nan)
        scaled = (x - self.mean) / self.deviation
        if self.any_mapped:
            scaled = torch.where(self.mapped, self._scores(x).to(self.dtype), scaled)
        return (scaled * self.use).to(torch.float32).to(dtype)

    def _scores(self, given: Float[Tensor, "rows channels"]) -> Float[Tensor, "rows channels"]:
        """The values through the map of each channel, as in `QuantileScale`."""
        missing = given.isnan()
        x = torch.where(missing, 0.0, given).double().T.contiguous()
        last = (self.counts - 1)[:, None]
        if torch.compiler.is_compiling():  # a comparison with every knot can be exported
            piece = (x[:, :, None] >= self.knots[:, None]).sum(-1) - 1
        else:
            piece = torch.searchsorted(self.knots, x, right=True) - 1
        piece = torch.minimum(piece, last - 1).clamp(min=0)
        left, right = self.knots.gather(1, piece), self.knots.gather(1, piece + 1)
        first, top = self.knots[:, :1], self.knots.gather(1, last)
        share = (torch.minimum(torch.maximum(x, first), top) - left) / (right - left)
        low, high = self.scores.gather(1, piece), self.scores.gather(1, piece + 1)
        below = BEYOND * (self.knots[:, 1:2] - first) / (self.scores[:, 1:2] - self.scores[:, :1])
        above = BEYOND * (top - self.knots.gather(1, last - 1))
        above = above / (self.scores.gather(1, last) - self.scores.gather(1, last - 1))
        z = low + share * (high - low)
        z = (
            z
            - BEYOND * torch.expm1(-torch.relu(x - top) / above)
            + BEYOND * torch.expm1(-torch.relu(first - x) / below)
        )
        return torch.where(missing, torch.nan, z.T)
