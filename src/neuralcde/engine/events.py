"""What both loops, the plain and the native one, run over: the events of every series, and the states asked for."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import torch
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


class KnotEvents(Events):
    """Events where every row is one and every piece a single step: their columns are worked out when they are read.

    So that the steps of a long solve take no memory. Not for rectilinear paths, nor for series of one row.

    Parameters
    ----------
    offsets, time
        The rows of the series.
    jumps
        At which rows there is a jump; None for none.
    """

    jumps: Tensor | None

    def __init__(self, offsets: Int[Tensor, "bounds"], time: Float[Tensor, "events"], jumps: Tensor | None):
        def series(at: Tensor) -> Tensor:
            return torch.searchsorted(offsets, at, right=True) - 1

        def is_last(at: Tensor) -> Tensor:
            return offsets[series(at) + 1] - 1 == at

        def number(value: float) -> _Column:
            return _Column(lambda at: torch.full(at.shape, value, dtype=torch.float64, device=at.device))

        columns = {
            "offsets": offsets,
            "time": time,
            "jumps": jumps,
            "piece": _Column(lambda at: torch.where(is_last(at), -1, at - series(at))),
            "start": number(0.0),
            "length": number(1.0),
            "duration": _Column(lambda at: time[torch.where(is_last(at), at, at + 1)] - time[at]),
            "jump_row": _Column(
                lambda at: torch.full_like(at, -1) if jumps is None else torch.where(jumps[at], at, -1)
            ),
        }
        for name, value in columns.items():
            object.__setattr__(self, name, value)

    def detached(self) -> KnotEvents:
        """The same with times that are constants."""
        return KnotEvents(self.offsets, self.time.detach(), self.jumps)


class _Column:
    """Numbers that are worked out for the events asked for: indexed like a tensor, and not in any other way."""

    def __init__(self, rule: Callable[[Tensor], Tensor]):
        self.rule = rule

    def __getitem__(self, at: Tensor) -> Tensor:
        return self.rule(at)


@dataclass(frozen=True, eq=False)
class Saved:
    """Which states are asked for: for each series a sorted list of its events."""

    offsets: Int[Tensor, "bounds"]
    event: Int[Tensor, "saved"]
