"""Which series a model learns from, which choose its epoch, and which it is scored on."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedKFold, train_test_split

from .experiment import Settings

FOLDS = 5


class Split(NamedTuple):
    """Positions of series, ascending."""

    training: NDArray[Any]
    validation: NDArray[Any]
    test: NDArray[Any]


def split_positions(labels: NDArray[Any], data: Settings) -> Split:
    """The split that a table `data` of settings asks for: 70, 15, 15 %, every class in proportion, drawn with its `split_seeds`.

    With a `fold` the test series are left out altogether: all others are cut into five folds, one of which takes the
    place of the test series, and 15 % of the rest validate. What is decided on folds has not seen the test series.
    """
    first, second = data["split_seeds"]
    everything = np.arange(len(labels))
    training, rest = train_test_split(everything, train_size=0.7, random_state=first, stratify=labels)
    validation, test = train_test_split(rest, train_size=0.5, random_state=second, stratify=labels[rest])
    if "fold" in data:
        pool = np.sort(np.concatenate([training, validation]))
        folds = StratifiedKFold(FOLDS, shuffle=True, random_state=first).split(pool, labels[pool])
        rest, test = (pool[part] for part in list(folds)[data["fold"]])
        training, validation = train_test_split(rest, train_size=0.85, random_state=second, stratify=labels[rest])
    return Split(np.sort(training), np.sort(validation), np.sort(test))
