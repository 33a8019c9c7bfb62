"""Random splits of series into those that train and those that are held out."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split


def stratified_split(
    size: int, held_out: int | float, seed: int, *, labels: NDArray[Any] | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Draw the series to keep and the series to hold out at random, each class in proportion.

    The split is a plain random one where classes cannot be in proportion: where a class has a single series, or a part
    would have fewer series than there are classes.

    Parameters
    ----------
    size
        Number of series.
    held_out
        How many of them to hold out: a number, or as a float a share between 0 and 1, rounded up.
    seed
        Seed of the draw. The same seed gives the same split.
    labels
        One class per series. None, or several labels per series, for a plain random split.

    Returns
    -------
    kept, held_out
        Positions in random order.

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
