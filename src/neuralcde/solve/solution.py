"""What a solve returns."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..paths import ControlPath


class Status(enum.Enum):
    """How a solve ended; the value is the message."""

    done = "solved"
    not_finite = "the state is no longer finite: the field grows too fast for these steps"
    max_steps = "max_steps reached before the end: the state is the one at the time reached"


class SolveError(RuntimeError):
    """A solve that went wrong, with the series and the time at which it did.

    Parameters
    ----------
    trouble
        What went wrong.
    advice
        What to do about it, for those who called the solver themselves.
    """

    def __init__(self, trouble: str, advice: str = ""):
        super().__init__(f"{trouble} {advice}".strip())
        self.trouble = trouble


@dataclass(frozen=True, eq=False)
class Stats:
    """What a solve cost, per series.

    Parameters
    ----------
    evaluations
        Evaluations of the field: stages x steps. Under `Adaptive` also those of the search for the steps: all stages of every step
        it tried, but for first ones that were known. Those for `error` and for times between the steps are not counted.
    accepted, rejected
        Steps taken, and steps that `Adaptive` tried and took back.
    engine
        "native (level)", or "torch: " and the reason.
    error
        Estimate of the error of the last state by step doubling, where it was asked for: the largest entry.
    """

    evaluations: Int[Tensor, "series"]
    accepted: Int[Tensor, "series"]
    rejected: Int[Tensor, "series"]
    engine: str
    error: Float[Tensor, "series"] | None = None


@dataclass(frozen=True, eq=False, repr=False)
class Solution:
    """The states of a batch of series.

    Parameters
    ----------
    last
        State at the end of each series.
    stats
        What it cost.
    states_at_knots
        State at every row of the series, after its jump, where `save="knots"` asked for them.
    at_times
        States (series, k, hidden) at the times that `save` asked for.
    """

    path: ControlPath
    last: Float[Tensor, "series hidden"]
    stats: Stats
    statuses: Int[Tensor, "series"]
    reached: Float[Tensor, "series"]
    states_at_knots: Float[Tensor, "rows hidden"] | None = None
    at_times: Float[Tensor, "series k hidden"] | None = None
    dense: Callable[[Tensor], Tensor] | None = None

    def __repr__(self) -> str:
        series, hidden = self.last.shape
        return f"Solution({series:,} series, {hidden} hidden, {self.stats.engine}, {self.status.value})"

    @property
    def status(self) -> Status:
        """The worst of all series; `statuses` holds the number of each one's in `list(Status)`."""
        return list(Status)[int(self.statuses.max()) if len(self.statuses) else 0]

    @property
    def at_knots(self) -> Float[Tensor, "rows hidden"]:
        """State at every row of the series, read after its jump; rows and offsets as in the series."""
        if self.states_at_knots is None:
            raise ValueError('the states at the knots were not kept; solve with save="knots".')
        return self.states_at_knots

    def evaluate(self, t: Tensor | float | list[float]) -> Float[Tensor, ...]:
        """z(t) for a scalar, for times (k,) shared or (series, k) per series: one solver step from the last grid point."""
        if self.dense is None:
            raise ValueError('the states of all steps were not kept; solve with save="dense".')
        asked = torch.as_tensor(t, dtype=torch.float64)
        states = self.dense(asked)
        return states[:, 0] if asked.ndim == 0 else states
