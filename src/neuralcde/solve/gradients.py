"""Methods to differentiate a solve."""

from __future__ import annotations

from dataclasses import dataclass

from .steps import count


@dataclass(frozen=True)
class Checkpoint:
    """Exact gradients of the discretised solve with little memory; the default.

    The forward pass keeps only every `every`-th state: with `every=1`, `hidden` floats per series and step. The
    backward pass recomputes everything else, which costs one more forward pass. Stages and activations are in memory
    for at most `every` steps at a time. Runs on the native engine whenever the forward pass does.
    """

    every: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "every", count("every", self.every))


@dataclass(frozen=True)
class Backprop:
    """Exact gradients of the discretised solve, by backpropagation through every operation of the plain torch loop.

    Keeps the activations of all stages of all steps. The only method that supports second derivatives.
    """


@dataclass(frozen=True)
class Backsolve:
    r"""The paper's continuous adjoint (section 3.4): z and its adjoint a are solved backwards in time.

    $$\mathrm{d}a = -a^T \frac{\partial f}{\partial z} \mathrm{d}X, \qquad
    \frac{\mathrm{d}L}{\mathrm{d}\theta} = \int a^T \frac{\partial f}{\partial \theta} \mathrm{d}X$$

    Memory does not grow with the number of steps: only the saved states and the state before each jump are kept. The
    gradient is approximate. It converges to the exact gradient at the solver's order as the steps get smaller, but a
    field that contracts forward in time explodes backward in time. With `Adaptive` the backward solve chooses its own
    steps by the error of z and a alone; the integrals for the parameters are left out of the error (the seminorm of
    Kidger, Chen and Lyons 2021).
    """


@dataclass(frozen=True)
class Reversible:
    """Gradients of the discretised solve with hardly any memory, for solvers whose steps can be undone.

    The backward pass undoes each step by a step of the same method backwards in time, which gives the state at its
    start: with "ees25" up to an error of order 6, with "reversible_heun" up to rounding. It then differentiates it like
    `Checkpoint`. Every `every`-th state is stored, so that errors do not add up. Fixed steps only.
    """

    every: int = 1000

    def __post_init__(self) -> None:
        object.__setattr__(self, "every", count("every", self.every))


Gradient = Checkpoint | Backprop | Backsolve | Reversible
_names: dict[str, Gradient] = {
    "checkpoint": Checkpoint(),
    "backprop": Backprop(),
    "backsolve": Backsolve(),
    "reversible": Reversible(),
}


def as_gradient(gradient: str | Gradient) -> Gradient:
    """A gradient method from its name; a method is returned unchanged."""
    if isinstance(gradient, Gradient):
        return gradient
    if not isinstance(gradient, str) or gradient not in _names:
        raise ValueError(f"gradient={gradient!r} is not one of {list(_names)}; or pass Checkpoint(every=k).")
    return _names[gradient]
