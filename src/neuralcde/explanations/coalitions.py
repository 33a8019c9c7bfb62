"""Shapley values as weighted sums over coalitions: exact for a few players, sampled for more."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import factorial

import numpy as np
from numpy.typing import NDArray

MOST_EXACT = 6  # with more players, coalitions are sampled
PAIRS = 16  # of a permutation and its reverse


@dataclass(frozen=True, eq=False)
class Coalitions:
    r"""The coalitions whose values are needed, and the weights with which these give the Shapley values.

    With $v(A)$ the value of coalition A, the share of player c is $\phi_c = \sum_A w_{c, A}\, v(A)$. The shares add up
    to $v(\text{all}) - v(\emptyset)$.

    Parameters
    ----------
    members
        Whether each player is in each coalition. The first coalition is empty and the last one has all players.
    weights
        The weights $w$.
    """

    members: NDArray[np.bool_]  # (coalitions, players)
    weights: NDArray[np.float64]  # (players, coalitions)

    def __len__(self) -> int:
        return len(self.members)


@lru_cache(maxsize=256)
def coalitions(players: int, seed: int = 0) -> Coalitions:
    """The coalitions for so many players.

    Up to six players, these are all of them. For more, they are those of random permutations, to which the players are
    added one after the other; each permutation is used forwards and backwards, which makes the estimate more precise.
    The shares add up exactly in both cases.

    Parameters
    ----------
    players
        Number of players.
    seed
        Seed of the permutations.
    """
    return _all(players) if players <= MOST_EXACT else _sampled(players, seed)


def _all(players: int) -> Coalitions:
    r"""All coalitions: player c has the weight $\frac{s!\,(k-s-1)!}{k!}$ on joining a coalition of s others of k."""
    number = np.arange(2**players)
    members = (number[:, None] >> np.arange(players)) & 1 == 1
    others = members.sum(1)[:, None] - members  # the size of each coalition without the player
    size = np.array([factorial(s) * factorial(players - s - 1) / factorial(players) for s in range(players)])
    weights = np.where(members, 1.0, -1.0) * size[others] if players else np.zeros((1, 0))
    return Coalitions(members, np.ascontiguousarray(weights.T))


def _sampled(players: int, seed: int) -> Coalitions:
    drawn = np.random.default_rng([seed, players])
    forwards = np.stack([drawn.permutation(players) for _ in range(PAIRS)])
    orders = np.concatenate([forwards, forwards[:, ::-1]])
    place = orders.argsort(1)
    passed = place[:, None] < np.arange(players + 1)[:, None]  # (permutations, steps, players)
    members, number = np.unique(passed.reshape(-1, players), axis=0, return_inverse=True)
    number = number.reshape(len(orders), players + 1)
    weights = np.zeros((players, len(members)))
    share = np.full(orders.shape, 1 / len(orders))
    np.add.at(weights, (orders, number[:, 1:]), share)
    np.subtract.at(weights, (orders, number[:, :-1]), share)
    return Coalitions(members, weights)
