"""Explicit Runge-Kutta methods: their Butcher tableaux, and one step in plain torch."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ...contracts import plain
from ...engine import TableauColumns
from .solver import Increment, Solver


@dataclass(frozen=True)
class Tableau(Solver):
    r"""Explicit Runge-Kutta method: stages $k_i = g(t + c_i h, z + h \sum_j a_{ij} k_j)$, then $z + h \sum_i b_i k_i$.

    Parameters
    ----------
    name, order, citation
        Name, order of convergence on smooth problems, and source of the method.
    a
        Strictly lower triangular matrix, one row per stage; the first row is empty.
    b, c
        Weights and nodes.
    b_error
        Weights of the embedded method minus b, from which `Adaptive` estimates the error. Empty for methods without an
        embedded method.
    reversible
        Whether a step of the method backwards in time undoes a step forwards, to an order well above that of the
        method, so that `gradient="reversible"` can be used.

    Notes
    -----
    A stage that only the error estimate uses (the last one of dopri5 and tsit5) is evaluated only with `Adaptive`.
    There it is also the first stage of the next step, if that lies in the same piece of the path (first same as
    last). A rejected step is retried without evaluating its first stage again.
    """

    name: str
    order: int
    citation: str
    a: Sequence[Sequence[float]]
    b: Sequence[float]
    c: Sequence[float]
    b_error: Sequence[float] = ()
    reversible: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "a", tuple(map(tuple, self.a)))
        for name in ("b", "c", "b_error"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        if len(self.c) != len(self.a) or any(len(row) != stage for stage, row in enumerate(self.a)):
            raise ValueError(
                f"the tableau {self.name!r} is not explicit: row i of a must have i entries (counted from 0), and c "
                "one entry per row."
            )
        if not 1 <= len(self.b) <= len(self.a) or len(self.b_error) not in (0, len(self.a)):
            raise ValueError(
                f"the tableau {self.name!r} needs 1 to {len(self.a)} weights b and 0 or {len(self.a)} weights b_error, "
                f"one per stage; got {len(self.b)} and {len(self.b_error)}."
            )

    def to_config(self) -> dict[str, Any]:
        """The fields of the tableau, as values that JSON can store."""
        return {name: plain(value) for name, value in dataclasses.asdict(self).items()}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Tableau:
        """Rebuild the tableau from what `to_config` returned."""
        return cls(**config)

    @property
    def stages(self) -> int:
        """Evaluations of the field per step without an error estimate."""
        return len(self.b)

    @property
    def first_same_as_last(self) -> bool:
        """Whether the last stage is evaluated at the end of the step, and so is the first stage of the next step."""
        return len(self.a) == len(self.b) + 1 and self.a[-1] == self.b and self.c[-1] == 1

    def step(self, increment: Increment, state: Float[Tensor, "batch hidden"]) -> Float[Tensor, "batch hidden"]:
        """The state after one step."""
        return runge_kutta(self, lambda stage, y: increment(self.c[stage], y), state).end

    @functools.cache  # noqa: B019 (there are few tableaux, and they live as long as the process)
    def columns(self, *, with_error: bool = False) -> TableauColumns:
        """The tableau as the native engine reads it, with or without the stages that only the error estimate uses."""
        stages = len(self.a) if with_error else self.stages
        a = torch.zeros(stages, stages, dtype=torch.float64)
        for stage, row in enumerate(self.a[:stages]):
            a[stage, : len(row)] = torch.tensor(row, dtype=torch.float64)
        b, c, b_error = (torch.tensor(part, dtype=torch.float64) for part in (self.b, self.c[:stages], self.b_error))
        b = torch.nn.functional.pad(b, (0, stages - len(b)))
        estimates = with_error and len(self.b_error) > 0
        return TableauColumns(
            a, b, c, b_error if estimates else None, self.order, with_error and self.first_same_as_last
        )


class Stepped(NamedTuple):
    """Result of a step: the state at its end, the increments of its stages, and the error estimate if requested."""

    end: Tensor
    stages: list[Tensor]
    error: Tensor | None


def runge_kutta(
    tableau: Tableau,
    increment: Callable[[int, Float[Tensor, "batch numbers"]], Float[Tensor, "batch numbers"]],
    state: Float[Tensor, "batch numbers"],
    *,
    with_error: bool = False,
) -> Stepped:
    r"""One Runge-Kutta step: $k_i = \mathrm{increment}(i, z + \sum_j a_{ij} k_j)$, then $z + \sum_i b_i k_i$.

    Parameters
    ----------
    tableau
        The method.
    increment
        Function of the stage number and the state at that stage; returns the increment over the whole step.
    state
        The state at the start of the step.
    with_error
        Whether to estimate the error, as the difference to the embedded method. This evaluates its extra stages too.
    """
    stages: list[Tensor] = []
    for stage in range(len(tableau.a) if with_error else tableau.stages):
        stages.append(increment(stage, _plus(state, tableau.a[stage], stages)))
    error = _weighted_sum(tableau.b_error, stages) if with_error else None
    return Stepped(_plus(state, tableau.b, stages), stages, error)


def _weighted_sum(weights: Sequence[float], stages: Sequence[Tensor]) -> Tensor | None:
    """The weighted sum of the stages; None if all weights are 0. There may be more stages than weights.

    (b has no weight for a stage that only the error estimate uses.)
    """
    parts = [weight * k for weight, k in zip(weights, stages, strict=False) if weight != 0]
    return functools.reduce(torch.add, parts) if parts else None


def _plus(state: Tensor, weights: Sequence[float], stages: Sequence[Tensor]) -> Tensor:
    total = _weighted_sum(weights, stages)
    return state if total is None else state + total
