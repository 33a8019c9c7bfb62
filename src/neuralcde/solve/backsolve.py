"""Gradients by solving backwards in time: the continuous adjoint, or steps that are undone one by one."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ..engine import once_differentiable
from ..fields import FunctionField, ODEAsCDE
from ..series import ragged
from .adaptive import relative, step_factor
from .events import Events, KnotEvents, Saved
from .loop import Problem
from .parameter_snapshot import ModuleBundle
from .solution import SolveError
from .step import Place, runge_kutta, time_bounds
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
        every = torch.arange(len(events.time), device=events.time.device)
        since = events.time - problem.start[ragged.series_of_rows(events.offsets)]
        times = since, events.length[every], events.duration[every]
    fixed = _Fixed(problem, forward, steps if isinstance(steps, Adaptive) else None, together, list(trained), every)
    states, failed = _Adjoint.apply(fixed, problem.z0, problem.coefficients, inputs, *times, *trained.values())  # type: ignore[no-untyped-call]
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
        events, moved = _split_jumps(problem.events)
        asked = problem.events.offsets[:-1][ragged.series_of_rows(problem.saved.offsets)] + problem.saved.event
        before_jumps = asked[:0]
        if moved is not None:
            asked, before_jumps = moved[asked], (events.jump_row >= 0).nonzero()[:, 0] - 1
        # Keep three kinds of states, each once: those to save, the last one of each series, where the sweep starts, and
        # those before jumps, because a jump cannot be inverted.
        wanted_events = [asked, events.offsets[1:] - 1, before_jumps]
        if fixed.every:
            number = torch.arange(len(owners := ragged.series_of_rows(events.offsets))) - events.offsets[:-1][owners]
            wanted_events.append((number % fixed.every == 0).nonzero()[:, 0])
        keys, places = torch.unique(torch.cat(wanted_events), return_inverse=True)
        owner = torch.searchsorted(events.offsets, keys, right=True) - 1
        wanted = Saved(torch.searchsorted(keys, events.offsets), keys - events.offsets[:-1][owner])
        whole = dataclasses.replace(problem, z0=z0.detach(), events=events, saved=wanted)
        with torch.no_grad():
            states, failed = fixed.forward(whole)
        ctx.problem, ctx.keys, ctx.asked, ctx.moved = whole, keys, places[: len(asked)], moved
        ctx.tolerance, ctx.together, ctx.names = fixed.tolerance, fixed.together, fixed.names
        ctx.reversible = fixed.every > 0
        ctx.save_for_backward(states, z0, coefficients, inputs, since, length, duration, *parameters)
        ctx.mark_non_differentiable(failed)
        return states[ctx.asked], failed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, saved: tuple[Tensor, ...], gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        states, _, coefficients, inputs, _, _, _, *parameters = saved
        to_states = torch.zeros_like(states).index_add(0, ctx.asked, gradient)
        timed = any(ctx.needs_input_grad[4:7])
        named = dict(zip(ctx.names, parameters, strict=True))
        wanted = coefficients if ctx.needs_input_grad[2] else None
        sums = _Sums(ctx.together, named, wanted, inputs, len(ctx.problem.events.time) if timed else 0)
        to_z0 = _sweep(ctx.problem, ctx.reversible, ctx.tolerance, ctx.keys, states, to_states, sums)
        to_times = [part if ctx.moved is None else part[ctx.moved] for part in sums.times] if timed else [None] * 3
        return None, to_z0, sums.coefficients, sums.inputs, *to_times, *sums.parameters


class _Sums:
    """Gradients that the reverse sweep accumulates.

    It evaluates the modules with detached copies of their parameters. Hooks on the real parameters therefore see only
    the accumulated gradient, not that of every stage.
    """

    def __init__(
        self,
        together: ModuleBundle,
        parameters: dict[str, Tensor],
        coefficients: Tensor | None,
        inputs: Tensor,
        timed: int,
    ):
        self.together = together
        self.named = {name: parameter.detach().requires_grad_() for name, parameter in parameters.items()}
        self.leaves = list(self.named.values())
        self.coefficients = None if coefficients is None else torch.zeros_like(coefficients)
        self.inputs = torch.zeros_like(inputs)
        self.times = inputs.new_zeros(3, timed, dtype=torch.float64)  # since, length, duration of every event
        self.parameters = [torch.zeros_like(leaf) for leaf in self.leaves]

    def call(self, function: Callable[..., Tensor], *arguments: Any) -> Tensor:
        """Call a function of the field or cell with the detached parameters."""
        return self.together.call_with(self.named, function, *arguments)  # type: ignore[no-any-return]

    def add_stage(
        self,
        weight: float,
        piece: Tensor,
        at: Tensor,
        to_pieces: Tensor | None,
        to_times: Tensor | None,
        *rest: Tensor | None,
    ) -> None:
        """Add the gradients from one stage of a reverse step, times the weight of the stage."""
        if to_pieces is not None and self.coefficients is not None:
            self.coefficients.index_add_(0, piece, -weight * to_pieces)
        if to_times is not None and self.times.numel():
            self.times.index_add_(1, at, -weight * to_times)
        self.add(rest, -weight)

    def add(self, gradients: tuple[Tensor | None, ...], factor: float) -> None:
        """Add `factor` times the gradients with respect to the parameters."""
        for total, part in zip(self.parameters, gradients, strict=True):
            if part is not None:
                total.add_(part, alpha=factor)


def _split_jumps(events: Events) -> tuple[Events, Int[Tensor, "events"] | None]:
    """Insert an event before each jump, so that the state before the jump can be saved.

    Returns
    -------
    Events
        The events with the inserted ones, detached.
    Tensor or None
        The new index of each original event; None if there are no jumps and nothing was inserted.
    """
    if isinstance(events, KnotEvents) and events.jumps is None:
        return events.detached(), None
    every = torch.arange(len(events.time), device=events.time.device)
    columns = (events.piece, events.start, events.length, events.duration, events.time, events.jump_row)
    events = Events(events.offsets, *(column[every].detach() for column in columns))
    jumping = events.jump_row >= 0
    if not bool(jumping.any()):
        return events, None
    # An event with a jump becomes two: an inserted one without step or jump, then itself.
    ends = (1 + jumping.long()).cumsum(0)
    moved = ends - 1
    total = int(ends[-1])

    def spread(values: Tensor, fill: float) -> Tensor:
        return values.new_full((total,), fill).index_copy(0, moved, values)

    bounds = torch.nn.functional.pad(ends, (1, 0))
    split = Events(
        bounds[events.offsets],
        spread(events.piece, -1),
        spread(events.start, 0.0),
        spread(events.length, 0.0),
        spread(events.duration, 0.0),
        events.time[ragged.series_of_rows(bounds)],
        spread(events.jump_row, -1),
    )
    return split, moved


def _sweep(
    problem: Problem,
    reversible: bool,
    tolerance: Adaptive | None,
    keys: Int[Tensor, "kept"],
    states: Float[Tensor, "kept hidden"],
    to_states: Float[Tensor, "kept hidden"],
    sums: _Sums,
) -> Float[Tensor, "series hidden"]:
    """The reverse sweep, from the last event of every series to its first; returns the gradient with respect to z0.

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
        a = torch.where(there[:, None], a + to_states[kept], a)
        # A jump is undone by its kept input state; the adjoint goes through it by a vector-Jacobian product.
        jumping = (events.jump_row[at] >= 0).nonzero()[:, 0]
        if len(jumping):
            before = states[torch.searchsorted(keys, at[jumping] - 1)]
            z = z.index_copy(0, jumping, before)
            a = a.index_copy(
                0, jumping, _pull_back_jump(problem, before, events.jump_row[at[jumping]], a[jumping], sums)
            )
        if e > 0 and problem.term is not None and reversible:
            kept = torch.searchsorted(keys, at - 1).clamp(max=len(keys) - 1)
            known = torch.where((keys[kept] == at - 1)[:, None], states[kept], torch.nan)
            z, a = _undo(problem, z, a, at - 1, series, known, sums)
        elif e > 0 and problem.term is not None:
            z, a = _back_over(problem, tolerance, z, a, at - 1, series, sums)
    back = torch.empty_like(order)
    back[order] = torch.arange(len(order), device=order.device)
    return a[back]


def _pull_back_jump(problem: Problem, before: Tensor, row: Tensor, a: Tensor, sums: _Sums) -> Tensor:
    """The adjoint before jumps, given the adjoint `a` after them."""
    assert problem.jump is not None
    with torch.enable_grad():
        z, x = before.detach().requires_grad_(), problem.jump.inputs.detach()[row].requires_grad_()
        after = sums.call(problem.jump.cell, z, x)
    leaves = [z, x, *sums.leaves]
    _check_known(after, leaves)
    to_z, to_x, *rest = torch.autograd.grad(after, leaves, a, allow_unused=True)
    sums.add(tuple(rest), 1.0)
    if to_x is not None:
        sums.inputs.index_add_(0, row, to_x)
    return torch.zeros_like(a) if to_z is None else to_z


def _check_known(result: Tensor, leaves: list[Tensor]) -> None:
    """Raise `ValueError` if the result depends on a tensor that requires gradients and is not one of the leaves.

    The adjoint method has an integral for each parameter and for the path; the gradient of any other tensor would be
    dropped.
    """
    known = {*map(id, leaves)}
    nodes, seen = [result.grad_fn], set()
    while nodes:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        leaf = getattr(node, "variable", None)  # of the nodes at which gradients are accumulated
        if leaf is not None and id(leaf) not in known:
            raise ValueError(
                "this gradient method reaches only the parameters of the field and of the cell, but one of them uses "
                f"another tensor of shape {tuple(leaf.shape)} that requires gradients. Register it as an nn.Parameter "
                'of the module, detach it, or use gradient="checkpoint".'
            )
        nodes += [before for before, _ in node.next_functions]


def _back_over(
    problem: Problem,
    tolerance: Adaptive | None,
    z: Tensor,
    a: Tensor,
    at: Int[Tensor, "batch"],
    series: Int[Tensor, "batch"],
    sums: _Sums,
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
        new_z, new_a, error = _reverse_step(problem, *tried, sums, adding=False)
        assert error is not None
        old, new = torch.cat([z[going], a[going]], 1).abs(), torch.cat([new_z, new_a], 1).abs()
        scale = tolerance.atol + tolerance.rtol * torch.maximum(old, new)
        ratio = relative(error, scale).square().mean(1).sqrt().double()
        # A step whose result is not finite is rejected, unless the state was not finite before: no step can help it
        # then.
        ratio = torch.where(ratio.isfinite() | ~old.isfinite().all(1), ratio.nan_to_num(0.0), torch.inf)
        factor = step_factor(ratio, problem.tableau.order)
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
    sums: _Sums,
) -> tuple[Tensor, Tensor]:
    """Reverse the steps of the series in `going`, accumulating gradients; the other series stay unchanged."""
    if len(going) == 0:
        return z, a
    taken = z[going], a[going], at[going], series[going], upper, share
    new_z, new_a, _ = _reverse_step(problem, *taken, sums, adding=True)
    return z.index_copy(0, going, new_z), a.index_copy(0, going, new_a)


def _undo(
    problem: Problem,
    z: Tensor,
    a: Tensor,
    at: Int[Tensor, "batch"],
    series: Int[Tensor, "batch"],
    known: Float[Tensor, "batch hidden"],
    sums: _Sums,
) -> tuple[Tensor, Tensor]:
    """Undo the steps of the events `at`: a step back gives the state before, unless it is `known` (not NaN there).

    The step is then taken again from that state, and the adjoint goes through it by its vector-Jacobian product.
    """
    term, events, tableau, dtype = problem.term, problem.events, problem.tableau, z.dtype
    assert term is not None
    going = (events.piece[at] >= 0).nonzero()[:, 0]
    if len(going) == 0:
        return z, a
    at, series = at[going], series[going]
    piece, start = events.piece[at], events.start[at]
    times = torch.stack([events.time[at] - problem.start.detach()[series], events.length[at], events.duration[at]])
    coefficients = problem.coefficients.detach()[piece]
    bounds = time_bounds(times[0], events.time[at + 1] - problem.start.detach()[series], dtype)

    def place(pieces: Tensor, times: Tensor, sign: int) -> Place:
        since, length, duration = times
        upper = 0.0 if sign > 0 else 1.0
        columns = (start + upper * length, sign * length, since + upper * duration, sign * duration)
        low, du, t, dt = (column.to(dtype) for column in columns)
        return Place(pieces, low[:, None], du[:, None], t, dt[:, None], *bounds)

    back = place(coefficients, times, -1)
    with torch.no_grad():
        before = runge_kutta(tableau, lambda s, y: sums.call(back.increment, term, tableau.c[s], y), z[going]).end
        before = torch.where(known[going].isnan(), before, known[going])
    with torch.enable_grad():
        y, pieces, leaf = (part.detach().requires_grad_() for part in (before, coefficients, times))
        there = place(pieces, leaf, 1)
        end = runge_kutta(tableau, lambda s, y: sums.call(there.increment, term, tableau.c[s], y), y).end
    leaves = [y, pieces, leaf, *sums.leaves]
    _check_known(end, leaves)
    to_y, *rest = torch.autograd.grad(end, leaves, a[going], allow_unused=True)
    assert to_y is not None
    sums.add_stage(-1.0, piece, at, *rest)
    return z.index_copy(0, going, before), a.index_copy(0, going, to_y)


def _reverse_step(
    problem: Problem,
    z: Tensor,
    a: Tensor,
    at: Int[Tensor, "batch"],
    series: Int[Tensor, "batch"],
    upper: Float[Tensor, "batch"],
    share: Float[Tensor, "batch"],
    sums: _Sums,
    *,
    adding: bool,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """One Runge-Kutta step of [z, a] backwards in time.

    The step starts at fraction `upper` of the event's step and goes back by the fraction `share` of it. At every stage
    the increment of z is that of the term over a step of negative length, and the increment of a is minus its
    vector-Jacobian product with a. The same vector-Jacobian products with respect to the path, the times and the
    parameters, summed with the weights of the stages, are the integrals of the adjoint method. If `adding`, they are
    added to `sums`. Otherwise the step is only tried, and its error is estimated.
    """
    term, events, tableau, dtype = problem.term, problem.events, problem.tableau, z.dtype
    assert term is not None
    piece, start = events.piece[at], events.start[at]
    times = torch.stack([events.time[at] - problem.start.detach()[series], events.length[at], events.duration[at]])
    coefficients = problem.coefficients.detach()[piece]
    bounds = time_bounds(times[0], events.time[at + 1] - problem.start.detach()[series], dtype)

    def increment(stage: int, both: Tensor) -> Tensor:
        y, b = both.chunk(2, dim=1)
        with torch.enable_grad():
            y, pieces, leaf = (part.detach().requires_grad_() for part in (y, coefficients, times))
            since, length, duration = leaf
            place = Place(
                pieces,
                (start + upper * length)[:, None].to(dtype),
                (-share * length)[:, None].to(dtype),
                (since + upper * duration).to(dtype),
                (-share * duration)[:, None].to(dtype),
                *bounds,
            )
            change = sums.call(place.increment, term, tableau.c[stage], y)
        leaves = [y, pieces, leaf, *sums.leaves] if adding else [y]
        if adding:
            _check_known(change, leaves)
        to_y, *rest = torch.autograd.grad(change, leaves, b, allow_unused=True)
        if adding:
            sums.add_stage(tableau.b[stage], piece, at, *rest)
        return torch.cat([change.detach(), torch.zeros_like(b) if to_y is None else -to_y], dim=1)

    stepped = runge_kutta(tableau, increment, torch.cat([z, a], dim=1), with_error=not adding)
    new_z, new_a = stepped.end.chunk(2, dim=1)
    return new_z, new_a, stepped.error
