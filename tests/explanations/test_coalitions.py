"""Shapley values: the definition over all orders, closed forms, and sampled ones that still add up."""

from itertools import permutations

import numpy as np
import pytest

from neuralcde.explanations import coalitions
from neuralcde.explanations.coalitions import MOST_EXACT


def by_definition(value, players):
    """The mean over all orders of what a player adds to those before it."""
    shares = np.zeros(players)
    orders = list(permutations(range(players)))
    for order in orders:
        for k, player in enumerate(order):
            shares[player] += value(frozenset(order[: k + 1])) - value(frozenset(order[:k]))
    return shares / len(orders)


def shares(value, players, seed=0):
    parts = coalitions(players, seed)
    values = np.array([value(frozenset(np.flatnonzero(part).tolist())) for part in parts.members])
    return parts.weights @ values


def random_game(seed):
    """Any number for any coalition."""
    return lambda coalition: np.random.default_rng([seed, *sorted(coalition)]).normal()


@pytest.mark.parametrize("players", range(MOST_EXACT + 1))
def test_exact_shares_are_those_of_the_definition(players):
    value = random_game(players)
    np.testing.assert_allclose(shares(value, players), by_definition(value, players), atol=1e-12)


@pytest.mark.parametrize("players", [0, 1, 2, 6, 7, 9, 37])
def test_the_empty_coalition_comes_first_and_shares_add_up(players):
    parts, value = coalitions(players, 3), random_game(1)
    assert not parts.members[0].any()
    assert parts.members[-1].all()
    assert len(np.unique(parts.members, axis=0)) == len(parts)
    total = value(frozenset(range(players))) - value(frozenset())
    assert shares(value, players, 3).sum() == pytest.approx(total if players else 0.0, abs=1e-12)


def test_sampled_shares_are_exact_for_sums_and_pairs_and_near_otherwise():
    """A permutation and its reverse together give every pair its share."""
    one, two = np.random.default_rng(0).normal(size=8), np.random.default_rng(1).normal(size=(8, 8))

    def value(coalition):
        inside = sorted(coalition)
        return one[inside].sum() + two[np.ix_(inside, inside)].sum()

    np.testing.assert_allclose(shares(value, 8), one + (two.sum(0) + two.sum(1)) / 2, atol=1e-12)
    largest = shares(lambda coalition: max(one[list(coalition)], default=0.0), 8)
    np.testing.assert_allclose(largest, by_definition(lambda c: max(one[list(c)], default=0.0), 8), atol=0.15)


def test_the_seed_decides():
    again, other = coalitions(9, 1), coalitions(9, 2)
    assert np.array_equal(coalitions(9, 1).members, again.members)
    assert again.members.shape != other.members.shape or not np.array_equal(again.members, other.members)
