"""One step backwards in time, of the continuous adjoint or of a reversible method, in plain torch."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from .loop import Problem
from .parameter_snapshot import ModuleBundle
from .solvers.tableau import Tableau, runge_kutta
from .step import Place, time_bounds


class Sums:
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


def check_known(result: Tensor, leaves: list[Tensor]) -> None:
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


def reverse_step(
    problem: Problem,
    z: Tensor,
    a: Tensor,
    at: Int[Tensor, "batch"],
    series: Int[Tensor, "batch"],
    upper: Float[Tensor, "batch"],
    share: Float[Tensor, "batch"],
    sums: Sums,
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
    term, events, tableau, dtype = problem.term, problem.events, problem.solver, z.dtype
    assert term is not None
    assert isinstance(tableau, Tableau)
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
            check_known(change, leaves)
        to_y, *rest = torch.autograd.grad(change, leaves, b, allow_unused=True)
        if adding:
            sums.add_stage(tableau.b[stage], piece, at, *rest)
        return torch.cat([change.detach(), torch.zeros_like(b) if to_y is None else -to_y], dim=1)

    stepped = runge_kutta(tableau, increment, torch.cat([z, a], dim=1), with_error=not adding)
    new_z, new_a = stepped.end.chunk(2, dim=1)
    return new_z, new_a, stepped.error


def undo_step(
    problem: Problem,
    z: Tensor,
    a: Tensor,
    at: Int[Tensor, "batch"],
    series: Int[Tensor, "batch"],
    known: Float[Tensor, "batch hidden"],
    sums: Sums,
) -> tuple[Tensor, Tensor]:
    """Undo the steps of the events `at`: a step back gives the state before, unless it is `known` (not NaN there).

    The step is then taken again from that state, and the adjoint goes through it by its vector-Jacobian product.
    """
    term, events, solver, dtype = problem.term, problem.events, problem.solver, z.dtype
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
        before = solver.step(functools.partial(sums.call, back.increment, term), z[going])
        before = torch.where(known[going].isnan(), before, known[going])
    with torch.enable_grad():
        y, pieces, leaf = (part.detach().requires_grad_() for part in (before, coefficients, times))
        there = place(pieces, leaf, 1)
        end = solver.step(functools.partial(sums.call, there.increment, term), y)
    leaves = [y, pieces, leaf, *sums.leaves]
    check_known(end, leaves)
    to_y, *rest = torch.autograd.grad(end, leaves, a[going], allow_unused=True)
    assert to_y is not None
    sums.add_stage(-1.0, piece, at, *rest)
    return z.index_copy(0, going, before), a.index_copy(0, going, to_y)
