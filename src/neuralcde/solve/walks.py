"""Solves whose series take their own steps along their pieces: on the native engine, or in plain torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ..engine import WalkProblem, engine_name, read_steps, walk_forward
from ..paths import ControlPath
from ..series import ragged
from .adaptive import adaptive_grid
from .events import piece_start_rows
from .run import Programs, programs_of
from .solution import Stats
from .solvers import Tableau
from .step_memory import check_step_memory
from .steps import Adaptive, Grid, Steps, steps_per_piece
from .terms import Jump, Term


class Walk(NamedTuple):
    """The states that a walk found, and what it cost.

    Parameters
    ----------
    last
        The last state of every series, or the one at which it stopped.
    at_rows, before_jumps
        The states at the rows, after their jumps, and those before the jumps; None if not asked for.
    grid, states
        The accepted steps and the states at all events on this grid; None if not asked for.
    finished, accepted, rejected, evaluations
        Pieces that were walked to their end, steps and evaluations of the field, per series.
    stuck
        Whether the series stopped because no step was short enough, or its state was not finite.
    unfinished
        Whether the series stopped before its end, for any reason.
    reached
        The time at which each series ended or stopped.
    engine
        As in `Stats`.
    stored
        States stored for a reversible method.
    """

    last: Float[Tensor, "series hidden"]
    at_rows: Float[Tensor, "rows hidden"] | None
    before_jumps: Float[Tensor, "rows hidden"] | None
    grid: Grid | None
    states: Float[Tensor, "events hidden"] | None
    finished: Int[Tensor, "series"]
    accepted: Int[Tensor, "series"]
    rejected: Int[Tensor, "series"]
    evaluations: Int[Tensor, "series"]
    stuck: Bool[Tensor, "series"]
    unfinished: Bool[Tensor, "series"]
    reached: Float[Tensor, "series"]
    engine: str
    stored: Float[Tensor, "stored hidden"] | None = None

    @property
    def stats(self) -> Stats:
        """The cost of the walk."""
        return Stats(self.evaluations, self.accepted, self.rejected, self.engine)

    @property
    def complete(self) -> bool:
        """Whether all series were walked to their ends."""
        return not bool(self.unfinished.any())

    @property
    def statuses(self) -> Int[Tensor, "series"]:
        """As in `Solution`."""
        return torch.where(self.stuck, 1, 2 * self.unfinished.long())


@dataclass(frozen=True, eq=False)
class Walker:
    """Walks along the paths of a batch.

    Parameters
    ----------
    path, term, jump, z0, tableau, steps
        The problem.
    every
        Distance in steps between two states that are stored for a reversible method; 0: none.
    refine
        Factor of the number of fixed steps.
    start
        The time from which the t of a field counts; None for the first time of each path.
    """

    path: ControlPath
    term: Term
    jump: Jump | None
    z0: Tensor
    tableau: Tableau
    steps: Steps
    every: int = 0
    start: Tensor | None = None
    refine: int = 1

    @property
    def programs(self) -> Programs | str:
        """The programs of term and jump, or the reason why the plain loop must run."""
        return programs_of(self.term, self.jump, self.tableau, self.z0, self.path.channels)

    @property
    def origin(self) -> Float[Tensor, "series"]:
        """The time from which the t of a field counts."""
        return self.path.knots.index_select(0, self.path.series.offsets[:-1]) if self.start is None else self.start

    def differentiated(self, programs: Programs | str) -> bool:
        """Whether a gradient may be asked for."""
        if not torch.is_grad_enabled():
            return False
        if isinstance(programs, str):  # a function may use any tensors
            return True
        parameters = [p for program in programs if program is not None for p in program.parameters]
        inputs = [] if self.jump is None else [self.jump.inputs]
        sources = [self.z0, self.path.coefficients, self.path.knots, *inputs, *parameters]
        return any(x.requires_grad for x in sources)

    def walk(self, programs: Programs | str, *, at_rows: bool, before_jumps: bool, keep_steps: bool) -> Walk:
        """The states and the steps; the gradient is not recorded."""
        if not isinstance(programs, str):
            return self._natively(programs, at_rows=at_rows, before_jumps=before_jumps, keep_steps=keep_steps)
        assert isinstance(self.steps, Adaptive)
        found = adaptive_grid(
            self.path, self.term, self.jump, self.z0.detach(), self.tableau, self.steps, self.origin.detach()
        )
        last = found.states[found.grid.offsets[1:] + torch.arange(len(self.path), device=self.path.device)]
        counts = ragged.lengths(found.grid.offsets)
        unfinished = self._unfinished(found.finished)
        return Walk(
            last,
            found.at_rows,
            found.before_jumps,
            found.grid,
            found.states,
            found.finished,
            counts,
            found.rejected,
            found.evaluations,
            found.stuck,
            unfinished,
            self._reached(found.finished, unfinished, found.stopped),
            f"torch: {programs}",
        )

    def problem(self, programs: Programs) -> WalkProblem:
        """The walk for the native engine."""
        flow, jump = programs
        assert flow is not None
        adaptive = isinstance(self.steps, Adaptive)
        rule: dict[str, Any]
        if isinstance(self.steps, Adaptive):
            rule = {
                "rtol": float(self.steps.rtol),
                "atol": float(self.steps.atol),
                "max_steps": self.steps.max_steps,
                "smooth": self.steps.smoothing,
            }
        else:
            counts = self.refine * steps_per_piece(self.path, self.steps)
            stored = self.z0.shape[1] * self.z0.element_size() / self.every if self.every else 0.0
            check_step_memory(self.path, counts, stored, self.steps, listed=False)
            rule = {"substeps": counts.long(), "every": self.every}
        return WalkProblem(
            flow=flow,
            jump=jump,
            drive=self.term.driven_by,
            tableau=self.tableau.columns(with_error=adaptive),
            row_offsets=self.path.series.offsets,
            time=self.path.knots,
            pieces_per_gap=self.path.pieces_per_gap,
            jumps=None if self.jump is None else self.jump.rows,
            rule=rule,
        )

    @property
    def inputs(self) -> Tensor:
        """The inputs of the jumps; an empty tensor if there are none."""
        return self.z0.new_zeros(0, 0) if self.jump is None else self.jump.inputs

    def _natively(self, programs: Programs, *, at_rows: bool, before_jumps: bool, keep_steps: bool) -> Walk:
        bound = self.problem(programs).bind(self.z0, self.path.coefficients, self.inputs)
        walked = walk_forward(
            bound,
            self.z0,
            len(self.path.knots),
            at_rows=at_rows,
            before_jumps=before_jumps and self.jump is not None,
            keep_steps=keep_steps,
            stores=self.every > 0,
        )
        grid, states = None, None
        if keep_steps:
            piece, start, length, states = read_steps(walked)
            grid = Grid(ragged.offsets_of(walked.accepted), piece, start, length)
        unfinished = self._unfinished(walked.finished)
        return Walk(
            walked.last,
            walked.at_rows,
            walked.before_jumps,
            grid,
            states,
            walked.finished,
            walked.accepted,
            walked.rejected,
            walked.evaluations,
            walked.stuck,
            unfinished,
            self._reached(walked.finished, unfinished, walked.stopped),
            engine_name(),
            walked.stored,
        )

    def _unfinished(self, finished: Int[Tensor, "series"]) -> Bool[Tensor, "series"]:
        return finished < ragged.lengths(self.path.piece_offsets)

    def _reached(
        self, finished: Int[Tensor, "series"], unfinished: Bool[Tensor, "series"], u: Float[Tensor, "series"]
    ) -> Float[Tensor, "series"]:
        """The times at which the series ended or stopped."""
        path = self.path
        knots = path.knots.detach()
        ends = knots.index_select(0, path.series.offsets[1:] - 1)
        if not bool(unfinished.any()):
            return ends
        piece = (path.piece_offsets[:-1] + finished).clamp(max=len(path.coefficients) - 1)
        return torch.where(unfinished, knots[piece_start_rows(path)[piece]] + path.durations.detach()[piece] * u, ends)
