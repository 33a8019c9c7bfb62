"""States of streams: what a model remembers of the rows so far, as two plain tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor, nn

from ..series.row_statistics import RowStatistics

CLOCK = ("rows", "start", "time", "earlier", "jumped", "jumps")


@runtime_checkable
class Updates(Protocol):
    """What updates states: `Stepper`, which imports this module."""

    @property
    def models(self) -> Sequence[nn.Module]:
        """The models that the states are of."""

    def update(self, state: StreamState, t: Any, x: Any) -> StreamState:
        """The states after one more row in every stream."""

    def outputs(self, state: StreamState) -> Float[Tensor, "members streams outputs"]:
        """The outputs of every model at the last rows."""


@dataclass(frozen=True, eq=False)
class StreamState:
    """The states of several streams, from `model.start` and `model.update`.

    Parameters
    ----------
    real
        One row per stream, in the dtype of the model: last values and extremes, static features, states, X.
    double
        One row per stream, in float64: times, counts, means, integrals of states.
    stepper
        What updates them.
    """

    real: Float[Tensor, "streams numbers"]
    double: Float[Tensor, "streams doubles"]
    stepper: Updates

    def __len__(self) -> int:
        return len(self.real)

    def __deepcopy__(self, memo: dict[int, Any]) -> StreamState:
        return replace(self, real=self.real.clone(), double=self.double.clone())  # of the same model

    def __getitem__(self, index: slice | Tensor | Sequence[int]) -> StreamState:
        return replace(self, real=self.real[index], double=self.double[index])

    @property
    def rows(self) -> Float[Tensor, " streams"]:
        """Number of rows so far."""
        return self.double[:, 0]

    @property
    def time(self) -> Float[Tensor, " streams"]:
        """Time of the last row, in the unit of the model."""
        return self.double[:, CLOCK.index("time")]

    @staticmethod
    def cat(parts: Sequence[StreamState]) -> StreamState:
        """The streams of all parts, which must have the same stepper."""
        first = parts[0]
        if any(part.stepper is not first.stepper for part in parts):
            raise ValueError("the states are not of one model and one call of start; they cannot be joined.")
        return replace(
            first, real=torch.cat([part.real for part in parts]), double=torch.cat([part.double for part in parts])
        )


@dataclass(frozen=True)
class MemberSizes:
    """Sizes of the record of one model: state, X, rows of X that are kept, and the integral for a mean (0: none)."""

    hidden: int
    channels: int
    memory: int
    area: int


class Layout:
    """Where each number of a stream stands in the two rows of its state.

    `real` holds last, low, high (one per data channel), static features, then per model the state z, X at the last row,
    and X at the row before it if the scheme needs it. `double` holds the clock (number of rows, times of the first,
    the last and the last but one row, time and number of rows with an observation), then count, seen_at, mean, squares
    (one per data channel), then per model the integral of the state over time.

    Parameters
    ----------
    data, static
        Number of data channels and of static features.
    members
        The sizes of each model.
    """

    def __init__(self, data: int, static: int, members: Sequence[MemberSizes]):
        self.data, self.static, self.members = data, static, tuple(members)
        self.reals = 3 * data + static
        self.doubles = len(CLOCK) + 4 * data
        self.real_starts, self.double_starts = [], []
        for sizes in members:
            self.real_starts.append(self.reals)
            self.double_starts.append(self.doubles)
            self.reals += sizes.hidden + sizes.channels * sizes.memory
            self.doubles += sizes.area

    def statistics(
        self, real: Float[Tensor, "streams numbers"], double: Float[Tensor, "streams doubles"]
    ) -> RowStatistics:
        """The statistics of the channels."""
        clock, data = len(CLOCK), self.data
        count, seen_at, mean, squares = double[:, clock : clock + 4 * data].tensor_split(4, dim=1)
        last, low, high = real[:, : 3 * data].tensor_split(3, dim=1)
        return RowStatistics(double[:, 1], double[:, 2], count, seen_at, mean, squares, last, low, high)

    def static_features(self, real: Float[Tensor, "streams numbers"]) -> Float[Tensor, "streams static"]:
        """The static features."""
        return real[:, 3 * self.data : 3 * self.data + self.static]

    def finite(
        self, real: Float[Tensor, "streams numbers"], double: Float[Tensor, "streams doubles"]
    ) -> Bool[np.ndarray, " streams"]:
        """Which states are finite. Static features may be NaN, where they are unknown."""
        rows, known = real.numpy(force=True), 3 * self.data  # for one stream, numpy takes half the time of torch
        parts = rows[:, :known], rows[:, known + self.static :], double.numpy(force=True)
        found: NDArray[np.bool_] = np.logical_and.reduce([np.isfinite(part).all(axis=1) for part in parts])
        return found

    def member(
        self, number: int, real: Float[Tensor, "streams numbers"], double: Float[Tensor, "streams doubles"]
    ) -> tuple[
        Float[Tensor, "streams hidden"], Float[Tensor, "streams memory channels"], Float[Tensor, "streams area"]
    ]:
        """State z, the last rows of X with the latest first, and the integral of one model."""
        sizes, start, area = self.members[number], self.real_starts[number], self.double_starts[number]
        z = real[:, start : start + sizes.hidden]
        start += sizes.hidden
        window = real[:, start : start + sizes.channels * sizes.memory]
        return z, window.reshape(-1, sizes.memory, sizes.channels), double[:, area : area + sizes.area]
