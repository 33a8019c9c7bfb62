"""Steps chosen by an error estimate, for every series by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..paths import ControlPath
from ..series import ragged
from .loop import Flow, Jump, drive_at
from .solvers import Tableau
from .steps import Adaptive, Grid, piece_start_rows

SAFETY, SHRINK, GROW, SMALLEST = 0.9, 0.2, 10.0, 1e-12


class Evaluations(NamedTuple):
    """How the flow and the jump are evaluated: the increment at (t, z, drive, duration), and the state after a jump.

    Where they are evaluated natively, the steps of a series do not depend on its batch mates.
    """

    increment: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
    jumped: Callable[[Tensor, Tensor], Tensor]
    controlled: bool

    @classmethod
    def in_torch(cls, flow: Flow, jump: Jump | None) -> Evaluations:
        """By plain torch."""
        return cls(flow.increment, _no_jump if jump is None else jump.cell, flow.controlled)


class Found(NamedTuple):
    """Accepted steps, and what it took to find them; `finished` is the number of pieces that a series got over."""

    grid: Grid
    finished: Int[Tensor, "series"]
    rejected: Int[Tensor, "series"]
    evaluations: Int[Tensor, "series"]


@torch.no_grad()
def adaptive_grid(
    path: ControlPath,
    evaluations: Evaluations,
    jump: Jump | None,
    z0: Float[Tensor, "series hidden"],
    tableau: Tableau,
    steps: Adaptive,
) -> Found:
    """Integrate with error control and record the steps; series are tried together but judged one by one."""
    if not tableau.b_error:
        raise ValueError(f"Adaptive needs a solver with an error estimate (dopri5, tsit5), got {tableau.name!r}.")
    device, count = path.device, len(path)
    firsts, ends = path.piece_offsets[:-1], path.piece_offsets[1:]
    durations, rows, knots = path.durations, piece_start_rows(path), path.knots
    origin = knots[path.series.offsets[:-1]]
    piece, u = firsts.clone(), torch.zeros(count, dtype=torch.float64, device=device)
    size = torch.ones_like(u)
    z, known = z0.clone(), torch.zeros(count, dtype=torch.bool, device=device)
    first_slope = torch.zeros_like(z0)
    tries, rejected, evaluated = (torch.zeros(count, dtype=torch.int64, device=device) for _ in range(3))
    records: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
    if jump is not None:
        z = _jump_at(evaluations, jump, z, path.series.offsets[:-1], torch.ones_like(known))
    while True:
        at = ((piece < ends) & (tries < steps.max_steps)).nonzero()[:, 0]
        if len(at) == 0:
            break
        left = 1 - u[at]
        h = torch.where(size[at] >= left * (1 - 1e-9), left, size[at])
        pieces, duration = path.coefficients[piece[at]], durations[piece[at]]
        since = knots[rows[piece[at]]] + duration * u[at] - origin[at]
        slopes, end = _stages(
            evaluations, tableau, z[at], pieces, u[at], h, duration, since, first_slope[at], known[at]
        )
        evaluated[at] += len(tableau.c) - known[at].long()
        length = h[:, None].to(z.dtype)
        error = length * sum(w * k for w, k in zip(tableau.b_error, slopes, strict=True) if w != 0)
        scale = steps.atol + steps.rtol * torch.maximum(z[at].abs(), end.abs())
        ratio = relative(error, scale).square().mean(1).sqrt().double()
        good = (ratio <= 1) & end.isfinite().all(1)
        tries[at] += 1
        rejected[at] += ~good
        ratio = torch.where(ratio.isfinite(), ratio, torch.inf)
        factor = (SAFETY * _power(ratio.clamp(min=1e-10), -1 / tableau.order)).clamp(SHRINK, GROW)
        factor = torch.where(good, factor, factor.clamp(max=1.0))
        hopeless = ~good & (h * factor < SMALLEST)
        tries[at[hopeless]] = steps.max_steps
        ok, step = at[good], h[good]
        records.append((ok, piece[ok], u[ok], step))
        z[ok] = end[good]
        u[ok] = u[ok] + step
        size[at] = h * factor
        # the slope at the start is known after a rejected step, and inside a piece where the last stage was at the end
        known[ok], known[at[~good]] = tableau.first_same_as_last, True
        first_slope[ok], first_slope[at[~good]] = slopes[-1][good], slopes[0][~good]
        over = ok[u[ok] >= 1]
        if len(over):
            before = durations[piece[over]]
            piece[over] += 1
            after = durations[piece[over].clamp(max=max(len(durations) - 1, 0))]
            both = (before > 0) & (after > 0)
            rescaled = size[over] * before / torch.where(both, after, 1.0)
            size[over] = torch.where(both, rescaled, 1.0).clamp(min=SMALLEST, max=1.0)
            u[over], known[over] = 0.0, False
            if jump is not None:
                within = piece[over] - firsts[over]
                row = path.series.offsets[:-1][over] + within // path.pieces_per_gap
                end = path.series.offsets[1:][over]  # the piece of a series with one row leads to no other
                arrived = (within % path.pieces_per_gap == 0) & (row < end)
                z[over] = _jump_at(evaluations, jump, z[over], torch.minimum(row, end - 1), arrived)
    return Found(_grid(records, count, device), piece - firsts, rejected, evaluated)


def _no_jump(z: Tensor, row: Tensor) -> Tensor:
    return z


def _power(base: Tensor, exponent: float) -> Tensor:
    """Base to the exponent, rounded alike wherever a number stands; torch's own depends on how it fills the registers."""
    return torch.as_tensor(np.power(base.cpu().numpy(), exponent), device=base.device)


def relative(error: Tensor, scale: Tensor) -> Tensor:
    """Errors as shares of what is tolerated; none is none, where nothing is tolerated."""
    return torch.where(error == 0, 0.0, error / scale)


def _stages(
    evaluations: Evaluations,
    tableau: Tableau,
    z: Tensor,
    pieces: Tensor,
    u: Tensor,
    h: Tensor,
    duration: Tensor,
    since: Tensor,
    first: Tensor,
    known: Tensor,
) -> tuple[list[Tensor], Tensor]:
    """Slopes dz/du of all stages, the last one at the end of the step, and the end."""
    dtype = z.dtype
    one, rate = torch.ones_like(u)[:, None].to(dtype), duration[:, None].to(dtype)

    def slope(y: Tensor, node: float, rows: Tensor | slice = slice(None)) -> Tensor:
        place = (u + node * h)[:, None].to(dtype)
        drive = drive_at(pieces[rows], place[rows], one[rows], evaluations.controlled)
        time = (since + node * h * duration).to(dtype)
        return evaluations.increment(time[rows], y, drive, rate[rows])

    slopes: list[Tensor] = []
    length = h[:, None].to(dtype)
    for row, node in zip(tableau.a, tableau.c, strict=True):
        y = z
        for weight, k in zip(row, slopes, strict=False):
            if weight != 0:
                y = y + weight * length * k
        if not slopes:
            fresh = (~known).nonzero()[:, 0]
            start = first.clone()
            if len(fresh):
                start[fresh] = slope(z[fresh], node, fresh)
            slopes.append(start)
        else:
            slopes.append(slope(y, node))
    end = z + length * sum(w * k for w, k in zip(tableau.b, slopes, strict=False) if w != 0)
    return slopes, end


def _jump_at(evaluations: Evaluations, jump: Jump, z: Tensor, row: Tensor, arrived: Tensor) -> Tensor:
    here = (arrived & jump.rows[row]).nonzero()[:, 0]
    return z.index_copy(0, here, evaluations.jumped(z[here], jump.inputs[row[here]])) if len(here) else z


def _grid(records: list[tuple[Tensor, Tensor, Tensor, Tensor]], count: int, device: torch.device) -> Grid:
    if not records:
        nothing = torch.zeros(0, dtype=torch.float64, device=device)
        return Grid(torch.zeros(count + 1, dtype=torch.int64, device=device), nothing.long(), nothing, nothing)
    series, piece, start, length = (torch.cat(parts) for parts in zip(*records, strict=True))
    order = series.argsort(stable=True)
    counts = torch.bincount(series, minlength=count)
    return Grid(ragged.offsets_of(counts), piece[order], start[order], length[order])
