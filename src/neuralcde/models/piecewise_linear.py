"""Piecewise-linear encodings of numbers, with bins at training quantiles."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn


class PiecewiseLinearEncoding(nn.Module):
    r"""Encode each number as how far it is through each of its quantile bins (Gorishniy et al. 2022).

    With the edges $e_0 < \ldots < e_B$ of a feature, x becomes B numbers,

    $$\min(1, \max(0, (x - e_{b-1}) / (e_b - e_{b-1}))), \qquad b = 1, \ldots, B.$$

    A linear layer on the encoding is a continuous piecewise-linear function of x, so a network finds thresholds easily.
    The encodings are standardised by their mean and standard deviation on the training data. Before `fit` every feature
    has equal bins on [0, 1].

    Parameters
    ----------
    features
        Number of input features.
    bins
        Largest number of bins per feature. A feature with few distinct values has fewer: the remaining encodings are 0.

    Examples
    --------
    >>> import torch
    >>> from neuralcde.models import PiecewiseLinearEncoding
    >>> encoding = PiecewiseLinearEncoding(1, 4)
    >>> encoding(torch.tensor([[0.625]])).tolist()
    [[1.0, 1.0, 0.5, 0.0]]
    """

    edges: Tensor
    inverse_widths: Tensor
    mean: Tensor
    inverse_deviation: Tensor

    def __init__(self, features: int, bins: int = 8):
        super().__init__()
        self.features, self.bins = features, bins
        self.register_buffer("edges", torch.linspace(0, 1, bins + 1)[:-1].repeat(features, 1))
        self.register_buffer("inverse_widths", torch.full((features, bins), float(bins)))
        self.register_buffer("mean", torch.zeros(features, bins))
        self.register_buffer("inverse_deviation", torch.ones(features, bins))

    @property
    def outputs(self) -> int:
        """Length of the encoding of all features."""
        return self.features * self.bins

    def extra_repr(self) -> str:
        """Sizes for the repr."""
        return f"features={self.features}, bins={self.bins}"

    @torch.no_grad()
    def fit(self, values: Float[Tensor, "cases features"]) -> None:
        """Put the edges at quantiles of training values, and learn the mean and deviation of the encodings."""
        # Quantiles by position, so that edges are values that occurred: a count has its edges at whole numbers.
        places = (torch.linspace(0, 1, self.bins + 1, dtype=torch.float64) * (len(values) - 1)).round().long()
        self.inverse_widths.zero_()
        for feature, column in enumerate(values.to(self.edges).T.contiguous()):
            ordered = torch.from_numpy(np.sort(column.cpu().numpy())).to(column)  # much faster than torch's sort
            edges = torch.unique_consecutive(ordered[places])
            count = len(edges) - 1
            self.edges[feature] = edges[-1]
            self.edges[feature, :count] = edges[:-1]
            self.inverse_widths[feature, :count] = 1 / edges.diff()
            # Each feature by itself: the encodings of all might not fit in memory.
            encoded = self._passed(column[:, None], feature)
            self.mean[feature] = encoded.mean(0)
            # A bin that hardly any case is in would get a huge factor from its deviation.
            self.inverse_deviation[feature] = 1 / (encoded.std(0, correction=0) + 1e-2)

    def forward(self, values: Float[Tensor, "*batch features"]) -> Float[Tensor, "*batch encodings"]:
        """The encodings of all features, one after the other."""
        passed = self._passed(values[..., None], slice(None))
        return passed.sub_(self.mean).mul_(self.inverse_deviation).flatten(-2)

    def _passed(self, values: Float[Tensor, "*batch 1"], of: slice | int) -> Float[Tensor, "*batch bins"]:
        """How far values are through each bin."""
        return (values - self.edges[of]).mul_(self.inverse_widths[of]).clamp_(0, 1)
