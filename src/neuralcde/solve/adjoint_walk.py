"""Gradients by a walk back along the pieces, on the native engine: the continuous adjoint, or reversed steps."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ..engine import WalkProblem, once_differentiable
from .backsolve import too_many_steps_back
from .run import Programs
from .walks import Walk, Walker


def adjoint_walk(
    walker: Walker, programs: Programs, found: Walk, *, at_rows: bool
) -> tuple[Float[Tensor, "series hidden"], Float[Tensor, "rows hidden"] | None]:
    """The last states and those at the rows, differentiable by a walk back on the native engine."""
    flow, jump = (() if program is None else program.parameters for program in programs)
    back = _Back(walker.problem(programs), found, len(flow), at_rows)
    sources = (walker.z0, walker.path.coefficients, walker.inputs, *flow, *jump)
    last, rows = _WalkBack.apply(back, *sources)  # type: ignore[no-untyped-call]
    # As in the plain loop: of a series of one row, it is the state before the piece that leads nowhere.
    return (rows[walker.path.series.offsets[1:] - 1], rows) if at_rows else (last, None)


@dataclass(frozen=True, eq=False)
class _Back:
    """Arguments of the walk back that are not differentiated."""

    problem: WalkProblem
    found: Walk
    flow_parameters: int
    at_rows: bool


class _WalkBack(torch.autograd.Function):
    """The result of a walk; its backward walks back."""

    @staticmethod
    def forward(ctx: Any, back: _Back, z0: Tensor, coefficients: Tensor, inputs: Tensor, *parameters: Tensor) -> Any:
        found = back.found
        ctx.back = back
        ctx.save_for_backward(z0, coefficients, inputs, *parameters)
        rows = found.at_rows if back.at_rows and found.at_rows is not None else found.last.new_zeros(0)
        return found.last.clone(), rows.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, saved: tuple[Tensor, ...], to_last: Tensor, to_rows: Tensor) -> tuple[Tensor | None, ...]:
        z0, coefficients, inputs, *parameters = saved
        back: _Back = ctx.back
        count, found = back.flow_parameters, back.found
        _, _, wants_coefficients, wants_inputs, *_ = ctx.needs_input_grad
        rule = back.problem.rule | ({"smooth": 0.0} if "smooth" in back.problem.rule else {})
        problem = dataclasses.replace(back.problem, rule=rule)
        bound = problem.bind(z0, coefficients, inputs)
        sums = [torch.zeros_like(x, memory_format=torch.contiguous_format) for x in parameters]
        to_z0 = torch.zeros_like(z0, memory_format=torch.contiguous_format)
        to_coefficients, to_inputs = (
            torch.zeros_like(x, memory_format=torch.contiguous_format) if wanted else None
            for x, wanted in ((coefficients, wants_coefficients), (inputs, wants_inputs))
        )
        counts = torch.zeros(len(z0), 5, dtype=torch.int64)
        bound.backward(
            last=found.last,
            at_rows=found.at_rows if back.at_rows else None,
            before_jumps=found.before_jumps,
            last_gradient=to_last.contiguous(),
            rows_gradient=to_rows.contiguous() if back.at_rows else None,
            flow_gradients=sums[:count],
            jump_gradients=sums[count:],
            initial_gradient=to_z0,
            coefficient_gradient=to_coefficients,
            input_gradient=to_inputs,
            counts=counts,
            stored_states=found.stored,
        )
        stuck = int(counts[:, 4].sum())
        if stuck:
            raise too_many_steps_back(stuck, len(z0), rule["max_steps"])
        return None, to_z0, to_coefficients, to_inputs, *sums
