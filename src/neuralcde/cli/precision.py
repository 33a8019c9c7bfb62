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
        precision = "float64" if any(map(_is_coarse, _statistics(frame))) else "float32"
    return torch.float64 if precision == "float64" else torch.float32


def _statistics(frame: polars.DataFrame) -> list[tuple[float, float]]:
    """Of every column of numbers: its standard deviation and its largest size, where anything was observed."""
    numbers = frame.select(polars.selectors.numeric().cast(polars.Float64).fill_nan(None))
    spreads = numbers.select(polars.all().std(ddof=0)).row(0)
    sizes = numbers.select(polars.all().abs().max()).row(0)
    return [(spread, size) for spread, size in zip(spreads, sizes, strict=True) if spread is not None]


def _is_coarse(statistics: tuple[float, float]) -> bool:
    spread, size = statistics
    if size > np.finfo(np.float32).max:
        return True
    varies = spread > 4 * np.spacing(size)  # more than rounding does
    return bool(varies and spread < DIGITS * np.spacing(np.float32(size)))
