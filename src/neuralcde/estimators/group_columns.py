"""Columns that name what several series have in common, such as the patient of several stays."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

FEWEST_SERIES = 30  # with fewer, whole numbers that a few series share may be anything
LEAST_DISTINCT = 1 / 3  # different values per series: a column with fewer is a category
LEAST_SHARED, FEWEST_SHARED = 0.05, 6  # share and number of series that have a value in common with another one
MOST_PER_GROUP, SMALL_GROUPS = 10, 0.99  # that share of the groups has at most so many series
# Whole numbers that are no ids, such as ages, coincide by chance. Twice the middle half of their range tells how often:
# it is not widened by a few wrong entries. Numbers that cluster coincide more often, but not many times more often.
TIMES_CHANCE = 10
EXACT = 2.0**24  # larger whole numbers coincide when they are rounded to float32
NOUNS = frozenset(
    ("id", "ids", "patient", "subject", "person", "mrn", "client", "customer", "user", "family", "animal")
)
COUNTERS = frozenset(("no", "nr", "num", "number", "code", "key"))
DATE = re.compile(r"\s*\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}")


def is_group_column(name: str, values: NDArray[Any]) -> bool:
    """Whether the values of a column, one per series, look like ids of groups of series.

    Parameters
    ----------
    name
        Name of the column.
    values
        Numbers, NaN where unknown; or text, None where unknown.
    """
    text = values.dtype == object
    known = np.asarray([value for value in values.tolist() if value is not None and value == value])
    if len(known) < FEWEST_SERIES or len(known) < len(values) / 2:
        return False
    if text and any(DATE.match(str(value)) for value in known[:5]):
        return False  # stays that began on one day
    if not text and bool((known != np.round(known)).any()):
        return False
    _, counts = np.unique(known, return_counts=True)
    shared = int(counts[counts > 1].sum())
    if len(counts) < LEAST_DISTINCT * len(known) or shared < max(FEWEST_SHARED, LEAST_SHARED * len(known)):
        return False
    if np.quantile(counts, SMALL_GROUPS) > MOST_PER_GROUP:
        return False
    if text or (_is_named_like_an_id(name) and np.abs(known).max() < EXACT):
        return True
    return _coincide_too_often(known, counts)


def _coincide_too_often(numbers: NDArray[Any], counts: NDArray[np.int64]) -> bool:
    """Whether far more pairs of series have the same number than chance would give."""
    if np.abs(numbers).max() >= 2.0**62:
        return False
    step = int(np.gcd.reduce(np.diff(np.unique(numbers).astype(np.int64))))
    low, high = np.quantile(numbers, [0.25, 0.75])
    size = 2 * (high - low) / step + 1
    pairs = float((counts * (counts - 1) / 2).sum())
    return bool(pairs > TIMES_CHANCE * len(numbers) * (len(numbers) - 1) / 2 / size)


def _is_named_like_an_id(name: str) -> bool:
    """Whether a name ends like that of an id: patient, subject_id, PatientNumber."""
    words = [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]
    return bool(words) and (words[-1] in NOUNS or (words[-1] in COUNTERS and not NOUNS.isdisjoint(words)))
