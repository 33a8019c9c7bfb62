"""What every task can do."""

from __future__ import annotations

import math
import reprlib
import sys
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

_kinds: dict[str, type[Task]] = {}


@dataclass(frozen=True, eq=False)
class Task(ABC):
    """What y means: how many outputs it takes, what is lost by them, and what they say.

    Targets and outputs have the same leading shape: a series each, or a row of a series each where y changes over time. A target
    of NaN is not known and counts for nothing. Tasks are plain numbers and strings, so that they can be saved as JSON.
    """

    kind: ClassVar[str]
    metric: ClassVar[str]  # what validation watches; the larger the better

    def __init_subclass__(cls, **options: Any):
        super().__init_subclass__(**options)
        _kinds[cls.kind] = cls

    @property
    @abstractmethod
    def outputs(self) -> int:
        """Numbers that a model must give."""

    @abstractmethod
    def encode(self, y: Any) -> Float[Tensor, "..."]:
        """Targets as the loss wants them."""

    @abstractmethod
    def loss(self, outputs: Float[Tensor, "... outputs"], targets: Float[Tensor, "..."]) -> Float[Tensor, ""]:
        """Mean loss over the targets that are known."""

    @abstractmethod
    def losses(self, outputs: Float[Tensor, "... outputs"], targets: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """What a series or row adds to the loss, classes not weighted; mean over its own targets, NaN where none is known."""

    @abstractmethod
    def decode(self, outputs: Float[Tensor, "... outputs"]) -> NDArray[Any]:
        """Predictions in the user's terms."""

    @abstractmethod
    def metrics(self, outputs: Float[Tensor, "... outputs"], targets: Float[Tensor, "..."]) -> dict[str, float]:
        """Scikit-learn's metrics of these outputs."""

    @abstractmethod
    def prior(self, targets: Float[Tensor, "..."]) -> Float[Tensor, " outputs"]:
        """The outputs with the least loss on these targets for a model that sees no series: where a readout starts."""

    def weight(self, targets: Float[Tensor, "..."]) -> float:
        """How much these targets count against others in a mean: by their number."""
        return float((~targets.isnan()).sum())

    def config(self) -> dict[str, Any]:
        """The task as JSON can hold it."""
        return {"kind": self.kind, **asdict(self)}


def task_from_config(config: dict[str, Any]) -> Task:
    """The task that `config()` described; a ValueError where it described none."""
    options = dict(config)
    kind = options.pop("kind", None)
    if not isinstance(kind, str) or kind not in _kinds:
        raise ValueError(f"task kind {reprlib.repr(kind)} is not one of {sorted(_kinds)}.")
    try:
        return _kinds[kind](**{name: tuple(x) if isinstance(x, list) else x for name, x in options.items()})
    except TypeError as reason:  # options that are missing or not known
        raise ValueError(f"task {kind!r} cannot be made of {reprlib.repr(sorted(options))}: {reason}") from reason


def is_finite(value: Any) -> bool:
    """Whether it is a number, and finite as a float; True and False are none."""
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return abs(int(value)) <= sys.float_info.max
    return isinstance(value, float | np.floating) and math.isfinite(value)


def missing_targets(y: NDArray[Any]) -> NDArray[np.bool_]:
    """Where a target is not known: NaN, None, or pandas' NA."""
    if y.dtype != object:
        missing: NDArray[np.bool_] = y != y
        return missing
    return np.fromiter(map(_is_missing, y.ravel()), dtype=bool, count=y.size).reshape(y.shape)


def _is_missing(item: Any) -> bool:
    if item is None:
        return True
    differs = item != item
    # of NA this is NA again, which has no truth value; of a list or an array it says nothing
    return bool(differs) if isinstance(differs, bool | np.bool_) else type(differs).__name__ == "NAType"
