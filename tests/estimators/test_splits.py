"""Random splits: two parts, stratified if possible, determined by the seed."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.model_selection import train_test_split

from neuralcde.estimators import stratified_split

labels_of_series = st.lists(st.integers(0, 5), min_size=4, max_size=80).map(np.array)
SHARES = st.sampled_from([0.1, 0.15, 0.2, 0.25, 0.5])


@settings(max_examples=200, deadline=None)
@given(labels=labels_of_series, share=SHARES, seed=st.integers(0, 2**31 - 1), counted=st.booleans())
def test_splits_are_stratified(labels, share, seed, counted):
    size = len(labels)
    held_out = max(1, round(share * size)) if counted else share
    count = held_out if counted else math.ceil(share * size)
    kept, held = stratified_split(size, held_out, seed, labels=labels)
    assert sorted([*kept, *held]) == list(range(size))
    assert len(held) == count
    classes, sizes = np.unique(labels, return_counts=True)
    wanted = held_out if counted else round(share * size)
    if sizes.min() >= 2 and min(wanted, size - wanted) >= len(classes):
        for name, of_class in zip(classes, sizes, strict=True):
            assert abs((labels[held] == name).sum() - of_class * count / size) <= 1


@settings(max_examples=100, deadline=None)
@given(labels=labels_of_series, share=SHARES, seed=st.integers(0, 2**31 - 1))
def test_splits_equal_those_of_scikit_learn(labels, share, seed):
    """Runs recorded earlier keep the same parts."""
    classes, sizes = np.unique(labels, return_counts=True)
    wanted = round(share * len(labels))
    strata = labels if sizes.min() >= 2 and min(wanted, len(labels) - wanted) >= len(classes) else None
    expected = train_test_split(np.arange(len(labels)), test_size=share, random_state=seed, stratify=strata)
    for found, part in zip(stratified_split(len(labels), share, seed, labels=labels), expected, strict=True):
        np.testing.assert_array_equal(found, part)


def test_the_seed_determines_the_split():
    labels = np.arange(40) % 2
    first, again, other = (stratified_split(40, 0.25, seed, labels=labels)[1].tolist() for seed in (0, 0, 1))
    assert first == again
    assert sorted(first) != sorted(other)


@pytest.mark.parametrize(
    "labels", [None, np.zeros((12, 2)), np.array(["a", *["b"] * 11])], ids=["none", "several", "one of its class"]
)
def test_the_split_is_plain_if_it_cannot_be_stratified(labels):
    expected = train_test_split(np.arange(12), test_size=3, random_state=5)
    for found, part in zip(stratified_split(12, 3, 5, labels=labels), expected, strict=True):
        np.testing.assert_array_equal(found, part)


def test_splits_with_an_empty_part_are_refused():
    with pytest.raises(ValueError, match="empty"):
        stratified_split(1, 0.5, 0)
