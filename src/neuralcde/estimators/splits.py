"""Random, stratified splits of series into a training set and a held-out set."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import (
    GroupKFold,
    GroupShuffleSplit,
    KFold,
    StratifiedGroupKFold,
    StratifiedKFold,
    train_test_split,
)

from ..contracts import Argument, ArgumentError

FOLDS = 5
MIN_VALIDATION_SERIES = 8  # with fewer validation series, there is no validation


def stratified_split(
    size: int,
    held_out: int | float,
    seed: int,
    *,
    labels: NDArray[Any] | None = None,
    groups: NDArray[Any] | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Split series at random into a kept and a held-out part, stratified by class.

    The split is not stratified if that is impossible: if a class has a single series, or a part would have fewer series
    than there are classes.

    Parameters
    ----------
    size
        Number of series.
    held_out
        Number of series to hold out; or, as a float between 0 and 1, their fraction, rounded up.
    seed
        Seed of the draw. The same seed gives the same split.
    labels
        One class per series. The split is not stratified if it is None or has several labels per series.
    groups
        One group per series: the series of a group are all kept or all held out. The number of series that are held out
        is then only about `held_out`. None for no groups.

    Returns
    -------
    kept, held_out
        Positions of the series, in random order.

    Raises
    ------
    ValueError
        If a part would be empty, e.g. because there is only one group.

    Examples
    --------
    >>> from neuralcde.estimators import stratified_split
    >>> kept, held = stratified_split(8, 2, seed=0, labels=np.array(["a", "b"] * 4))
    >>> len(kept), sorted(int(k) % 2 for k in held)
    (6, [0, 1])
    """
    if groups is not None:
        return _grouped_split(size, held_out, seed, labels, groups)
    strata = None
    if labels is not None and labels.ndim == 1:
        _, counts = np.unique(labels, return_counts=True)
        wanted = round(held_out * size) if isinstance(held_out, float) else held_out
        strata = labels if counts.min() >= 2 and min(wanted, size - wanted) >= len(counts) else None
    kept, held = train_test_split(np.arange(size), test_size=held_out, random_state=seed, stratify=strata)
    return kept, held


def validation_split(
    fraction: float,
    size: int,
    seed: int,
    labels: NDArray[Any] | None = None,
    groups: NDArray[Any] | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Split into training and validation series, as sorted positions; fewer than eight are not split off."""
    everything = np.arange(size)
    count = round(fraction * size)
    if count >= size:
        raise ArgumentError(Argument("validation_fraction", fraction), f" of {size} series leaves none to learn from.")
    if count < MIN_VALIDATION_SERIES:
        return everything, everything[:0]
    training, validation = stratified_split(size, count, seed % 2**31, labels=labels, groups=groups)
    return np.sort(training), np.sort(validation)


def folds_of(
    size: int,
    seed: int,
    labels: NDArray[Any] | None,
    groups: NDArray[Any] | None,
    *,
    argument: str,
    instead: Any,
    least: int = FOLDS,
) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Five folds, as the positions of the kept and of the held-out series: stratified by class, groups kept together.

    If a class or the groups are too few, there are fewer folds, but at least `least`. Errors name the `argument` that
    needs the folds, and its value `instead`.

    Raises
    ------
    ValueError
        If a class or the groups are too few for the folds.
    """
    strata = labels if labels is not None and labels.ndim == 1 else None
    rarest = size if strata is None else int(np.unique(strata, return_counts=True)[1].min())
    units = rarest if groups is None else min(rarest, len(np.unique(groups)))
    if units < least:
        what = "series" if strata is None else "series of each class"
        what = what if groups is None else f"{what}, and as many groups"
        raise ArgumentError(
            f"{argument} needs at least {least} {what}, for {least} folds, but there are {units}; use ",
            Argument(argument, instead),
            ".",
            argument=argument,
        )
    if groups is not None:
        kind = GroupKFold if strata is None else StratifiedGroupKFold
    else:
        kind = KFold if strata is None else StratifiedKFold
    splitter = kind(min(FOLDS, units), shuffle=True, random_state=seed % 2**31)
    found = list(splitter.split(np.arange(size), strata, groups))
    for kept, held in found:
        if strata is not None and len(np.unique(strata[kept])) < len(np.unique(strata)):
            raise ArgumentError(
                f"{argument}: the groups of a class are too few to be in every fold; use ",
                Argument(argument, instead),
                ".",
                argument=argument,
            )
        if not len(held):
            raise ArgumentError(
                f"{argument}: a fold has no series; use ", Argument(argument, instead), ".", argument=argument
            )
    return found


def _grouped_split(
    size: int, held_out: int | float, seed: int, labels: NDArray[Any] | None, groups: NDArray[Any]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """A split that keeps groups together; stratified if each class and the groups are enough for the folds."""
    share = held_out if isinstance(held_out, float) else held_out / size
    folds, count = max(round(1 / share), 2), len(np.unique(groups))
    if count < 2:
        raise ArgumentError(
            "groups: all series are in one group, so that no group can be held out for validation; "
            "use validation=(X, y), or validation_fraction=0.",
            argument="groups",
        )
    everything = np.arange(size)
    flat = labels is not None and labels.ndim == 1 and np.unique(labels, return_counts=True)[1].min() >= folds
    if flat and count >= 2 * folds:
        splitter = StratifiedGroupKFold(folds, shuffle=True, random_state=seed)
        kept, held = next(splitter.split(everything, labels, groups))
        if len(held):
            return kept, held
    shuffled = GroupShuffleSplit(1, test_size=max(round(share * count), 1), random_state=seed)
    kept, held = next(shuffled.split(everything, groups=groups))
    return kept, held
