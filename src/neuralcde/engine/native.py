"""The call into the native engine, wrapped as an autograd function."""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from .._native import kernels, level
from .._native.once import once_differentiable as once_differentiable_or
from ..series import ragged
from .program import Array, Program, array_of

NOTHING: dict[torch.dtype, Array] = {
    torch.float32: np.empty((1, 0), np.float32),
    torch.float64: np.empty((1, 0), np.float64),
}

once_differentiable = once_differentiable_or(
    'this solve cannot be differentiated twice; use gradient="backprop", which differentiates the plain loop.'
)


def engine_name() -> str:
    """The engine for modules that can be lowered: `"native (level)"`, or `"torch"` if there is no native engine."""
    return f"native ({level()})" if available() else "torch"


def available() -> bool:
    """Whether the native kernels were built and are not turned off by `NEURALCDE_ENGINE=torch`."""
    return kernels is not None and os.environ.get("NEURALCDE_ENGINE", "") != "torch"


def most_stages() -> int:
    """Largest number of Runge-Kutta stages that the native engine supports."""
    return 0 if kernels is None else int(kernels.MOST_STAGES)


@dataclass(frozen=True, eq=False)
class EventColumns:
    """The events of all series in the form that the engine reads, with either explicit steps or one step per piece.

    Parameters
    ----------
    offsets
        Index of the first event of each series; the last entry is the total number of events.
    piece, start, length, duration
        Explicit steps: the piece that contains the step (-1 for no step), its start and length in u, and its duration
        in time. None if `time` is given.
    jump_row
        The row whose observation causes the jump, -1 for none; None if there are no jumps at all.
    time
        The times of the events, if every event is a knot. Each event but the last of a series is then one step along
        one piece.
    """

    offsets: Int[Tensor, "bounds"]
    piece: Int[Tensor, "events"] | None = None
    start: Float[Tensor, "events"] | None = None
    length: Float[Tensor, "events"] | None = None
    duration: Float[Tensor, "events"] | None = None
    jump_row: Int[Tensor, "events"] | None = None
    time: Float[Tensor, "events"] | None = None


@dataclass(frozen=True, eq=False)
class TableauColumns:
    """A Runge-Kutta method in the form that the engine reads.

    Parameters
    ----------
    a, b, c, b_error
        As in `Tableau`, with zeros where it has no entries; b_error is None for a walk without error estimate.
    order, same_as_last
        The order, and whether the last stage is the first one of the next step.
    """

    a: Float[Tensor, "stages stages"]
    b: Float[Tensor, "stages"]
    c: Float[Tensor, "stages"]
    b_error: Float[Tensor, "stages"] | None
    order: int
    same_as_last: bool

    @functools.cached_property
    def native(self) -> Any:
        """The method as an object of the compiled module."""
        assert kernels is not None
        return kernels.Tableau(self.a, self.b, self.c, self.b_error, self.order, self.same_as_last)


@dataclass(frozen=True, eq=False)
class NativeProblem:
    """The arguments of a solve that are not differentiated.

    Parameters
    ----------
    flow, jump
        Programs of the flow and of the jump; None if there is none.
    drive
        What drives the flow: the "increment" of X or its "value".
    tableau
        The Runge-Kutta method.
    events
        Jumps and steps.
    saved_offsets, saved_event
        The events of each series whose states are saved.
    every
        Distance in events between two states that are kept for the gradient; 0 without gradients.
    event_states
        The states at all events, if they are known; then nothing is solved forwards.
    """

    flow: Program | None
    jump: Program | None
    drive: Literal["increment", "value"]
    tableau: TableauColumns
    events: EventColumns
    saved_offsets: Int[Tensor, "bounds"]
    saved_event: Int[Tensor, "saved"]
    every: int = 1
    event_states: Float[Tensor, "events hidden"] | None = None

    def parameters(self) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """The parameters of the flow and those of the jump."""
        return tuple(() if part is None else part.parameters for part in (self.flow, self.jump))  # type: ignore[return-value]


def solve_natively(
    problem: NativeProblem,
    z0: Float[Tensor, "series hidden"],
    coefficients: Float[Tensor, "pieces powers channels"],
    row_inputs: Float[Tensor, "rows features"] | None,
) -> tuple[Float[Tensor, "saved hidden"], Int[Tensor, "series"]]:
    """The saved states, and for each series the event after which its state was no longer finite, or -1.

    Gradients are exact for the discretised solve. The forward pass keeps every `every`-th state; the backward pass
    recomputes the stages.
    """
    if torch.is_grad_enabled():
        flow, jump = problem.parameters()
        inputs = z0.new_zeros(0, 0) if row_inputs is None else row_inputs
        differentiable = (z0, coefficients, inputs, *flow, *jump)
        if any(x.requires_grad for x in differentiable):
            states, failed = _Solve.apply(problem, *differentiable)  # type: ignore[no-untyped-call]
            return states, failed
    states, failed, _, _ = _forward(problem, 0, z0, coefficients, row_inputs)
    return states, failed


def _forward(
    problem: NativeProblem, every: int, z0: Tensor, coefficients: Tensor, row_inputs: Tensor | None
) -> tuple[Tensor, Tensor, Any, Array]:
    """The saved states, the failed events, the solve as an object of the compiled module, and its checkpoints."""
    assert kernels is not None
    events = problem.events
    call = (kernels.Solve32 if z0.dtype == torch.float32 else kernels.Solve64)(
        flow=native_program(problem.flow),
        flow_values=native_values(problem.flow),
        drive=getattr(kernels.Drive, problem.drive),
        jump=native_program(problem.jump),
        jump_values=native_values(problem.jump),
        tableau=problem.tableau.native,
        initial=array_of(z0),
        coefficients=array_of(coefficients),
        row_inputs=NOTHING[z0.dtype] if row_inputs is None else array_of(row_inputs),
        events=kernels.Events(**{name: None if x is None else array_of(x) for name, x in vars(events).items()}),
        saved=kernels.Saved(array_of(problem.saved_offsets), array_of(problem.saved_event)),
        every=every,
        threads=torch.get_num_threads(),
    )
    failed = torch.from_numpy(np.full(len(z0), -1))
    checkpoints = z0.new_empty(call.checkpoints).numpy() if every else NOTHING[z0.dtype][0]
    known = problem.event_states
    if known is None:
        states = z0.new_empty(len(problem.saved_event), z0.shape[1])
        call.forward(states=states.numpy(), failed_event=failed.numpy(), checkpoints=checkpoints)
    else:
        owner = ragged.series_of_rows(problem.saved_offsets)
        states = known.index_select(0, problem.events.offsets.index_select(0, owner) + problem.saved_event)
        if every:
            call.lay_out(event_states=array_of(known), checkpoints=checkpoints)
    return states, failed, call, checkpoints


class _Solve(torch.autograd.Function):
    """The native solve, differentiable once in the initial states, the path, the inputs of jumps and the parameters."""

    @staticmethod
    def forward(
        ctx: Any, problem: NativeProblem, z0: Tensor, coefficients: Tensor, row_inputs: Tensor, *parameters: Tensor
    ) -> Any:
        states, failed, call, checkpoints = _forward(problem, problem.every, z0, coefficients, row_inputs)
        ctx.call, ctx.checkpoints, ctx.count = call, checkpoints, len(problem.parameters()[0])
        ctx.save_for_backward(z0, coefficients, row_inputs, *parameters)
        ctx.mark_non_differentiable(failed)
        return states, failed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, saved: tuple[Tensor, ...], gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        z0, coefficients, row_inputs, *parameters = saved
        _, _, wants_coefficients, wants_rows, *_ = ctx.needs_input_grad
        to_parameters = [_zeros(parameter) for parameter in parameters]
        to_z0 = torch.empty_like(z0, memory_format=torch.contiguous_format)
        to_coefficients = _zeros(coefficients) if wants_coefficients else None
        to_rows = _zeros(row_inputs) if wants_rows else None
        ctx.call.backward(
            checkpoints=ctx.checkpoints,
            states_gradient=gradient.contiguous(),
            flow_gradients=to_parameters[: ctx.count],
            jump_gradients=to_parameters[ctx.count :],
            initial_gradient=to_z0,
            coefficient_gradient=to_coefficients,
            row_gradient=to_rows,
        )
        return None, to_z0, to_coefficients, to_rows, *to_parameters


def _zeros(like: Tensor) -> Tensor:
    return torch.zeros_like(like, memory_format=torch.contiguous_format)


def native_program(program: Program | None) -> Any:
    """The program as an object of the compiled module."""
    return None if program is None else program.native


def native_values(program: Program | None) -> list[Array]:
    """The numbers of the program's parameters."""
    return [] if program is None else program.values
