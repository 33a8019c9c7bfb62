"""The call into the native engine, as one autograd function."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from .._native import kernels, level
from .._native.once import once_differentiable as once_differentiable_or
from .events import Events, KnotEvents, Saved
from .program import Program

MOST_STAGES = 16  # of a tableau, as engine.hpp has it
once_differentiable = once_differentiable_or(
    'this solve cannot be differentiated twice; use gradient="backprop", which differentiates the plain loop.'
)


def engine_name() -> str:
    """The engine that runs what can be lowered: `"native (level)"`, or `"torch"`."""
    return f"native ({level()})" if available() else "torch"


def available() -> bool:
    """Whether native kernels were built and `NEURALCDE_ENGINE=torch` does not turn them off."""
    return kernels is not None and os.environ.get("NEURALCDE_ENGINE", "") != "torch"


@dataclass(frozen=True, eq=False)
class _Fixed:
    """What a solve does not differentiate in."""

    flow: Program | None
    jump: Program | None
    controlled: bool
    tableau: tuple[Tensor, Tensor, Tensor]
    events: Events
    saved: Saved
    every: int  # 0: no gradients are wanted, nothing is kept
    flow_parameters: int


def solve_natively(
    flow: Program | None,
    jump: Program | None,
    *,
    controlled: bool,
    tableau: tuple[Float[Tensor, "stages stages"], Float[Tensor, "stages"], Float[Tensor, "stages"]],
    z0: Float[Tensor, "series hidden"],
    coefficients: Float[Tensor, "pieces powers channels"],
    row_inputs: Float[Tensor, "rows features"] | None,
    events: Events,
    saved: Saved,
    every: int,
) -> tuple[Float[Tensor, "saved hidden"], Int[Tensor, "series"]]:
    """The states asked for, and for each series the event after which its state was not finite, or -1.

    Gradients are exact for the discretisation: states are kept at every `every`-th event, stages are recomputed.
    """
    flow_parameters = () if flow is None else flow.parameters
    jump_parameters = () if jump is None else jump.parameters
    inputs = z0.new_zeros(0, 0) if row_inputs is None else row_inputs
    differentiable = (z0, coefficients, inputs, *flow_parameters, *jump_parameters)
    training = torch.is_grad_enabled() and any(x.requires_grad for x in differentiable)
    longest = int(events.counts.max()) if len(z0) else 0
    every = min(every, max(longest, 1)) if training else 0
    fixed = _Fixed(flow, jump, controlled, tableau, events, saved, every, len(flow_parameters))
    states, failed = _Solve.apply(fixed, *differentiable)  # type: ignore[no-untyped-call]
    return states, failed


class _Solve(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, fixed: _Fixed, z0: Tensor, coefficients: Tensor, row_inputs: Tensor, *parameters: Tensor
    ) -> Any:
        assert kernels is not None
        threads = torch.get_num_threads()
        lanes = kernels.lanes(z0.element_size())
        registers = 2 if len(z0) > lanes and -(-len(z0) // (2 * lanes)) >= threads else 1
        order = fixed.events.counts.argsort(descending=True, stable=True)
        checkpoints = _checkpoints(fixed.events.counts[order], fixed.every, lanes * registers, z0)
        values = [parameter.detach().contiguous() for parameter in parameters]
        call = (kernels.Solve32 if z0.dtype == torch.float32 else kernels.Solve64)(
            native_program(fixed.flow),
            values[: fixed.flow_parameters],
            native_program(fixed.jump),
            values[fixed.flow_parameters :],
            fixed.controlled,
            *fixed.tableau,
            z0.detach().contiguous(),
            coefficients.detach().contiguous(),
            row_inputs.detach().contiguous(),
            fixed.events.offsets,
            *_columns(fixed.events),
            order,
            fixed.saved.offsets,
            fixed.saved.event,
            fixed.every,
            registers,
            threads,
        )
        states = z0.new_empty(len(fixed.saved.event), z0.shape[1])
        failed = torch.full((len(z0),), -1, dtype=torch.int64)
        call.forward(states, failed, checkpoints)
        if fixed.every:
            ctx.call, ctx.fixed, ctx.checkpoints = call, fixed, checkpoints
            ctx.save_for_backward(z0, coefficients, row_inputs, *parameters)
        ctx.mark_non_differentiable(failed)
        return states, failed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, saved: tuple[Tensor, ...], gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        z0, coefficients, row_inputs, *parameters = saved
        to_parameters = [torch.zeros_like(p, memory_format=torch.contiguous_format) for p in parameters]
        to_z0 = torch.empty_like(z0, memory_format=torch.contiguous_format)
        _, _, wants_coefficients, wants_rows, *_ = ctx.needs_input_grad
        to_coefficients = _zeros(coefficients) if wants_coefficients else None
        to_rows = _zeros(row_inputs) if wants_rows else None
        count = ctx.fixed.flow_parameters
        ctx.call.backward(
            ctx.checkpoints,
            gradient.contiguous(),
            to_parameters[:count],
            to_parameters[count:],
            to_z0,
            to_coefficients,
            to_rows,
        )
        return None, to_z0, to_coefficients, to_rows, *to_parameters


def _zeros(like: Tensor) -> Tensor:
    return torch.zeros_like(like, memory_format=torch.contiguous_format)


def _columns(events: Events) -> tuple[Tensor | None, ...]:
    """Piece, start, length, duration and jump row of every event, and their times where the first four are left out."""
    if not isinstance(events, KnotEvents):
        return events.piece, events.start, events.length, events.duration.detach(), events.jump_row, None
    rows = None
    if events.jumps is not None:
        rows = torch.where(events.jumps, torch.arange(len(events.jumps)), -1)
    return None, None, None, None, rows, events.time.detach().contiguous()


def native_program(program: Program | None) -> Any:
    """The program as the kernels take it."""
    assert kernels is not None
    if program is None:
        return None
    return kernels.Program(program.ops, program.numbers, program.features, program.input, program.output)


def _checkpoints(counts: Int[Tensor, "series"], every: int, width: int, z0: Tensor) -> Tensor:
    """Room for the states kept: tiles of `width` series, as many as their longest member needs; 64-byte aligned."""
    if every == 0:
        return z0.new_empty(0)
    kept = int(((counts[::width] + every - 1) // every).sum())
    return z0.new_empty(kept * width * z0.shape[1])
