"""The states of a model along its series."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Trajectory:
    """The states that a model computes along its series, whether by a solver or in another way.

    Parameters
    ----------
    last
        State at the end of each series.
    at_rows
        State at every row, after the row's observation, with rows as in the series; None if not requested.
    at_times
        States at the requested times; None if no times were requested.
    """

    last: Float[Tensor, "series hidden"]
    at_rows: Float[Tensor, "rows hidden"] | None = None
    at_times: Float[Tensor, "series k hidden"] | None = None
