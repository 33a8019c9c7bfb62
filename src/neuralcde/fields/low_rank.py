"""Low-rank vector fields, which are cheaper for paths with many channels."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from ..contracts import check_sizes
from .mlp import feedforward, scale_last_layer
from .vector_field import VectorField, multiply


class LowRankField(VectorField, name="low_rank"):
    r"""A field of rank r, $f(z) = \frac{1}{r} A(z) B(z)$ with A of shape (hidden, rank), B of shape (rank, channels).

    Rank one is the outer product of the paper's section 6.3: the last layer has width x (hidden + channels) weights
    instead of width x hidden x channels. One network computes A and B; its final activation applies to both.

    Parameters
    ----------
    channels, hidden
        Size of X and of z.
    rank
        Number of outer products.
    width, depth, activation, final, initial_scale
        As in `MLPField`.
    """

    def __init__(
        self,
        channels: int,
        hidden: int,
        *,
        rank: int = 1,
        width: int = 32,
        depth: int = 3,
        activation: str = "relu",
        final: str = "tanh",
        initial_scale: float = 1.0,
    ):
        super().__init__()
        check_sizes(channels=channels, hidden=hidden, rank=rank, width=width, depth=depth)
        self.channels, self.hidden, self.rank = channels, hidden, rank
        self.layers = feedforward(
            hidden, rank * (hidden + channels), width=width, depth=depth, activation=activation, final=final
        )
        scale_last_layer(self.layers, initial_scale)

    def factors(
        self, z: Float[Tensor, "batch hidden"]
    ) -> tuple[Float[Tensor, "batch hidden rank"], Float[Tensor, "batch rank channels"]]:
        """A(z) and B(z)."""
        both = self.layers(z)
        left, right = both[..., : self.hidden * self.rank], both[..., self.hidden * self.rank :]
        return left.unflatten(-1, (self.hidden, self.rank)), right.unflatten(-1, (self.rank, self.channels))

    def forward(
        self, t: Float[Tensor, "batch"], z: Float[Tensor, "batch hidden"]
    ) -> Float[Tensor, "batch hidden channels"]:
        """The matrix f(z); f does not depend on t."""
        left, right = self.factors(z)
        return left @ right / self.rank

    def prod(
        self, t: Float[Tensor, "batch"], z: Float[Tensor, "batch hidden"], dx: Float[Tensor, "batch channels"]
    ) -> Float[Tensor, "batch hidden"]:
        """A (B dX) / rank, without forming the matrix."""
        left, right = self.factors(z)
        return multiply(left, multiply(right, dx)) / self.rank
