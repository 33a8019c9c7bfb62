"""What every task can do."""

from __future__ import annotations

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
    """The task that `config()` described."""
    options = dict(config)
    kind = options.pop("kind", None)
    if kind not in _kinds:
        raise ValueError(f"task kind {kind!r} is not one of {sorted(_kinds)}.")
    return _kinds[kind](**{name: tuple(value) if isinstance(value, list) else value for name, value in options.items()})


def missing_targets(y: NDArray[Any]) -> NDArray[np.bool_]:
    """Where a target is not known: NaN or None."""
    missing: NDArray[np.bool_] = y != y
    return missing | (y == None) if y.dtype == object else missing  # noqa: E711
