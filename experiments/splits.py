"""Splits of the series into training, validation and test."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

from neuralcde.estimators import stratified_split

from .experiment import Settings

FOLDS = 5


class Split(NamedTuple):
    """Positions of the series of each part, in ascending order."""

    training: NDArray[Any]
    validation: NDArray[Any]
    test: NDArray[Any]


def split_positions(labels: NDArray[Any], data: Settings, *, groups: NDArray[Any] | None = None) -> Split:
    """The split for the table `data` of settings: 70, 15, 15 % of each class, drawn with its `split_seeds`.

    The series of a group, such as the clips of a speaker, are in the same part; the shares are then approximate.

    With a `fold` the test series are left out. The others are cut into five folds: one takes the place of the test
    series, and 15 % of the rest validate. Decisions made on folds have not seen the test series.
    """
    first, second = data["split_seeds"]
    training, rest = _cut(np.arange(len(labels)), 0.7, first, labels, groups)
    validation, test = _cut(rest, 0.5, second, labels, groups)
    if "fold" in data:
        pool = np.sort(np.concatenate([training, validation]))
        kind = StratifiedKFold if groups is None else StratifiedGroupKFold
        own = None if groups is None else groups[pool]
        folds = kind(FOLDS, shuffle=True, random_state=first).split(pool, labels[pool], own)
        rest, test = (pool[part] for part in list(folds)[data["fold"]])
        training, validation = _cut(rest, 0.85, second, labels, groups)
    return Split(np.sort(training), np.sort(validation), np.sort(test))


def _cut(
    positions: NDArray[Any], share: float, seed: int, labels: NDArray[Any], groups: NDArray[Any] | None
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Two parts of the positions at random, the first with a share of each class, rounded down."""
    if groups is not None:
        return _cut_groups(positions, share, seed, groups[positions])
    held_out = len(positions) - int(share * len(positions))
    first, second = stratified_split(len(positions), held_out, seed, labels=labels[positions])
    return positions[first], positions[second]


def _cut_groups(
    positions: NDArray[Any], share: float, seed: int, groups: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Two parts of the positions with whole groups, which are drawn until the first part has its share."""
    names, group, counts = np.unique(groups, return_inverse=True, return_counts=True)
    order = np.random.default_rng(seed).permutation(len(names))
    before = np.cumsum(counts[order]) - counts[order] / 2  # a group is in the part that has its middle
    first = np.isin(group, order[before <= share * len(positions)])
    return positions[first], positions[~first]
