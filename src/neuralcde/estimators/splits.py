"""Random, stratified splits of series into a training set and a held-out set."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split


def stratified_split(
    size: int, held_out: int | float, seed: int, *, labels: NDArray[Any] | None = None
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

    Returns
    -------
    kept, held_out
        Positions of the series, in random order.

    Raises
    ------
    ValueError
        If a part would be empty.

    Examples
    --------
    >>> from neuralcde.estimators import stratified_split
    >>> kept, held = stratified_split(8, 2, seed=0, labels=np.array(["a", "b"] * 4))
    >>> len(kept), sorted(int(k) % 2 for k in held)
    (6, [0, 1])
    """
    strata = None
    if labels is not None and labels.ndim == 1:
        _, counts = np.unique(labels, return_counts=True)
        wanted = round(held_out * size) if isinstance(held_out, float) else held_out
        strata = labels if counts.min() >= 2 and min(wanted, size - wanted) >= len(counts) else None
    kept, held = train_test_split(np.arange(size), test_size=held_out, random_state=seed, stratify=strata)
    return kept, held
