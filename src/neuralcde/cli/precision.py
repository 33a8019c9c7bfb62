"""The type that holds what tells the values of a column apart."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
import polars
import torch

from .errors import WrongUseError

Precision = Literal["auto", "float32", "float64"]
DIGITS = 1000  # float32 must tell this many values within a standard deviation apart


def values_dtype(precision: str, frame: polars.DataFrame) -> torch.dtype:
    """float32 or float64 for the values of these columns; "auto" is float64 where float32 would round away what they vary by.

    Twice the memory is a small price for a channel such as 1e12, 1e12 + 9, 1e12 + 4000, which is 1e12 throughout in float32. Values
    become float32 once they are scaled, in any case.
    """
    if precision not in get_args(Precision):
        raise WrongUseError(f"--dtype {precision} is not one of {', '.join(get_args(Precision))}.")
    if precision == "auto":
        numbers = frame.select(polars.selectors.numeric().cast(polars.Float64).fill_nan(None))
        precision = "float64" if any(map(_is_coarse, numbers.iter_columns())) else "float32"
    return torch.float64 if precision == "float64" else torch.float32


def _is_coarse(column: polars.Series) -> bool:
    """Whether float32 rounds away what a column varies by, or cannot hold it."""
    spread, size = column.std(ddof=0), column.abs().max()
    if not isinstance(spread, float) or not isinstance(size, float):  # never observed
        return False
    if size > float(np.finfo(np.float32).max):
        return True
    varies = spread > 4 * np.spacing(size)  # more than rounding does
    return bool(varies and spread < DIGITS * np.spacing(np.float32(size)))
