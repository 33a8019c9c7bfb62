"""The states of a model along its series."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Trajectory:
    """What a model knows of each series as it goes along; how it came by it is the model's own business.

    Parameters
    ----------
    last
        State at the end of each series.
    at_rows
        State at every row, where it was asked for: after the row's observation, rows as in the series.
    at_times
        States at the times that were asked for.
    """

    last: Float[Tensor, "series hidden"]
    at_rows: Float[Tensor, "rows hidden"] | None = None
    at_times: Float[Tensor, "series k hidden"] | None = None
