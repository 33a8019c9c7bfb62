"""What both loops, the plain and the native one, run over: the events of every series, and the states asked for."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from jaxtyping import Float, Int
from torch import Tensor

from ..series import ragged


@dataclass(frozen=True, eq=False)
class Events:
    """A series is a list of events: a jump (where there is one), then a step of the flow (where there is one).

    The state of an event is the one between the two; the last event of a series has no flow. Ragged, as everywhere.

    Parameters
    ----------
    offsets
        Where the events of each series start, and their number at the end.
    piece
        The piece of the path that the step lies in, -1 for no step.
    start, length
        The step within its piece, in u; a step lies inside one piece.
    duration
        How long the step lasts, in time.
    time
        The time of the event.
    jump_row
        The row whose observation causes the jump, -1 for none.
    """

    offsets: Int[Tensor, "bounds"]
    piece: Int[Tensor, "events"]
    start: Float[Tensor, "events"]
    length: Float[Tensor, "events"]
    duration: Float[Tensor, "events"]
    time: Float[Tensor, "events"]
    jump_row: Int[Tensor, "events"]

    @functools.cached_property
    def counts(self) -> Int[Tensor, "series"]:
        """Events of each series."""
        return ragged.lengths(self.offsets)


@dataclass(frozen=True, eq=False)
class Saved:
    """Which states are asked for: for each series a sorted list of its events."""

    offsets: Int[Tensor, "bounds"]
    event: Int[Tensor, "saved"]
