"""The result of a solve: states, status, statistics, and the error that it may raise."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..paths import ControlPath, Times


class Status(enum.Enum):
    """How a solve ended; each value is the message for users."""

    done = "solved"
    not_finite = "the state is no longer finite: the field grows too fast for these steps"
    max_steps = "max_steps reached before the end: the state is the one at the time reached"


class SolveError(RuntimeError):
    """A solve failed; the message names the series and the time.

    Parameters
    ----------
    trouble
        What went wrong.
    advice
        What to do about it, for callers who chose the solver's options themselves.
    """

    def __init__(self, trouble: str, advice: str = ""):
        super().__init__(f"{trouble} {advice}".strip())
        self.trouble = trouble


@dataclass(frozen=True, eq=False)
class Stats:
    """Cost of a solve, per series.

    Parameters
    ----------
    evaluations
        Evaluations of the field: stages x steps. With `Adaptive` this includes the search for the steps: all stages of
        every step that was tried, except first stages that were already known. Evaluations for `error` and for times
        between steps are not counted.
    accepted, rejected
        Number of accepted steps, and of steps that `Adaptive` rejected.
    engine
        "native (level)", or "torch: " and the reason why the native engine did not run.
    error
        Estimate of the error of the last state by step doubling, as the largest absolute entry; None unless requested.
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
    path
        The control paths.
    last
        State at the end of each series, or where it stopped.
    stats
        Cost of the solve.
    statuses
        Status of each series, as its index in `list(Status)`.
    reached
        The time at which each series ended or stopped.
    states_at_knots
        State at every row of the series, after its jump; None unless `save` was "knots" or "dense".
    at_times
        States of shape (series, k, hidden) at the times given as `save`; None otherwise.
    dense
        Function from times to states; None unless `save` was "dense".
    slope
        Function from times to derivatives of the states; None unless `save` was "dense".
    step_times, step_offsets
        The times between which the steps of every series lie, as ragged rows; None unless `save` was "dense".
    """

    path: ControlPath
    last: Float[Tensor, "series hidden"]
    stats: Stats
    statuses: Int[Tensor, "series"]
    reached: Float[Tensor, "series"]
    states_at_knots: Float[Tensor, "rows hidden"] | None = None
    at_times: Float[Tensor, "series k hidden"] | None = None
    dense: Callable[[Tensor], Tensor] | None = None
    slope: Callable[[Tensor], Tensor] | None = None
    step_times: Float[Tensor, "events"] | None = None
    step_offsets: Int[Tensor, "bounds"] | None = None

    def __repr__(self) -> str:
        series, hidden = self.last.shape
        return f"Solution({series:,} series, {hidden} hidden, {self.stats.engine}, {self.status.value})"

    @property
    def status(self) -> Status:
        """The worst status of all series; `statuses` holds that of each series, as an index in `list(Status)`."""
        return list(Status)[int(self.statuses.max()) if len(self.statuses) else 0]

    @property
    def at_knots(self) -> Float[Tensor, "rows hidden"]:
        """State at every row of the series, after its jump; rows and offsets as in the series."""
        if self.states_at_knots is None:
            raise ValueError('the states at the knots were not kept; solve with save="knots".')
        return self.states_at_knots

    def evaluate(self, t: Times) -> Float[Tensor, "series *k hidden"]:
        """z(t), by one solver step from the last grid point before t.

        Parameters
        ----------
        t
            A time, k times of shape (k,) shared by all series, or times of shape (series, k).

        Returns
        -------
        Tensor
            Shape (series, hidden) for a scalar t, otherwise (series, k, hidden).
        """
        return self._at(self.dense, t)

    def derivative(self, t: Times) -> Float[Tensor, "series *k hidden"]:
        """dz/dt at t: the right-hand side of the equation at z(t). At a knot it is the derivative just after it.

        Shapes are as in `evaluate`.
        """
        return self._at(self.slope, t)

    @staticmethod
    def _at(function: Callable[[Tensor], Tensor] | None, t: Times) -> Tensor:
        if function is None:
            raise ValueError('the states of all steps were not kept; solve with save="dense".')
        asked = torch.as_tensor(t, dtype=torch.float64)
        found = function(asked)
        return found[:, 0] if asked.ndim == 0 else found
