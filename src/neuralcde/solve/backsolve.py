"""The continuous adjoint: z and its adjoint solved backwards."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ..engine import Events, Saved
from ..series import ragged
from .adaptive import SAFETY, SHRINK
from .loop import Problem, drive_at
from .steps import Adaptive

Forward = Callable[[Problem], tuple[Tensor, Tensor]]


def solve_with_adjoint(
    problem: Problem, forward: Forward, steps: object
) -> tuple[Float[Tensor, "saved hidden"], Int[Tensor, series]]:
    """The states asked for, differentiable by the continuous adjoint.

    The forward pass may run on any engine; nothing is kept of it but the states asked for and those before jumps.
    """
    modules = [part for part in (problem.flow and problem.flow.field, problem.jump and problem.jump.cell) if part]
    parameters = [p for module in modules for p in module.parameters() if p.requires_grad]
    if any(not isinstance(getattr(module, "function", module), nn.Module) for module in modules):
        raise ValueError(
            'gradient="backsolve" must know the parameters, but the field is a function; '
            'make it an nn.Module, or use gradient="checkpoint".'
        )
    inputs = problem.z0.new_zeros(0, 0) if problem.jump is None else problem.jump.inputs
    coefficients = problem.path.coefficients
    tolerance = steps if isinstance(steps, Adaptive) else None
    states, failed = _Adjoint.apply(problem, forward, tolerance, problem.z0, coefficients, inputs, *parameters)  # type: ignore[no-untyped-call]
    return states, failed


class _Adjoint(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        problem: Problem,
        forward: Forward,
        tolerance: Adaptive | None,
        z0: Tensor,
        coefficients: Tensor,
        inputs: Tensor,
        *parameters: Tensor,
    ) -> Any:
        events, moved = _split_jumps(problem.events)
        asked = moved[problem.events.offsets[:-1][ragged.series_of_rows(problem.saved.offsets)] + problem.saved.event]
        before_jumps = (events.jump_row >= 0).nonzero()[:, 0] - 1
        keys, places = torch.unique(torch.cat([asked, events.offsets[1:] - 1, before_jumps]), return_inverse=True)
        owner = torch.searchsorted(events.offsets, keys, right=True) - 1
        wanted = Saved(torch.searchsorted(keys, events.offsets), keys - events.offsets[:-1][owner])
        whole = dataclasses.replace(problem, z0=z0.detach(), events=events, saved=wanted)
        with torch.no_grad():
            states, failed = forward(whole)
        ctx.problem, ctx.tolerance, ctx.keys, ctx.asked = whole, tolerance, keys, places[: len(asked)]
        ctx.save_for_backward(states, coefficients, inputs, *parameters)
        ctx.mark_non_differentiable(failed)
        return states[ctx.asked], failed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        states, coefficients, inputs, *parameters = ctx.saved_tensors
        to_states = torch.zeros_like(states).index_add(0, ctx.asked, gradient)
        sums = _Sums(coefficients, inputs, parameters)
        to_z0 = _sweep(ctx.problem, ctx.tolerance, ctx.keys, states, to_states, sums)
        return None, None, None, to_z0, sums.coefficients, sums.inputs, *sums.parameters


class _Sums:
    """Gradients that gather up along the way."""

    def __init__(self, coefficients: Tensor, inputs: Tensor, parameters: list[Tensor]):
        self.leaves = parameters
        self.coefficients, self.inputs = torch.zeros_like(coefficients), torch.zeros_like(inputs)
        self.parameters = [torch.zeros_like(p) for p in parameters]

    def add(self, gradients: tuple[Tensor | None, ...], factor: float) -> None:
        for total, part in zip(self.parameters, gradients, strict=True):
            if part is not None:
                total.add_(part, alpha=factor)


def _split_jumps(events: Events) -> tuple[Events, Int[Tensor, events]]:
    """Events with one more before each jump, so that the state there is one that can be kept; and where each went."""
    ends = (1 + (events.jump_row >= 0).long()).cumsum(0)
    moved = ends - 1
    total = int(ends[-1]) if len(ends) else 0

    def spread(values: Tensor, fill: float) -> Tensor:
        return values.new_full((total,), fill).index_copy(0, moved, values)

    time = torch.zeros(total, dtype=torch.float64, device=moved.device)
    split = Events(
        torch.nn.functional.pad(ends, (1, 0))[events.offsets],
        spread(events.piece, -1),
        spread(events.start, 0.0),
        spread(events.length, 0.0),
        spread(events.duration, 0.0),
        time.index_copy(0, moved, events.time),
        spread(events.jump_row, -1),
    )
    return split, moved


def _sweep(
    problem: Problem,
    tolerance: Adaptive | None,
    keys: Int[Tensor, kept],
    states: Float[Tensor, "kept hidden"],
    to_states: Float[Tensor, "kept hidden"],
    sums: _Sums,
) -> Float[Tensor, "series hidden"]:
    """From the end of every series to its start; the longest series first, the others join when their turn comes."""
    events = problem.events
    order = events.counts.argsort(descending=True, stable=True)
    counts, firsts = events.counts[order], events.offsets[:-1][order]
    longest = int(counts[0]) if len(counts) else 0
    place = torch.full((len(events.piece),), -1, dtype=torch.int64, device=keys.device)
    place[keys] = torch.arange(len(keys), device=keys.device)
    z = a = problem.z0.new_empty(0, problem.z0.shape[1])
    for e in range(longest - 1, -1, -1):
        active = int((counts > e).sum())
        joining = active - len(z)
        z, a = (torch.cat([part, part.new_zeros(joining, part.shape[1])]) for part in (z, a))
        at, series = firsts[:active] + e, order[:active]
        kept = place[at]
        there = kept >= 0
        z = torch.where(there[:, None], states[kept], z)
        a = torch.where(there[:, None], a + to_states[kept], a)
        jumping = (events.jump_row[at] >= 0).nonzero()[:, 0]
        if len(jumping):
            before = states[place[at[jumping] - 1]]
            z = z.index_copy(0, jumping, before)
            a = a.index_copy(
                0, jumping, _pull_back_jump(problem, before, events.jump_row[at[jumping]], a[jumping], sums)
            )
        if e > 0 and problem.flow is not None:
            z, a = _back_over(problem, tolerance, z, a, at - 1, series, sums)
    back = torch.empty_like(order)
    back[order] = torch.arange(len(order), device=order.device)
    return a[back]


def _pull_back_jump(problem: Problem, before: Tensor, row: Tensor, a: Tensor, sums: _Sums) -> Tensor:
    assert problem.jump is not None
    with torch.enable_grad():
        z, x = before.detach().requires_grad_(), problem.jump.inputs.detach()[row].requires_grad_()
        after = problem.jump.cell(z, x)
    to_z, to_x, *rest = torch.autograd.grad(after, [z, x, *sums.leaves], a, allow_unused=True)
    sums.add(tuple(rest), 1.0)
    if to_x is not None:
        sums.inputs.index_add_(0, row, to_x)
    return torch.zeros_like(a) if to_z is None else to_z


def _back_over(
    problem: Problem,
    tolerance: Adaptive | None,
    z: Tensor,
    a: Tensor,
    at: Int[Tensor, batch],
    series: Int[Tensor, batch],
    sums: _Sums,
) -> tuple[Tensor, Tensor]:
    """Over one event's step in reverse: at once, or in as many parts as the error of (z, a) asks for."""
    if tolerance is None:
        z, a, _ = _reverse_step(problem, z, a, at, series, torch.ones(len(z)).to(z), torch.ones(len(z)).to(z), sums)
        return z, a
    remaining, size = torch.ones(len(z)).to(z), torch.ones(len(z)).to(z)
    for _ in range(tolerance.max_steps):
        here = (remaining > 0).nonzero()[:, 0]
        if len(here) == 0:
            break
        share = torch.minimum(size[here], remaining[here])
        tried = (z[here], a[here], at[here], series[here], remaining[here], share)
        new_z, new_a, error = _reverse_step(problem, *tried, None)
        old, new = torch.cat([z[here], a[here]], 1).abs(), torch.cat([new_z, new_a], 1).abs()
        ratio = (error / (tolerance.atol + tolerance.rtol * torch.maximum(old, new))).square().mean(1).sqrt()
        ratio = torch.where(ratio.isfinite(), ratio, torch.inf)
        good = (ratio <= 1).nonzero()[:, 0]
        factor = (SAFETY * ratio.clamp(min=1e-10) ** (-1 / problem.tableau.order)).clamp(SHRINK, 10.0)
        size[here] = share * factor
        if len(good):
            done = here[good]
            _reverse_step(problem, z[done], a[done], at[done], series[done], remaining[done], share[good], sums)
            z, a = z.index_copy(0, done, new_z[good]), a.index_copy(0, done, new_a[good])
            left = remaining[done] - share[good]
            remaining[done] = torch.where(left > 1e-6, left, 0.0)
    return z, a


def _reverse_step(
    problem: Problem,
    z: Tensor,
    a: Tensor,
    at: Int[Tensor, batch],
    series: Int[Tensor, batch],
    upper: Float[Tensor, batch],
    share: Float[Tensor, batch],
    sums: _Sums | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """A Runge-Kutta step of (z, a) from `upper` back by `share` of the event's step; adds to the sums where given."""
    flow, events, tableau, dtype = problem.flow, problem.events, problem.tableau, z.dtype
    assert flow is not None
    piece = events.piece[at].clamp(min=0)  # an event without a step has length 0
    whole, duration = events.length[at].to(dtype), events.duration[at].to(dtype)
    from_here = (events.start[at].to(dtype) + upper * whole)[:, None]
    length, lasting = -(share * whole)[:, None], -(share * duration)[:, None]
    since = (events.time[at] - problem.start[series]).to(dtype) + upper * duration
    coefficients = problem.path.coefficients.detach()[piece]
    stages = len(tableau.a) if sums is None and tableau.b_error else tableau.stages
    z_slopes: list[Tensor] = []
    a_slopes: list[Tensor] = []
    for stage in range(stages):
        y, b = z, a
        for weight, dz, da in zip(tableau.a[stage], z_slopes, a_slopes, strict=False):
            if weight != 0:
                y, b = y + weight * dz, b + weight * da
        node = tableau.c[stage]
        with torch.enable_grad():
            y, pieces = y.detach().requires_grad_(), coefficients.detach().requires_grad_()
            drive = drive_at(pieces, from_here + node * length, length, flow.controlled)
            change = flow.increment(since + node * lasting[:, 0], y, drive, lasting)
        leaves = [y] if sums is None else [y, pieces, *sums.leaves]
        to_y, *rest = torch.autograd.grad(change, leaves, b, allow_unused=True)
        z_slopes.append(change.detach())
        a_slopes.append(torch.zeros_like(a) if to_y is None else -to_y)
        weight = tableau.b[stage] if stage < tableau.stages else 0.0
        if sums is not None and weight != 0:
            if rest[0] is not None:
                sums.coefficients.index_add_(0, piece, -weight * rest[0])
            sums.add(tuple(rest[1:]), -weight)
    steps = zip(tableau.b, z_slopes, a_slopes, strict=False)
    new_z, new_a = z, a
    for weight, dz, da in steps:
        new_z, new_a = new_z + weight * dz, new_a + weight * da
    error = torch.zeros_like(torch.cat([z, a], 1))
    if sums is None:
        for weight, dz, da in zip(tableau.b_error, z_slopes, a_slopes, strict=True):
            error = error + weight * torch.cat([dz, da], 1)
    return new_z, new_a, error
