"""Steps chosen by an error estimate, for every series by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ..paths import ControlPath
from ..series import ragged
from .events import piece_start_rows
from .solvers import Tableau
from .step import Place, runge_kutta
from .steps import Adaptive, Grid
from .terms import Jump, Term

SAFETY, SHRINK, GROW, SMALLEST = 0.9, 0.2, 10.0, 1e-12


class Found(NamedTuple):
    """Accepted steps, and what it took to find them; `finished` is the number of pieces that a series got over."""

    grid: Grid
    finished: Int[Tensor, "series"]
    rejected: Int[Tensor, "series"]
    evaluations: Int[Tensor, "series"]


@torch.no_grad()
def adaptive_grid(
    path: ControlPath,
    term: Term,
    jump: Jump | None,
    z0: Float[Tensor, "series hidden"],
    tableau: Tableau,
    steps: Adaptive,
) -> Found:
    """Integrate with error control and record the steps.

    One round of the loop tries one step of every series that is not done. Series are tried together, and each is accepted or
    rejected by its own error.
    """
    if not tableau.b_error:
        raise ValueError(f"Adaptive needs a solver with an error estimate (dopri5, tsit5), got {tableau.name!r}.")
    device, dtype, count = path.device, z0.dtype, len(path)
    firsts, ends = path.piece_offsets[:-1], path.piece_offsets[1:]
    durations, rows, knots = path.durations, piece_start_rows(path), path.knots
    origin = knots[path.series.offsets[:-1]]
    # Where each series is: its piece, the place u in it, and the length in u of the step to be tried next.
    piece, u = firsts.clone(), torch.zeros(count, dtype=torch.float64, device=device)
    size = torch.ones_like(u)
    # Its state, and the slope dz/du there where that is known already.
    z, slope = z0.clone(), torch.zeros_like(z0)
    known = torch.zeros(count, dtype=torch.bool, device=device)
    tries, rejected, evaluated = (torch.zeros(count, dtype=torch.int64, device=device) for _ in range(3))
    records: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
    if jump is not None:
        z = _jump_at(jump, z, path.series.offsets[:-1], torch.ones_like(known))
    while True:
        at = ((piece < ends) & (tries < steps.max_steps)).nonzero()[:, 0]
        if len(at) == 0:
            break
        # A step that would almost reach the end of its piece goes all the way, so that no sliver is left.
        left = 1 - u[at]
        h = torch.where(size[at] >= left * (1 - 1e-9), left, size[at])
        duration = durations[piece[at]]
        since = knots[rows[piece[at]]] + duration * u[at] - origin[at]
        start, length, lasts = (part[:, None].to(dtype) for part in (u[at], h, h * duration))
        place = Place(path.coefficients[piece[at]], start, length, since.to(dtype), lasts)
        increment = _with_known_slopes(term, tableau, place, slope[at], known[at])
        end, stages, error = runge_kutta(tableau, increment, z[at], with_error=True)
        assert error is not None
        evaluated[at] += len(tableau.c) - known[at].long()

        # Accept where the error, as a share of what is tolerated, is at most one; the next length follows from it.
        tolerated = steps.atol + steps.rtol * torch.maximum(z[at].abs(), end.abs())
        ratio = relative(error, tolerated).square().mean(1).sqrt().double()
        good = (ratio <= 1) & end.isfinite().all(1)
        tries[at] += 1
        rejected[at] += ~good
        ratio = torch.where(ratio.isfinite(), ratio, torch.inf)
        factor = step_factor(ratio, tableau.order)
        factor = torch.where(good, factor, factor.clamp(max=1.0))
        hopeless = ~good & (h * factor < SMALLEST)
        tries[at[hopeless]] = steps.max_steps
        size[at] = h * factor

        moved, step = at[good], h[good]
        records.append((moved, piece[moved], u[moved], step))
        z[moved] = end[good]
        u[moved] = u[moved] + step
        # The slope at the start is known after a rejected step, and inside a piece where the last stage was at the end.
        known[moved], known[at[~good]] = tableau.first_same_as_last, True
        slope[moved] = (stages[-1] / length)[good]
        slope[at[~good]] = (stages[0] / length)[~good]

        # At the end of a piece: the same step in units of time on the next one, and the jump of the row that is reached.
        over = moved[u[moved] >= 1]
        if len(over):
            before = durations[piece[over]]
            piece[over] += 1
            after = durations[piece[over].clamp(max=max(len(durations) - 1, 0))]
            both = (before > 0) & (after > 0)  # vertical pieces of a rectilinear path take no time
            rescaled = size[over] * before / torch.where(both, after, 1.0)
            size[over] = torch.where(both, rescaled, 1.0).clamp(min=SMALLEST, max=1.0)
            u[over], known[over] = 0.0, False
            if jump is not None:
                within = piece[over] - firsts[over]
                row = path.series.offsets[:-1][over] + within // path.pieces_per_gap
                last = path.series.offsets[1:][over]  # the piece of a series with one row leads to no other
                arrived = (within % path.pieces_per_gap == 0) & (row < last)
                z[over] = _jump_at(jump, z[over], torch.minimum(row, last - 1), arrived)
    return Found(_grid(records, count, device), piece - firsts, rejected, evaluated)


def step_factor(ratio: Float[Tensor, "batch"], order: int) -> Float[Tensor, "batch"]:
    """By how much the next step is longer, for an error that is `ratio` times what is tolerated.

    The power is numpy's: torch rounds it by where a number stands in its register, so that batch mates would show.
    """
    power = torch.as_tensor(np.power(ratio.clamp(min=1e-10).cpu().numpy(), -1 / order), device=ratio.device)
    return (SAFETY * power).clamp(SHRINK, GROW)


def relative(error: Tensor, scale: Tensor) -> Tensor:
    """Errors as shares of what is tolerated; none is none, where nothing is tolerated."""
    return torch.where(error == 0, 0.0, error / scale)


def _with_known_slopes(
    term: Term, tableau: Tableau, place: Place, slope: Float[Tensor, "batch hidden"], known: Bool[Tensor, "batch"]
) -> Callable[[int, Tensor], Tensor]:
    """The increments of steps of which the slope dz/du at the start is `known` for some series, and not evaluated again."""
    fresh = (~known).nonzero()[:, 0]

    def increment(stage: int, y: Tensor) -> Tensor:
        if stage > 0:
            return place.increment(term, tableau.c[stage], y)
        found = place.length * slope
        if len(fresh):
            found[fresh] = Place(*(part[fresh] for part in place)).increment(term, tableau.c[0], y[fresh])
        return found

    return increment


def _jump_at(jump: Jump, z: Tensor, row: Tensor, arrived: Tensor) -> Tensor:
    here = (arrived & jump.rows[row]).nonzero()[:, 0]
    return z.index_copy(0, here, jump.after(z[here], jump.inputs[row[here]])) if len(here) else z


def _grid(records: list[tuple[Tensor, Tensor, Tensor, Tensor]], count: int, device: torch.device) -> Grid:
    if not records:
        nothing = torch.zeros(0, dtype=torch.float64, device=device)
        return Grid(torch.zeros(count + 1, dtype=torch.int64, device=device), nothing.long(), nothing, nothing)
    series, piece, start, length = (torch.cat(parts) for parts in zip(*records, strict=True))
    order = series.argsort(stable=True)
    counts = torch.bincount(series, minlength=count)
    return Grid(ragged.offsets_of(counts), piece[order], start[order], length[order])
