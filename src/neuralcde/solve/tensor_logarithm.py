"""The logarithm of a signature in the tensor algebra, and the Lyndon words that describe it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

Levels = list[Tensor]  # level k: (batch, channels**k), words in lexicographic order; without the empty word


def logarithm(words: Float[Tensor, "batch words"], channels: int, depth: int) -> Float[Tensor, "batch words"]:
    r"""$\log(1 + S) = \sum_{k=1}^N \frac{(-1)^{k+1}}{k} S^{\otimes k}$, truncated at words of length N.

    Parameters
    ----------
    words
        S: signatures as `signature` returns them, without the empty word, whose integral is 1.
    channels, depth
        Number of channels, and N.
    """
    bounds = [0, *itertools.accumulate(channels**k for k in range(1, depth + 1))]
    levels: Levels = [words[:, low:high] for low, high in itertools.pairwise(bounds)]
    # Horner's rule: log(1 + S) = S (1 - S (1/2 - S (1/3 - ...))).
    rest = [torch.zeros_like(level) for level in levels]
    for divisor in range(depth, 1, -1):
        rest = [-level for level in _product(levels, 1 / divisor, rest)]
    return torch.cat(_product(levels, 1.0, rest), dim=1)


def _product(a: Levels, constant: float, b: Levels) -> Levels:
    """The tensor product of a with constant + b, where neither a nor b has an empty word."""
    found = []
    for k in range(len(a)):
        total = constant * a[k]
        for j in range(k):
            total = total + (a[j][:, :, None] * b[k - 1 - j][:, None, :]).flatten(1)
        found.append(total)
    return found


def lyndon_words(channels: int, depth: int) -> list[tuple[int, ...]]:
    """The Lyndon words of at most `depth` letters, by length, then in lexicographic order.

    A word is a Lyndon word if it comes before all of its rotations. These are as many as a basis of the Lie algebra of
    log-signatures has elements.
    """
    return sorted(_duval(channels, depth), key=lambda word: (len(word), word))


def _duval(channels: int, depth: int) -> Iterator[tuple[int, ...]]:
    """Duval's algorithm: the next Lyndon word is the last one, repeated to full length, with its last letter raised."""
    word = [-1]
    while word:
        word[-1] += 1
        yield tuple(word)
        word = [word[place % len(word)] for place in range(depth)]
        while word and word[-1] == channels - 1:
            word.pop()


def place_of_word(word: tuple[int, ...], channels: int) -> int:
    """The place of a word among all words by length, then in lexicographic order, without the empty word."""
    place = 0
    for letter in word:  # a word of length k comes after all shorter ones: read it as a number with digits 1 to c
        place = place * channels + letter + 1
    return place - 1
