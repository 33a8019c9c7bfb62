"""Calls of the native engine's walks: series that take their own steps along their pieces, forwards and backwards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from .._native import kernels
from .native import TableauColumns, native_program, native_values
from .program import Program, array_of


@dataclass(frozen=True, eq=False)
class WalkProblem:
    """The arguments of a walk that are not differentiated.

    Parameters
    ----------
    flow, jump
        Programs of the flow and of the jump; None if there is no jump.
    drive
        What drives the flow: the "increment" of X or its "value".
    tableau
        The Runge-Kutta method.
    row_offsets, time
        The rows of the series, and their times.
    pieces_per_gap
        Of the path.
    jumps
        The rows with a jump; None for none.
    rule
        How steps are chosen: `substeps` (per piece), with `every` if states are stored for a reversible method; or
        `rtol`, `atol`, `max_steps` and `smooth`.
    """

    flow: Program
    jump: Program | None
    drive: Literal["increment", "value"]
    tableau: TableauColumns
    row_offsets: Int[Tensor, "bounds"]
    time: Float[Tensor, "rows"]
    pieces_per_gap: int
    jumps: Bool[Tensor, "rows"] | None
    rule: dict[str, Any]

    def bind(
        self,
        z0: Float[Tensor, "series hidden"],
        coefficients: Float[Tensor, "pieces powers channels"],
        row_inputs: Float[Tensor, "rows features"],
    ) -> Any:
        """The walk as an object of the compiled module."""
        assert kernels is not None
        return (kernels.Walk32 if z0.dtype == torch.float32 else kernels.Walk64)(
            flow=native_program(self.flow),
            flow_values=native_values(self.flow),
            drive=getattr(kernels.Drive, self.drive),
            jump=native_program(self.jump),
            jump_values=native_values(self.jump),
            tableau=self.tableau.native,
            initial=array_of(z0),
            coefficients=array_of(coefficients),
            row_inputs=array_of(row_inputs),
            row_offsets=array_of(self.row_offsets),
            time=array_of(self.time),
            pieces_per_gap=self.pieces_per_gap,
            jumps=None if self.jumps is None else array_of(self.jumps.view(torch.uint8)),
            threads=torch.get_num_threads(),
            **self.rule,
        )


class Walked(NamedTuple):
    """What a walk found.

    Parameters
    ----------
    last
        The last state of every series, or the one at which it stopped.
    at_rows, before_jumps
        The states at the rows, after their jumps, and those before the jumps; None if not asked for.
    finished, accepted, rejected, evaluations
        Number of pieces, of steps and of evaluations of the flow, per series.
    stuck
        Whether the series stopped because no step was short enough, or its state was not finite.
    stopped
        The point within its piece at which a series stopped.
    steps
        The accepted steps, as an object of the compiled module.
    stored
        The states at every `every`-th step of a series; None unless they are stored.
    """

    last: Float[Tensor, "series hidden"]
    at_rows: Float[Tensor, "rows hidden"] | None
    before_jumps: Float[Tensor, "rows hidden"] | None
    finished: Int[Tensor, "series"]
    accepted: Int[Tensor, "series"]
    rejected: Int[Tensor, "series"]
    evaluations: Int[Tensor, "series"]
    stuck: Bool[Tensor, "series"]
    stopped: Float[Tensor, "series"]
    steps: Any
    stored: Float[Tensor, "stored hidden"] | None


def walk_forward(
    walk: Any,
    z0: Tensor,
    rows: int,
    *,
    at_rows: bool = False,
    before_jumps: bool = False,
    keep_steps: bool = False,
    stores: bool = False,
) -> Walked:
    """Walk all series to their ends; `walk` is a bound `WalkProblem`, and `rows` their number of rows.

    `stores`: whether the problem stores states for a reversible method.
    """
    assert kernels is not None
    last = torch.empty_like(z0, memory_format=torch.contiguous_format, requires_grad=False)
    rows_after, rows_before = (
        z0.new_zeros(rows, z0.shape[1]) if wanted else None for wanted in (at_rows, before_jumps)
    )
    counts = torch.zeros(len(z0), len(kernels.WALK_COLUMNS), dtype=torch.int64)
    stopped = torch.zeros(len(z0), dtype=torch.float64)
    stored = z0.new_empty(walk.stored, z0.shape[1]) if stores else None
    steps = walk.forward(
        last=last.numpy(),
        at_rows=None if rows_after is None else rows_after.numpy(),
        before_jumps=None if rows_before is None else rows_before.numpy(),
        counts=counts.numpy(),
        stopped=stopped.numpy(),
        keep_steps=keep_steps,
        stored_states=None if stored is None else stored.numpy(),
    )
    finished, accepted, rejected, evaluations, stuck = counts.unbind(1)
    return Walked(
        last,
        rows_after,
        rows_before,
        finished,
        accepted,
        rejected,
        evaluations,
        stuck.bool(),
        stopped,
        steps,
        stored,
    )


def read_steps(walked: Walked) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Piece, start and length of the accepted steps, series after series, and the states at all events."""
    total, (series, hidden) = walked.steps.total, walked.last.shape
    piece = torch.empty(total, dtype=torch.int64)
    start, length = (torch.empty(total, dtype=torch.float64) for _ in range(2))
    states = walked.last.new_empty(total + series, hidden)
    walked.steps.read(piece=piece, start=start, length=length, states=states)
    return piece, start, length, states
