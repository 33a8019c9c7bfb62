"""Dropout that draws from a given random generator, so that a training can be repeated and resumed exactly."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor, nn


class Dropout(nn.Module):
    """Set each number to 0 with probability `share` in training, and scale the others by 1 / (1 - share).

    `nn.Dropout` draws from torch's generator, which all threads share. This one draws from the generator of
    `drawing_from`, and from torch's outside of it.

    Parameters
    ----------
    share
        Probability of 0.
    """

    def __init__(self, share: float):
        super().__init__()
        if not 0 <= share < 1:
            raise ValueError(f"dropout must be a number in [0, 1), got {share!r}.")
        self.share = share
        self.generator: torch.Generator | None = None

    def extra_repr(self) -> str:
        """The probability, for the repr."""
        return f"share={self.share}"

    def forward(self, values: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """The values, some of them 0."""
        if not self.training or not self.share:
            return values
        kept = torch.rand(values.shape, generator=self.generator).to(values) >= self.share
        return values * kept / (1 - self.share)


@contextlib.contextmanager
def drawing_from(model: nn.Module, generator: torch.Generator) -> Iterator[None]:
    """Let all `Dropout` of a model draw from this generator of the CPU."""
    parts = [part for part in model.modules() if isinstance(part, Dropout)]
    for part in parts:
        part.generator = generator
    try:
        yield
    finally:
        for part in parts:
            part.generator = None
