"""Gradients by solving backwards in time: the continuous adjoint, or steps that are undone one by one."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ..engine import once_differentiable
from ..fields import FunctionField, ODEAsCDE
from ..series import ragged
from .adaptive import relative, step_factor
from .events import Events, Saved, SplitEvents, split_jumps
from .loop import Problem
from .parameter_snapshot import ModuleBundle
from .reverse_steps import Sums, check_known, reverse_step, undo_step
from .solution import SolveError
from .step import Place
from .steps import Adaptive

WRAPPERS = ((FunctionField, "function"), (ODEAsCDE, "h"))  # fields around a user's callable, and its attribute

Forward = Callable[[Problem], tuple[Tensor, Tensor]]


def solve_with_adjoint(
    problem: Problem, forward: Forward, steps: object, every: int = 0
) -> tuple[Float[Tensor, "saved hidden"], Int[Tensor, "series"]]:
    """The states to save, differentiable by the continuous adjoint; and for each series its failed event, or -1.

    With `every` > 0 the steps are undone and differentiated one by one, and every `every`-th state is kept too.
    The forward pass may run on either engine. It keeps only the states to save, the last state of each series, and the
    states before jumps.
    """
    functions = [getattr(part, name) for kind, name in WRAPPERS for part in problem.modules if isinstance(part, kind)]
    if not all(isinstance(function, nn.Module) for function in functions):
        raise ValueError(
            f'gradient="{"reversible" if every else "backsolve"}" needs the parameters of the field, but the field is '
            'a plain function; make it an nn.Module, or use gradient="checkpoint".'
        )
    together = ModuleBundle(problem.modules)
    trained = {name: parameter for name, parameter in together.named_parameters() if parameter.requires_grad}
    inputs = problem.z0.new_zeros(0, 0) if problem.jump is None else problem.jump.inputs
    events = problem.events
    times = (problem.z0.new_zeros(0),) * 3
    if events.time.requires_grad:
        whole = torch.arange(len(events.time), device=events.time.device)
        since = events.time - problem.start[ragged.series_of_rows(events.offsets)]
        times = since, events.length[whole], events.duration[whole]
    fixed = _Fixed(problem, forward, steps if isinstance(steps, Adaptive) else None, together, list(trained), every)
    sources = (problem.z0, problem.coefficients, inputs, *times, *trained.values())
    if not any(source.requires_grad for source in sources):  # else the backward pass checks
        _check_tensors(problem, together)
    states, failed = _Adjoint.apply(fixed, *sources)  # type: ignore[no-untyped-call]
    return states, failed


@dataclasses.dataclass(frozen=True, eq=False)
class _Fixed:
    """Arguments of the solve that are not differentiated."""

    problem: Problem
    forward: Forward
    tolerance: Adaptive | None
    together: ModuleBundle
    names: list[str]
    every: int


class _Adjoint(torch.autograd.Function):
    """The solve as an autograd function whose backward is the reverse sweep."""

    @staticmethod
    def forward(
        ctx: Any,
        fixed: _Fixed,
        z0: Tensor,
        coefficients: Tensor,
        inputs: Tensor,
        since: Tensor,
        length: Tensor,
        duration: Tensor,
        *parameters: Tensor,
    ) -> Any:
        problem = fixed.problem
        events = split_jumps(problem.events)
        split = events if isinstance(events, SplitEvents) else None
        asked = problem.events.offsets[:-1][ragged.series_of_rows(problem.saved.offsets)] + problem.saved.event
        before_jumps = asked[:0]
        if split is not None:
            asked, before_jumps = split.moved(asked), split.inserted
        # Keep three kinds of states, each once: those to save, the last one of each series, where the sweep starts, and
        # those before jumps, because a jump cannot be inverted.
        wanted_events = [asked, events.offsets[1:] - 1, before_jumps]
        stored = _every_step(problem, events, fixed.every) if fixed.every else None
        if stored is not None:
            wanted_events.append(stored)
        keys, places = torch.unique(torch.cat(wanted_events), return_inverse=True)
        owner = torch.searchsorted(events.offsets, keys, right=True) - 1
        wanted = Saved(torch.searchsorted(keys, events.offsets), keys - events.offsets[:-1][owner])
        whole = dataclasses.replace(problem, z0=z0.detach(), events=events, saved=wanted)
        with torch.no_grad():
            states, failed = fixed.forward(whole)
        ctx.problem, ctx.keys, ctx.asked, ctx.split = whole, keys, places[: len(asked)], split
        ctx.tolerance, ctx.together, ctx.names = fixed.tolerance, fixed.together, fixed.names
        ctx.stored = stored
        ctx.save_for_backward(states, z0, coefficients, inputs, since, length, duration, *parameters)
        ctx.mark_non_differentiable(failed)
        return states[ctx.asked], failed if split is None else _original_events(failed, split)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, saved: tuple[Tensor, ...], gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        states, _, coefficients, inputs, _, _, _, *parameters = saved
        # Gradients come to the states that were asked for. The states stored for the sweep alone have none: they share
        # the last row, of zeros.
        received, places = torch.unique(ctx.asked, return_inverse=True)
        to_states = states.new_zeros(len(received) + 1, states.shape[1]).index_add(0, places, gradient)
        row_of = torch.full((len(states),), len(received), dtype=torch.int64, device=states.device)
        row_of[received] = torch.arange(len(received), device=states.device)
        timed = any(ctx.needs_input_grad[4:7])
        named = dict(zip(ctx.names, parameters, strict=True))
        wanted = coefficients if ctx.needs_input_grad[2] else None
        sums = Sums(ctx.together, named, wanted, inputs, len(ctx.problem.events.time) if timed else 0)
        with ctx.problem.one_thread():
            to_z0 = _sweep(ctx.problem, ctx.stored, ctx.tolerance, ctx.keys, states, to_states, row_of, sums)
        to_times: list[Tensor | None] = [None] * 3
        if timed:
            split = ctx.split
            at = None if split is None else split.moved(split.original.numbers())
            to_times = [part if at is None else part[at] for part in sums.times]
        return None, to_z0, sums.coefficients, sums.inputs, *to_times, *sums.parameters


def _original_events(failed: Int[Tensor, "series"], split: SplitEvents) -> Int[Tensor, "series"]:
    """The failed events as numbers of the original events."""
    at, _ = split.originals(split.offsets[:-1] + failed.clamp(min=0))
    return torch.where(failed >= 0, at - split.original.offsets[:-1], failed)


def _check_tensors(problem: Problem, together: ModuleBundle) -> None:
    """Raise `ValueError` if the field or the cell uses a tensor whose gradient the adjoint would drop.

    One step and one jump of a single series show it.
    """
    sums = Sums(together, {}, None, problem.z0.new_zeros(0, 0), 0)
    z = problem.z0.detach()
    with torch.enable_grad(), torch.random.fork_rng(devices=[]), problem.one_thread():
        firsts = problem.events.offsets[:-1]
        moving = (problem.events.piece[firsts] >= 0).nonzero()[:1, 0]
        if problem.term is not None and len(moving):
            place = Place(*(part.detach() for part in problem.place(firsts[moving], moving)))
            increment = functools.partial(sums.call, place.increment, problem.term)
            check_known(problem.solver.step(increment, z[moving]), sums.leaves)
        if problem.jump is not None and len(problem.jump.inputs):
            inputs = problem.jump.inputs.detach()[:1]
            check_known(sums.call(problem.jump.after, z[:1], inputs), sums.leaves)


def _every_step(problem: Problem, events: Events, every: int) -> Int[Tensor, "kept"]:
    """The events with steps number 0, `every`, 2 `every`, ... of their series."""
    original = problem.events
    if problem.term is None:
        return original.offsets.new_zeros(0)
    # A step begins at every event but the last one of its series.
    counts = (original.counts - 1 + every - 1) // every
    kept = ragged.offsets_of(counts)
    owner = ragged.series_of_rows(kept)
    at = original.offsets[:-1][owner] + every * ragged.places_in_series(kept)
    return events.moved(at) if isinstance(events, SplitEvents) else at


def _sweep(
    problem: Problem,
    stored: Int[Tensor, "stored"] | None,
    tolerance: Adaptive | None,
    keys: Int[Tensor, "kept"],
    states: Float[Tensor, "kept hidden"],
    to_states: Float[Tensor, "received hidden"],
    row_of: Int[Tensor, "kept"],
    sums: Sums,
) -> Float[Tensor, "series hidden"]:
    """The reverse sweep, from the last event of every series to its first; returns the gradient with respect to z0.

    Row `row_of[k]` of `to_states` is the incoming gradient of the kept state k. With `stored`, events whose states are
    kept, steps are undone one by one.
    Iteration e handles event number e of every series that has one. With the series sorted by length, longest first,
    the active ones are always a prefix: shorter series join at their own last event.
    """
    events = problem.events
    order = events.counts.argsort(descending=True, stable=True)
    counts, firsts = events.counts[order], events.offsets[:-1][order]
    longest = int(counts[0]) if len(counts) else 0
    z = a = problem.z0.new_empty(0, problem.z0.shape[1])
    for e in range(longest - 1, -1, -1):
        active = int((counts > e).sum())
        joining = active - len(z)
        z, a = (torch.cat([part, part.new_zeros(joining, part.shape[1])]) for part in (z, a))
        at, series = firsts[:active] + e, order[:active]
        # Where the forward pass kept a state, restart from it, which removes the drift of the backward solve, and add
        # the incoming gradient to the adjoint. Every series joins at its last event, which is always kept.
        kept = torch.searchsorted(keys, at).clamp(max=len(keys) - 1)
        there = keys[kept] == at
        z = torch.where(there[:, None], states[kept], z)
        a = torch.where(there[:, None], a + to_states[row_of[kept]], a)
        # A jump is undone by its kept input state; the adjoint goes through it by a vector-Jacobian product.
        jumping = (events.jump_row[at] >= 0).nonzero()[:, 0]
        if len(jumping):
            before = states[torch.searchsorted(keys, at[jumping] - 1)]
            z = z.index_copy(0, jumping, before)
            a = a.index_copy(
                0, jumping, _pull_back_jump(problem, before, events.jump_row[at[jumping]], a[jumping], sums)
            )
        if e > 0 and problem.term is not None and stored is not None:
            known = states[torch.searchsorted(keys, at - 1).clamp(max=len(keys) - 1)]
            known = torch.where(torch.isin(at - 1, stored)[:, None], known, torch.nan)
            z, a = undo_step(problem, z, a, at - 1, series, known, sums)
        elif e > 0 and problem.term is not None:
            z, a = _back_over(problem, tolerance, z, a, at - 1, series, sums)
    back = torch.empty_like(order)
    back[order] = torch.arange(len(order), device=order.device)
    return a[back]


def _pull_back_jump(problem: Problem, before: Tensor, row: Tensor, a: Tensor, sums: Sums) -> Tensor:
    """The adjoint before jumps, given the adjoint `a` after them."""
    assert problem.jump is not None
    with torch.enable_grad():
        z, x = before.detach().requires_grad_(), problem.jump.inputs.detach()[row].requires_grad_()
        after = sums.call(problem.jump.after, z, x)
    leaves = [z, x, *sums.leaves]
    check_known(after, leaves)
    to_z, to_x, *rest = torch.autograd.grad(after, leaves, a, allow_unused=True)
    sums.add(tuple(rest), 1.0)
    if to_x is not None:
        sums.inputs.index_add_(0, row, to_x)
    return torch.zeros_like(a) if to_z is None else to_z


def _back_over(
    problem: Problem,
    tolerance: Adaptive | None,
    z: Tensor,
    a: Tensor,
    at: Int[Tensor, "batch"],
    series: Int[Tensor, "batch"],
    sums: Sums,
) -> tuple[Tensor, Tensor]:
    """Reverse the step of one event: as a single step, or with adaptive steps controlled by the error of (z, a)."""
    going = (problem.events.piece[at] >= 0).nonzero()[:, 0]
    remaining, size = (torch.ones(len(z), dtype=torch.float64, device=z.device) for _ in range(2))
    if tolerance is None:
        return _reverse(problem, z, a, at, series, going, remaining[going], size[going], sums)
    # As in `adaptive_grid`: `remaining` is the fraction of the event's step still to be reversed, `size` the next one
    # to try. A step is tried without accumulating gradients, and repeated with them if it is accepted.
    for _ in range(tolerance.max_steps):
        if len(going) == 0:
            return z, a
        left = remaining[going]
        share = torch.where(size[going] >= left * (1 - 1e-9), left, size[going])
        tried = z[going], a[going], at[going], series[going], left, share
        new_z, new_a, error = reverse_step(problem, *tried, sums, adding=False)
        assert error is not None
        old, new = torch.cat([z[going], a[going]], 1).abs(), torch.cat([new_z, new_a], 1).abs()
        scale = tolerance.atol + tolerance.rtol * torch.maximum(old, new)
        ratio = relative(error, scale).square().mean(1).sqrt().double()
        # A step whose result is not finite is rejected, unless the state was not finite before: no step can help it
        # then.
        ratio = torch.where(ratio.isfinite() | ~old.isfinite().all(1), ratio.nan_to_num(0.0), torch.inf)
        factor = step_factor(ratio, problem.solver.order)
        size[going] = share * factor
        good = ratio <= 1
        done = going[good]
        z, a = _reverse(problem, z, a, at, series, done, remaining[done], share[good], sums)
        remaining[done] -= share[good]
        going = going[remaining[going] > 0]
    if len(going):
        raise too_many_steps_back(len(going), len(problem.z0), tolerance.max_steps)
    return z, a


def too_many_steps_back(stuck: int, series: int, max_steps: int) -> SolveError:
    """The error of a backward solve that needs too many steps."""
    return SolveError(
        f"{stuck} of {series} series need more than {max_steps} backward steps for one piece of the path.",
        'Fields that contract forward in time explode backward in time: use gradient="checkpoint".',
    )


def _reverse(
    problem: Problem,
    z: Tensor,
    a: Tensor,
    at: Int[Tensor, "batch"],
    series: Int[Tensor, "batch"],
    going: Int[Tensor, "going"],
    upper: Float[Tensor, "going"],
    share: Float[Tensor, "going"],
    sums: Sums,
) -> tuple[Tensor, Tensor]:
    """Reverse the steps of the series in `going`, accumulating gradients; the other series stay unchanged."""
    if len(going) == 0:
        return z, a
    taken = z[going], a[going], at[going], series[going], upper, share
    new_z, new_a, _ = reverse_step(problem, *taken, sums, adding=True)
    return z.index_copy(0, going, new_z), a.index_copy(0, going, new_a)
