"""Terms, which move the state between observations, and jumps, which update it at observations."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..fields import VectorField


@dataclass(frozen=True, eq=False)
class Term(ABC):
    """The right-hand side of the equation between observations.

    A term defines what drives the field at a point of a piece, and the increment of z over a step that results. A
    step has length `du` in the variable of its piece and duration `dt` in time. Solvers use nothing but these
    increments, so every term works with every solver, step size controller and gradient method.

    Parameters
    ----------
    field
        The module that is evaluated.
    """

    field: nn.Module
    driven_by: ClassVar[Literal["increment", "value"]]  # of X: the native engine's name for the kind of drive

    @abstractmethod
    def drive(
        self,
        pieces: Float[Tensor, "batch powers channels"],
        u: Float[Tensor, "batch 1"],
        du: Float[Tensor, "batch 1"],
    ) -> Float[Tensor, "batch channels"]:
        """The input from X to the field at the point u of each piece, in a step of length du."""

    @abstractmethod
    def evaluate(self, t: Tensor, z: Tensor, drive: Tensor) -> Tensor:
        """The value of the field, (batch, hidden), at time t since the start of each series, state z and drive."""

    @abstractmethod
    def scale(self, change: Tensor, dt: Tensor) -> Tensor:
        """The increment of z, given the value of the field and the duration dt of the step."""

    def increment(
        self,
        t: Float[Tensor, "batch"],
        z: Float[Tensor, "batch hidden"],
        drive: Float[Tensor, "batch channels"],
        dt: Float[Tensor, "batch 1"],
    ) -> Float[Tensor, "batch hidden"]:
        """The increment of z at one stage of a step."""
        try:
            change = self.evaluate(t, z.clone(), drive)  # a field may modify z in place
        except RuntimeError as error:
            error.add_note(
                f"The field was called with the states of {len(z)} series. A solve calls it with the series that still "
                "have a step to take, in an order of its own. What belongs to a series must be part of its state, with "
                "an increment of 0, or of its path, as constant channels."
            )
            raise
        if change.shape != z.shape:
            name = type(self.field).__name__
            raise ValueError(
                f"{name} returned an increment of shape {tuple(change.shape)} for z of shape {tuple(z.shape)}; the two "
                "shapes must be equal."
            )
        return self.scale(change, dt).to(z.dtype)  # also of a field that computes in another precision


@dataclass(frozen=True, eq=False)
class ControlTerm(Term):
    r"""$\mathrm{d}z = f(t, z)\, \mathrm{d}X$: the drive is $\mathrm{d}X = X'(u)\, \mathrm{d}u$."""

    driven_by = "increment"
    field: VectorField

    def drive(self, pieces: Tensor, u: Tensor, du: Tensor) -> Tensor:
        """X'(u) du."""
        total = torch.zeros_like(pieces[:, 0])
        for power in range(pieces.shape[1] - 1, 0, -1):
            total = total * u + power * pieces[:, power]
        return total * du

    def evaluate(self, t: Tensor, z: Tensor, drive: Tensor) -> Tensor:
        """f(t, z) dX."""
        return self.field.prod(t, z, drive)

    def scale(self, change: Tensor, dt: Tensor) -> Tensor:
        """The value unchanged: f dX is already an increment."""
        return change


@dataclass(frozen=True, eq=False)
class TimeTerm(Term):
    r"""$\mathrm{d}z = h(t, z, X)\, \mathrm{d}t$: the drive is the value $X(u)$."""

    driven_by = "value"

    def __post_init__(self) -> None:
        if isinstance(self.field, VectorField):
            raise TypeError(
                f"a TimeTerm needs a module h(t, z, X) -> (batch, hidden), but {type(self.field).__name__} is a "
                "VectorField, which returns a matrix; use a ControlTerm."
            )

    def drive(self, pieces: Tensor, u: Tensor, du: Tensor) -> Tensor:
        """X(u)."""
        total = torch.zeros_like(pieces[:, 0])
        for power in range(pieces.shape[1] - 1, -1, -1):
            total = total * u + pieces[:, power]
        return total

    def evaluate(self, t: Tensor, z: Tensor, drive: Tensor) -> Tensor:
        """h(t, z, X)."""
        change: Tensor = self.field(t, z, drive)
        return change

    def scale(self, change: Tensor, dt: Tensor) -> Tensor:
        """The value times dt."""
        return change * dt


@dataclass(frozen=True, eq=False)
class Jump:
    r"""The update at observations: $z \leftarrow \mathrm{cell}(z, \text{inputs of the row})$.

    Parameters
    ----------
    cell
        A module (z, inputs) -> z.
    inputs
        Inputs of the cell, one row per row of the series.
    rows
        Boolean mask of shape (rows,): the rows at which the state is updated.
    """

    cell: nn.Module
    inputs: Float[Tensor, "rows features"]
    rows: Tensor

    def after(
        self, z: Float[Tensor, "batch hidden"], inputs: Float[Tensor, "batch features"]
    ) -> Float[Tensor, "batch hidden"]:
        """The states after the update with these inputs."""
        after: Tensor = self.cell(z, inputs)
        return after.to(z.dtype)


@dataclass(frozen=True, eq=False)
class RestartingJump(Jump):
    """A jump for a solver that carries more than the state: the state jumps, and the solver starts again from there.

    Parameters
    ----------
    carry
        What the solver carries where it starts, as in `Solver`.
    hidden
        Size of the state, which comes first.
    """

    carry: Callable[[Tensor], Tensor]
    hidden: int

    def after(
        self, z: Float[Tensor, "batch carried"], inputs: Float[Tensor, "batch features"]
    ) -> Float[Tensor, "batch carried"]:
        """What the solver carries after the update with these inputs."""
        return self.carry(super().after(z[:, : self.hidden], inputs))
