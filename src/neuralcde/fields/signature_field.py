"""The linear vector field whose solution is the signature of X, on which the universal approximation theorem rests."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from ..contracts import check_sizes
from .vector_field import VectorField

MOST_WORDS = 1_000_000


class SignatureField(VectorField):
    r"""The linear field of appendix B, $\mathrm{d}S = S \otimes \mathrm{d}X$, truncated to words of length N.

    The state has one entry for every word $i_1 \ldots i_k$ of at most N channels, starting with the empty word:

    $$S = (S^0, S^1, \ldots, S^N), \quad S^k \in \mathbb{R}^{c^k}, \qquad
      \mathrm{d}S^0 = 0, \quad \mathrm{d}S^{k+1} = S^k \otimes \mathrm{d}X.$$

    From the initial state $(1, 0, \ldots, 0)$ the solution is the signature of X, the iterated integrals
    $S^{i_1 \ldots i_k} = \int \mathrm{d}X^{i_1} \cdots \mathrm{d}X^{i_k}$. Words of the same length are in
    lexicographic order. The increment is therefore a zero followed by one outer product, of all words shorter than N
    with dX.

    Parameters
    ----------
    channels
        Size of X.
    depth
        N, the length of the longest words.

    Notes
    -----
    `hidden` is the size of the state, $1 + c + \cdots + c^N$, and `prefixes` the number of words shorter than N. A
    product with dX costs `hidden` multiplications. The paper's matrix M(y) has the same entries in another order
    within each length: there the last letter of a word is the slowest index.

    Examples
    --------
    >>> import torch
    >>> from neuralcde.fields import SignatureField
    >>> field = SignatureField(channels=2, depth=2)
    >>> field.hidden, field.prefixes
    (7, 3)
    >>> state = torch.tensor([[1.0, 3.0, 4.0, 0.0, 0.0, 0.0, 0.0]])
    >>> field.prod(torch.zeros(1), state, torch.tensor([[0.5, 10.0]])).tolist()
    [[0.0, 0.5, 10.0, 1.5, 30.0, 2.0, 40.0]]
    """

    def __init__(self, channels: int, depth: int):
        super().__init__()
        check_sizes(channels=channels, depth=depth)
        self.channels, self.depth = channels, depth
        self.prefixes, self.hidden = 0, 1
        for length in range(1, depth + 1):
            self.prefixes, self.hidden = self.hidden, self.hidden + channels**length
            if self.hidden > MOST_WORDS:
                raise ValueError(
                    f"depth={depth} is too deep for {channels} channels: there are {self.hidden:,} words of up to "
                    f"{length} channels, and at most {MOST_WORDS:,} are allowed; take depth={length - 1} "
                    f"({self.prefixes:,}), or fewer channels."
                )

    def forward(
        self, t: Float[Tensor, "batch"], z: Float[Tensor, "batch hidden"]
    ) -> Float[Tensor, "batch hidden channels"]:
        """The matrix f(S): a row of zeros, then the blocks S^w I below each other, one per word w shorter than N."""
        self._check(z, self.channels)
        words = z[..., : self.prefixes, None, None] * torch.eye(self.channels, dtype=z.dtype, device=z.device)
        return torch.nn.functional.pad(words.flatten(-3, -2), (0, 0, 1, 0))

    def prod(
        self, t: Float[Tensor, "batch"], z: Float[Tensor, "batch hidden"], dx: Float[Tensor, "batch channels"]
    ) -> Float[Tensor, "batch hidden"]:
        """The outer product of all words shorter than N with dX, without forming the matrix."""
        self._check(z, dx.shape[-1])
        words = (z[..., : self.prefixes, None] * dx[..., None, :]).flatten(-2)
        return torch.nn.functional.pad(words, (1, 0))

    def _check(self, z: Tensor, channels: int) -> None:
        if (z.shape[-1], channels) != (self.hidden, self.channels):
            raise ValueError(
                f"SignatureField(channels={self.channels}, depth={self.depth}) needs states of size {self.hidden} and "
                f"a path of {self.channels} channels, got states of size {z.shape[-1]} and {channels} channels."
            )
