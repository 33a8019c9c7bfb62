"""Where the steps lie: at the knots, at a fixed size, or where the error asks for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ..engine import Events, KnotEvents
from ..fields.mlp import check_sizes
from ..paths import ControlPath
from ..series import ragged
from .step_memory import check_step_memory


@dataclass(frozen=True)
class AtKnots:
    """From knot to knot: `substeps` equal steps in each piece of the path, the default.

    Every series has its own grid: n observations take n - 1 steps, however uneven the gaps.
    """

    substeps: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "substeps", count("substeps", self.substeps))


@dataclass(frozen=True)
class FixedSteps:
    """Steps no longer than `size`, in the path's own unit of time: ceil(gap / size) equal steps in each piece.

    With the smallest gap of the data as size this is the paper's setting. A step never crosses a knot.
    """

    size: float

    def __post_init__(self) -> None:
        if not self.size > 0:
            raise ValueError(f"size must be positive, got {self.size!r}.")


@dataclass(frozen=True)
class Adaptive:
    """Steps as long as the error allows, for every series by itself; needs a solver with an error estimate.

    A step is accepted when its error, divided by atol + rtol |z| and averaged over the state (root mean square), is at
    most one. Steps are clipped to the pieces of the path. The accepted steps are then taken as given: values and
    gradients are those of the fixed grid they form.

    Parameters
    ----------
    rtol, atol
        Relative and absolute tolerance.
    max_steps
        Accepted and rejected steps a series may take; one that needs more stops where it is and says so in its status.
    """

    rtol: float = 1e-4
    atol: float = 1e-6
    max_steps: int = 4096

    def __post_init__(self) -> None:
        if not (self.rtol >= 0 and self.atol >= 0 and self.rtol + self.atol > 0):
            raise ValueError(f"rtol and atol must be >= 0 and not both 0, got {self.rtol!r} and {self.atol!r}.")
        object.__setattr__(self, "max_steps", count("max_steps", self.max_steps))


Steps = AtKnots | FixedSteps | Adaptive


def count(name: str, value: int) -> int:
    """A number of at least one, Python's or numpy's, as Python's."""
    check_sizes(**{name: value})
    return int(value)


class Grid(NamedTuple):
    """Steps of all series: the piece each lies in and where; and after how many steps each row is reached."""

    offsets: Int[Tensor, "bounds"]
    piece: Int[Tensor, "steps"]
    start: Float[Tensor, "steps"]
    length: Float[Tensor, "steps"]

    def halved(self) -> Grid:
        """Every step as two of half the length."""
        half = self.length / 2
        start = torch.stack([self.start, self.start + half], dim=1).flatten()
        piece, length = (part[:, None].expand(-1, 2).flatten() for part in (self.piece, half))
        return Grid(self.offsets * 2, piece, start, length)


def fixed_grid(path: ControlPath, steps: AtKnots | FixedSteps, *, state_bytes: float = 0.0) -> Grid:
    """Equal steps in every piece; refused where they, and `state_bytes` kept at each, would not fit the memory."""
    if isinstance(steps, AtKnots):
        counts = torch.full_like(path.durations, float(steps.substeps), requires_grad=False)
    else:
        counts = (path.durations.detach() / steps.size - 1e-9).ceil().clamp(min=1)
    check_step_memory(path, counts, state_bytes, steps)
    if isinstance(steps, AtKnots):
        offsets = path.piece_offsets * steps.substeps
        total = int(offsets[-1])
        step = torch.arange(total, device=path.device)
        if steps.substeps == 1:
            return Grid(
                offsets, step, torch.zeros_like(step, dtype=torch.float64), torch.ones_like(step, dtype=torch.float64)
            )
        share = 1.0 / steps.substeps
        return Grid(
            offsets,
            step // steps.substeps,
            (step % steps.substeps).double() * share,
            torch.full_like(step, share, dtype=torch.float64),
        )
    counts = counts.long()
    firsts = ragged.offsets_of(counts)
    piece = ragged.series_of_rows(firsts)
    within = torch.arange(len(piece), device=path.device) - firsts[piece]
    length = 1.0 / counts.double()[piece]
    return Grid(firsts[path.piece_offsets], piece, within * length, length)


def events_of(
    path: ControlPath,
    grid: Grid | None,
    jumps: Bool[Tensor, "rows"] | None,
    finished: Int[Tensor, "series"] | None = None,
) -> tuple[Events, Int[Tensor, "rows"]]:
    """The events of a batch, and for each row the event of its series at which it is reached.

    Without a grid (no flow) every row is an event. `finished` says how many pieces each series got over, where some
    stopped early; rows further on cause no jump and show the state at which the series stopped. Times and durations are
    differentiable in the knots.
    """
    offsets, times = path.series.offsets, path.knots
    device = path.device
    rows = torch.arange(len(times), device=device)
    of_row = ragged.series_of_rows(offsets)
    if grid is None:
        nothing = torch.zeros(len(times), dtype=torch.float64, device=device)
        jump_row = rows if jumps is None else torch.where(jumps, rows, -1)
        piece = torch.full_like(rows, -1)
        return Events(offsets, piece, nothing, nothing, nothing, times, jump_row), ragged.places_in_series(offsets)
    series = len(path)
    counts = ragged.lengths(grid.offsets)
    event_offsets = grid.offsets + torch.arange(series + 1, device=device)
    of_step = ragged.series_of_rows(grid.offsets)
    place = torch.arange(len(of_step), device=device) + of_step  # one trailing event a series
    total = len(of_step) + series

    def spread(values: Tensor, fill: float) -> Tensor:
        return values.new_full((total,), fill).index_copy(0, place, values)

    durations = path.durations[grid.piece]
    step_time = times[piece_start_rows(path)[grid.piece]] + durations * grid.start
    end_time = times[offsets[1:] - 1]
    within = ragged.places_in_series(offsets) * path.pieces_per_gap
    arrived = torch.ones_like(rows, dtype=torch.bool)
    if finished is not None:
        whole = finished == ragged.lengths(path.piece_offsets)
        stepped = counts > 0
        last_step = (grid.offsets[1:] - 1)[stepped]
        stop = times[offsets[:-1]].index_copy(
            0, stepped.nonzero()[:, 0], (step_time + durations * grid.length)[last_step]
        )
        end_time = torch.where(whole, end_time, stop)
        arrived = whole[of_row] | (within <= finished[of_row])
    # a row is reached when all pieces before it are done
    done = torch.bincount(grid.piece, minlength=len(path.coefficients)).cumsum(0)
    done = torch.nn.functional.pad(done, (1, 0))
    before = path.piece_offsets[:-1][of_row]
    reached = torch.where(arrived, done[before + within] - done[before], counts[of_row])
    jump_row = torch.full((total,), -1, dtype=torch.int64, device=device)
    if jumps is not None:
        here = jumps & arrived
        jump_row[(event_offsets[:-1][of_row] + reached)[here]] = rows[here]
    events = Events(
        event_offsets,
        spread(grid.piece, -1),
        spread(grid.start, 0.0),
        spread(grid.length, 0.0),
        spread(durations * grid.length, 0.0),
        spread(step_time, 0.0).index_copy(0, event_offsets[1:] - 1, end_time),
        jump_row,
    )
    return events, reached


def knot_events(path: ControlPath, jumps: Bool[Tensor, "rows"] | None) -> Events | None:
    """The events that `events_of` gives for one step a piece, at no cost: every row is an event.

    None where it is not so simple: on rectilinear paths, where a series has one row only, and without any series.
    """
    if path.pieces_per_gap != 1 or len(path.coefficients) != len(path.knots) - len(path) or len(path) == 0:
        return None
    return KnotEvents(path.series.offsets, path.knots, jumps)


def piece_start_rows(path: ControlPath) -> Int[Tensor, "pieces"]:
    """The row at which each piece starts (for a vertical piece: the row it leads to)."""
    per_gap, offsets = path.pieces_per_gap, path.series.offsets
    of_piece = ragged.series_of_rows(path.piece_offsets)
    within = ragged.places_in_series(path.piece_offsets)
    return offsets[:-1][of_piece] + (within + per_gap - 1) // per_gap
