"""Adaptive step sizes, chosen for each series by its own error estimate."""

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
from .one_thread import one_thread
from .solvers.tableau import Tableau, runge_kutta
from .step import Place, time_bounds
from .steps import Adaptive, Grid
from .terms import Jump, Term

# The usual constants of a step size controller: safety factor, smallest and largest change of the step length. A step
# shorter than SMALLEST times its piece means that no step length satisfies the tolerances.
SAFETY, SHRINK, GROW, SMALLEST = 0.9, 0.2, 10.0, 1e-12
SMALLEST_RATIO = 1e-4  # that a PI controller remembers
FACTOR_BITS = 4  # of the factor from one step length to the next


class Found(NamedTuple):
    """The grid of accepted steps, the states on it, and the cost of finding both.

    Parameters
    ----------
    grid
        The accepted steps.
    states
        The state at the start of every step, and after the steps of a series its last state.
    at_rows, before_jumps
        The states at the rows, after their jumps, and the states before the jumps (0 where there is none). At a row
        that was not reached, the state is the one at which the series stopped.
    finished
        Number of pieces that each series integrated to their end.
    stopped
        The point within its piece at which a series stopped; 0 if it did not.
    stuck
        Whether a series stopped because no step is short enough: at a pole, or where the field is not finite.
    rejected, evaluations
        Rejected steps and evaluations of the field, per series.
    """

    grid: Grid
    states: Float[Tensor, "events hidden"]
    at_rows: Float[Tensor, "rows hidden"]
    before_jumps: Float[Tensor, "rows hidden"]
    finished: Int[Tensor, "series"]
    stopped: Float[Tensor, "series"]
    stuck: Bool[Tensor, "series"]
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
    origin: Float[Tensor, "series"],
) -> Found:
    """Integrate with error control and record the accepted steps; the specification of the native engine's walk.

    Each iteration tries one step of every unfinished series. The field is evaluated for all of them as one batch; each
    step is accepted or rejected by the error of its own series. The t of the field counts from `origin`.
    """
    with one_thread(z0, path.channels, [term.field] if jump is None else [term.field, jump.cell]):
        return _adaptive_grid(path, term, jump, z0, tableau, steps, origin)


def _adaptive_grid(
    path: ControlPath, term: Term, jump: Jump | None, z0: Tensor, tableau: Tableau, steps: Adaptive, origin: Tensor
) -> Found:
    device, dtype, count = path.device, z0.dtype, len(path)
    firsts, ends = path.piece_offsets[:-1], path.piece_offsets[1:]
    durations, rows, knots = path.durations, piece_start_rows(path), path.knots
    # The position of each series: its piece, the point u within it, and the length in u of the next step to try.
    piece, u = firsts.clone(), torch.zeros(count, dtype=torch.float64, device=device)
    size = torch.ones_like(u)
    # Its state, and the slope dz/du at that point if an earlier step has evaluated it already (`known`).
    z, slope = z0.clone(), torch.zeros_like(z0)
    known = torch.zeros(count, dtype=torch.bool, device=device)
    tries, rejected, evaluated = (torch.zeros(count, dtype=torch.int64, device=device) for _ in range(3))
    stuck, previous = torch.zeros_like(known), torch.ones_like(u)
    records: list[tuple[Tensor, ...]] = []
    at_rows = z0.new_zeros(len(knots), z0.shape[1])
    before_jumps = torch.zeros_like(at_rows)

    def arrive(z: Tensor, row: Int[Tensor, "batch"]) -> Tensor:
        """The states after the jumps at these rows, if there are any; both are recorded."""
        if jump is not None:
            here = jump.rows[row].nonzero()[:, 0]
            before_jumps[row[here]] = z[here]
            z = z.index_copy(0, here, jump.after(z[here], jump.inputs[row[here]])) if len(here) else z
        at_rows[row] = z
        return z

    z = arrive(z, path.series.offsets[:-1])
    while True:
        at = ((piece < ends) & (tries < steps.max_steps)).nonzero()[:, 0]
        if len(at) == 0:
            break
        # A step that would end just before the end of its piece is extended to it: otherwise rounding leaves a sliver.
        left = 1 - u[at]
        h = torch.where(size[at] >= left * (1 - 1e-9), left, size[at])
        duration = durations[piece[at]]
        begin = knots[rows[piece[at]]] - origin[at]
        since = begin + duration * u[at]
        # The next knot exactly, because a field may jump there.
        until = torch.where(h == left, knots[rows[piece[at]] + (duration > 0)] - origin[at], since + h * duration)
        start, length, lasts = (part[:, None].to(dtype) for part in (u[at], h, h * duration))
        bounds = time_bounds(since, until, dtype)
        place = Place(path.coefficients[piece[at]], start, length, since.to(dtype), lasts, *bounds)
        increment = _with_known_slopes(term, tableau, place, slope[at], known[at])
        end, stages, error = runge_kutta(tableau, increment, z[at], with_error=True)
        assert error is not None
        evaluated[at] += len(tableau.c) - known[at].long()

        # Accept a step if the root mean square of error / tolerance is at most one. This ratio also gives the next
        # length.
        tolerated = steps.atol + steps.rtol * torch.maximum(z[at].abs(), end.abs())
        ratio = relative(error, tolerated).square().mean(1).sqrt().double()
        good = (ratio <= 1) & end.isfinite().all(1)
        tries[at] += 1
        rejected[at] += ~good
        ratio = torch.where(ratio.isfinite() & end.isfinite().all(1), ratio, torch.inf)
        factor = step_factor(ratio, tableau.order, steps.smoothing, previous[at])
        previous[at[good]] = ratio[good].clamp(min=SMALLEST_RATIO)
        factor = torch.where(good, factor, factor.clamp(max=1.0))
        # A rejected step that cannot get shorter never will be accepted: its series stops here.
        hopeless = at[~good & (h * factor < SMALLEST)]
        tries[hopeless], stuck[hopeless] = steps.max_steps, True
        size[at] = h * factor

        moved, step = at[good], h[good]
        records.append((moved, piece[moved], u[moved], step, z[moved]))
        z[moved] = end[good]
        u[moved] = u[moved] + step
        # A rejected step is retried from the same point, so its first stage is known. After an accepted step of a
        # solver with first-same-as-last, the last stage is the slope at the new point, as long as that lies in the
        # same piece.
        known[moved], known[at[~good]] = tableau.first_same_as_last, True
        slope[moved] = (stages[-1] / length)[good]
        slope[at[~good]] = (stages[0] / length)[~good]

        # At the end of a piece: keep the step length in time on the next piece, and jump at the row that is reached.
        over = moved[u[moved] >= 1]
        if len(over):
            before = durations[piece[over]]
            piece[over] += 1
            after = durations[piece[over].clamp(max=max(len(durations) - 1, 0))]
            both = (before > 0) & (after > 0)  # a vertical piece has no duration to convert with: try it in one step
            rescaled = size[over] * before / torch.where(both, after, 1.0)
            size[over] = torch.where(both, rescaled, 1.0).clamp(min=SMALLEST, max=1.0)
            u[over], known[over] = 0.0, False
            within = piece[over] - firsts[over]
            row = path.series.offsets[:-1][over] + within // path.pieces_per_gap
            # A vertical piece ends at the row that it starts at, and the piece of a one-row series leads to no row.
            arrived = (within % path.pieces_per_gap == 0) & (row < path.series.offsets[1:][over])
            z[over[arrived]] = arrive(z[over[arrived]], row[arrived])
    of_row = ragged.series_of_rows(path.series.offsets)
    missed = ragged.places_in_series(path.series.offsets) * path.pieces_per_gap > (piece - firsts)[of_row]
    at_rows[missed] = z[of_row[missed]]
    grid, states = _grid(records, z)
    stuck |= ~z.isfinite().all(1)
    return Found(grid, states, at_rows, before_jumps, piece - firsts, u, stuck, rejected, evaluated)


def step_factor(
    ratio: Float[Tensor, "batch"],
    order: int,
    smoothing: float = 0.0,
    previous: Float[Tensor, "batch"] | None = None,
) -> Float[Tensor, "batch"]:
    """Factor from one step length to the next, for an error of `ratio` times the tolerance.

    With `smoothing` (a PI controller) the factor after an accepted step also depends on the ratio of the step accepted
    before: it is smaller where the error grows. The exponents are those of Hairer and Wanner (Solving ODEs II, IV.2).

    numpy computes the power. torch's result depends on the position of a number within a SIMD register, so the steps of
    a series would depend on the rest of its batch.

    The factor is rounded to `FACTOR_BITS` bits. An error estimate is a small difference of large numbers: far below its
    tolerance it has few correct digits, and which ones depends on the engine and on the processor. Without rounding,
    the accepted times would show this noise (up to 1e-7 of their value in float64). With it they are the same
    numbers everywhere, but for the rare step whose factor lies between two rounded ones: the fewer bits, the rarer. At
    4 bits the lengths are at most 6 % from the unrounded ones, and the number of steps changes by less than 1 %.
    """
    numbers = ratio.clamp(min=1e-10).cpu().numpy()
    power = np.power(numbers, -1 / order)
    if smoothing and previous is not None:
        smoothed = np.power(numbers, (0.75 * smoothing - 1) / order)
        smoothed *= np.power(previous.cpu().numpy(), smoothing / order)
        power = np.where(numbers <= 1, smoothed, power)
    mantissa, exponent = np.frexp(SAFETY * power)
    rounded = np.ldexp(np.rint(np.ldexp(mantissa, FACTOR_BITS)), exponent - FACTOR_BITS)
    return torch.as_tensor(rounded, device=ratio.device).clamp(SHRINK, GROW)


def relative(error: Tensor, scale: Tensor) -> Tensor:
    """Errors divided by their tolerances; an error of 0 gives 0, even if the tolerance is 0."""
    return torch.where(error == 0, 0.0, error / scale)


def _with_known_slopes(
    term: Term, tableau: Tableau, place: Place, slope: Float[Tensor, "batch hidden"], known: Bool[Tensor, "batch"]
) -> Callable[[int, Tensor], Tensor]:
    """The stage increments of a step; the first stage is evaluated only for series whose slope is not `known`."""
    fresh = (~known).nonzero()[:, 0]

    def increment(stage: int, y: Tensor) -> Tensor:
        if stage > 0:
            return place.increment(term, tableau.c[stage], y)
        found = place.length * slope
        if len(fresh):
            found[fresh] = Place(*(part[fresh] for part in place)).increment(term, tableau.c[0], y[fresh])
        return found

    return increment


def _grid(records: list[tuple[Tensor, ...]], last: Tensor) -> tuple[Grid, Tensor]:
    """The recorded steps, grouped by series, and the states at their starts, followed by the last one of the series."""
    count, device = len(last), last.device
    own = torch.arange(count, device=device)
    if not records:
        empty = torch.zeros(0, dtype=torch.float64, device=device)
        return Grid(torch.zeros(count + 1, dtype=torch.int64, device=device), empty.long(), empty, empty), last
    series, piece, start, length, states = (torch.cat(parts) for parts in zip(*records, strict=True))
    # The records are in the order of the iterations; a stable sort keeps that order within each series.
    order = series.argsort(stable=True)
    counts = torch.bincount(series, minlength=count)
    events = torch.cat([series, own]).argsort(stable=True)
    grid = Grid(ragged.offsets_of(counts), piece[order], start[order], length[order])
    return grid, torch.cat([states, last])[events]
