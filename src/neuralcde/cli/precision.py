"""Choose float32 or float64 for the values of a table."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
import polars
import torch

from .errors import WrongUseError

Precision = Literal["auto", "float32", "float64"]
DIGITS = 1000  # smallest number of float32 values per standard deviation of a column that is precise enough


def values_dtype(precision: str, frame: polars.DataFrame) -> torch.dtype:
    """The dtype for the values of these columns; "auto" is float64 if float32 would round away their variation.

    An example is a channel with the values 1e12, 1e12 + 9 and 1e12 + 4000, which are all equal in float32. Once scaled,
    values are float32 in any case.
    """
    if precision not in get_args(Precision):
        raise WrongUseError(f"--dtype {precision} is not one of {', '.join(get_args(Precision))}.")
    if precision == "auto":
        numbers = frame.select(polars.selectors.numeric().cast(polars.Float64).fill_nan(None))
        precision = "float64" if any(map(_is_coarse, numbers.iter_columns())) else "float32"
    return torch.float64 if precision == "float64" else torch.float32


def _is_coarse(column: polars.Series) -> bool:
    """Whether float32 is too coarse for a column, or overflows."""
    spread, size = column.std(ddof=0), column.abs().max()
    if not isinstance(spread, float) or not isinstance(size, float):  # never observed
        return False
    if size > float(np.finfo(np.float32).max):
        return True
    varies = spread > 4 * np.spacing(size)  # by more than rounding errors in float64
    return bool(varies and spread < DIGITS * np.spacing(np.float32(size)))
