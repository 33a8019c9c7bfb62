"""Running statistics of the channels of a stream: what row features need to know about the rows so far."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor


@dataclass(frozen=True, eq=False)
class RowStatistics:
    """Statistics of the observations so far, for several streams at once; the last row is at `time`.

    Parameters
    ----------
    start, time
        Times of the first and of the last row.
    count, seen_at
        Number of observations of each channel, and the time of the last one; the start if there is none.
    mean, squares
        Their mean, and the sum of squared distances from it.
    last, low, high
        The last observation and the extremes; 0 if there is none.
    """

    start: Float[Tensor, " streams"]
    time: Float[Tensor, " streams"]
    count: Float[Tensor, "streams channels"]
    seen_at: Float[Tensor, "streams channels"]
    mean: Float[Tensor, "streams channels"]
    squares: Float[Tensor, "streams channels"]
    last: Float[Tensor, "streams channels"]
    low: Float[Tensor, "streams channels"]
    high: Float[Tensor, "streams channels"]

    @property
    def known(self) -> Bool[Tensor, "streams channels"]:
        """Whether each channel was ever observed."""
        return self.count > 0

    def with_row(self, t: Float[Tensor, " streams"], x: Float[Tensor, "streams channels"]) -> RowStatistics:
        """The statistics after one more row at a later time; NaN means not observed."""
        here = ~x.isnan()
        value = torch.where(here, x, 0.0)
        before, count = self.known, self.count + here
        exact = value.double()
        # Welford's update, as in `row_features`.
        mean = torch.where(here, self.mean + (exact - self.mean) / count.clamp(min=1), self.mean)
        squares = torch.where(here, self.squares + (exact - self.mean) * (exact - mean), self.squares)
        return RowStatistics(
            self.start,
            t,
            count,
            torch.where(here, t[:, None], self.seen_at),
            mean,
            squares,
            torch.where(here, value, self.last),
            torch.where(here & (~before | (value < self.low)), value, self.low),
            torch.where(here & (~before | (value > self.high)), value, self.high),
        )

    def features(self, families: Sequence[str]) -> Float[Tensor, "streams features"]:
        """The features of the last row, as `row_features` gives them."""
        known, dtype = self.known, self.last.dtype
        makers: dict[str, Callable[[], Tensor]] = {
            "last": lambda: self.last,
            "mean": lambda: self.mean,
            "deviation": lambda: (self.squares / self.count.clamp(min=1)).sqrt(),
            "minimum": lambda: self.low,
            "maximum": lambda: self.high,
            "observed": lambda: known & (self.seen_at == self.time[:, None]),
            "seen": lambda: known,
            "count": lambda: self.count.log1p(),
            "elapsed": lambda: (self.time[:, None] - self.seen_at).log1p(),
        }
        columns = [makers[name]().to(dtype) for name in families]
        return torch.cat(columns, 1) if columns else self.last[:, :0]
