"""Ways to differentiate a solve."""

from __future__ import annotations

from dataclasses import dataclass

from .steps import count


@dataclass(frozen=True)
class Checkpoint:
    """Exact gradients of the discretisation in little memory, the default.

    Keeps the state at every `every`-th step (hidden floats a series and step for `every=1`) and computes everything else
    again on the way back: one more forward pass of work, stages and activations of one step at a time in memory. Runs on
    the native engine wherever the forward pass does.
    """

    every: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "every", count("every", self.every))


@dataclass(frozen=True)
class Backprop:
    """Exact gradients of the discretisation, by differentiating through every operation of the plain loop.

    Keeps all activations of all stages of all steps. The only one that can be differentiated again.
    """


@dataclass(frozen=True)
class Backsolve:
    r"""The paper's continuous adjoint (section 3.4): z and its adjoint are solved backwards in time.

    $$\mathrm{d}a = -a^T \frac{\partial f}{\partial z} \mathrm{d}X, \qquad
    \frac{\mathrm{d}L}{\mathrm{d}\theta} = \int a^T \frac{\partial f}{\partial \theta} \mathrm{d}X$$

    Memory does not grow with the number of steps (states asked for are kept, and the state before each jump).
    Approximate: it converges to the exact gradient at the solver's order, as the steps get smaller, and fields that
    contract going forward explode going back. Under `Adaptive` the backward solve chooses its own steps, by the error of
    z and a alone: the integrals over the parameters have no part in it (the seminorm of Kidger, Chen and Lyons 2021).
    """


Gradient = Checkpoint | Backprop | Backsolve
_names: dict[str, Gradient] = {"checkpoint": Checkpoint(), "backprop": Backprop(), "backsolve": Backsolve()}


def as_gradient(gradient: str | Gradient) -> Gradient:
    """A gradient method by its name, or as it is."""
    if isinstance(gradient, Gradient):
        return gradient
    if not isinstance(gradient, str) or gradient not in _names:
        raise ValueError(f"gradient={gradient!r} is not one of {list(_names)}; or pass Checkpoint(every=k).")
    return _names[gradient]
