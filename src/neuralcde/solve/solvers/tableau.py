"""Explicit Runge-Kutta methods as tableaux."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ...contracts import plain


@dataclass(frozen=True)
class Tableau:
    r"""An explicit Runge-Kutta method: stages $k_i = g(t + c_i h, z + h \sum_j a_{ij} k_j)$, then $z + h \sum_i b_i k_i$.

    Parameters
    ----------
    name, order, citation
        What it is called, how fast it converges on smooth problems, and where it comes from.
    a
        Strictly lower triangular, one row a stage (the first is empty).
    b, c
        Weights and nodes.
    b_error
        Weights of an embedded method minus b: what `Adaptive` estimates errors with. Empty for methods without one.

    Notes
    -----
    A stage that only serves the error estimate (the last one of dopri5 and tsit5) is evaluated under `Adaptive` alone;
    there it is also the first stage of the next step, wherever that lies in the same piece of the path (first same as
    last). A step that is tried again does not evaluate its first stage again either.
    """

    name: str
    order: int
    citation: str
    a: tuple[tuple[float, ...], ...]
    b: tuple[float, ...]
    c: tuple[float, ...]
    b_error: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "a", tuple(map(tuple, self.a)))
        for name in ("b", "c", "b_error"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        if len(self.c) != len(self.a) or any(len(row) != stage for stage, row in enumerate(self.a)):
            raise ValueError(
                f"the tableau {self.name!r} is not explicit: row i of a must have i entries (the first none), and c one for each row."
            )
        if not 1 <= len(self.b) <= len(self.a) or len(self.b_error) not in (0, len(self.a)):
            raise ValueError(
                f"the tableau {self.name!r} needs at most {len(self.a)} weights b and none or {len(self.a)} weights b_error, one a "
                f"stage; got {len(self.b)} and {len(self.b_error)}."
            )

    def to_config(self) -> dict[str, Any]:
        """Its numbers, as JSON holds them: a tableau is nothing else."""
        return {name: plain(value) for name, value in dataclasses.asdict(self).items()}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Tableau:
        """What `to_config` described."""
        return cls(**config)

    @property
    def stages(self) -> int:
        """Evaluations of the field in a step of fixed length."""
        return len(self.b)

    @property
    def first_same_as_last(self) -> bool:
        """Whether the last stage is the first one of the next step: it is evaluated at the step's own end."""
        return len(self.a) == len(self.b) + 1 and self.a[-1] == self.b and self.c[-1] == 1

    @functools.cache  # noqa: B019 (a handful of tableaux, kept for good)
    def tensors(self) -> tuple[Float[Tensor, "stages stages"], Float[Tensor, "stages"], Float[Tensor, "stages"]]:
        """A, b and c in float64, for steps of fixed length."""
        a = torch.zeros(self.stages, self.stages, dtype=torch.float64)
        for stage, row in enumerate(self.a[: self.stages]):
            a[stage, : len(row)] = torch.tensor(row, dtype=torch.float64)
        return a, torch.tensor(self.b, dtype=torch.float64), torch.tensor(self.c[: self.stages], dtype=torch.float64)
