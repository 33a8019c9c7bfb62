"""What a solve needs to know of a solver: how it takes a step, and what it carries from step to step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor

Increment = Callable[[float, Tensor], Tensor]  # of a node in [0, 1] of the step and a state (batch, hidden)


class Solver(ABC):
    """A one-step method. Most are Runge-Kutta methods, each a `Tableau`; others define how they take a step.

    Parameters
    ----------
    name, order, citation
        Name, order of convergence on smooth problems, and source of the method.
    reversible
        Whether a step backwards in time, which is a step with negative increments, undoes a step forwards: exactly, or
        to an order well above that of the method. `gradient="reversible"` needs it.
    """

    name: str
    order: int
    citation: str
    reversible: bool

    @property
    @abstractmethod
    def stages(self) -> int:
        """Evaluations of the field per step without an error estimate."""

    def carry(self, z: Float[Tensor, "batch hidden"]) -> Float[Tensor, "batch carried"]:
        """What the method carries from step to step where it starts, or starts again after a jump, from the states z.

        The states come first. By default there is nothing else.
        """
        return z

    @abstractmethod
    def step(self, increment: Increment, state: Float[Tensor, "batch carried"]) -> Float[Tensor, "batch carried"]:
        """What the method carries after one step.

        Parameters
        ----------
        increment
            The increment of z over the whole step, with the field evaluated at a node in [0, 1] of the step and at a
            state.
        state
            What it carries before the step.
        """
