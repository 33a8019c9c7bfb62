"""Which engine runs a problem, and how it is differentiated."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ..engine import (
    NativeProblem,
    Program,
    engine_name,
    evaluate_rows,
    lower,
    most_stages,
    solve_natively,
    transformed,
)
from .backsolve import solve_with_adjoint
from .events import KnotEvents
from .gradients import Backprop, Backsolve, Checkpoint, Gradient
from .loop import Problem, solve_plainly
from .solvers import Tableau
from .steps import Steps
from .terms import Jump, Term

Programs = tuple[Program | None, Program | None]


class Ran(NamedTuple):
    """The states asked for, for each series the event after which its state was not finite (or -1), and what ran."""

    states: Float[Tensor, "saved hidden"]
    failed: Int[Tensor, "series"]
    engine: str


@dataclass(frozen=True, eq=False)
class Run:
    """Runs problems: natively where that can be, else in plain torch; differentiated by one method.

    Parameters
    ----------
    method
        How gradients are computed.
    steps
        How the steps were chosen: the adjoint chooses its own on the way back in the same way.
    """

    method: Gradient
    steps: Steps

    def __call__(self, problem: Problem) -> Ran:
        """Run it."""
        programs = _programs_for_events(problem)
        if isinstance(self.method, Backsolve) and transformed():
            raise ValueError(
                'gradient="backsolve" knows neither torch.func nor forward mode; use gradient="checkpoint".'
            )
        differentiated = torch.is_grad_enabled()
        if isinstance(self.method, Backsolve) and differentiated:
            engine = f"torch: {programs}" if isinstance(programs, str) else f"{engine_name()} forward, torch backward"
            return Ran(*solve_with_adjoint(problem, _forward_only, self.steps), engine)
        if isinstance(programs, str):
            method = Backprop() if transformed() or isinstance(self.method, Backsolve) else self.method
            return Ran(*solve_plainly(problem, method), f"torch: {programs}")
        if isinstance(self.method, Backprop) and differentiated:
            return Ran(*solve_plainly(problem, self.method), "torch: backprop differentiates the plain loop")
        every = self.method.every if isinstance(self.method, Checkpoint) else 1
        return Ran(*_natively(problem, programs, every), engine_name())


def rowwise(term: Term, jump: Jump | None, tableau: Tableau, z0: Tensor, channels: int) -> tuple[Term, Jump | None]:
    """Term and jump for evaluations without gradients: natively where that can be, so that batch mates do not show."""
    programs = _programs(term, jump, tableau, z0, channels)
    if isinstance(programs, str):
        return term, jump
    flow, jumps = programs
    assert flow is not None
    native_jump = None if jump is None else _RowwiseJump(jump.cell, jump.inputs, jump.rows, jumps)
    return _RowwiseTerm(term.field, term, flow), native_jump


@dataclass(frozen=True, eq=False)
class _RowwiseTerm(Term):
    """A term whose field is evaluated by the native engine, without gradients."""

    inner: Term
    program: Program

    def drive(self, pieces: Tensor, u: Tensor, du: Tensor) -> Tensor:
        """The inner term's."""
        return self.inner.drive(pieces, u, du)

    def evaluate(self, t: Tensor, z: Tensor, drive: Tensor) -> Tensor:
        """A row of state and drive per series."""
        return evaluate_rows(self.program, torch.cat([z, drive], dim=1) if self.program.input else z)

    def scale(self, change: Tensor, dt: Tensor) -> Tensor:
        """The inner term's."""
        return self.inner.scale(change, dt)


@dataclass(frozen=True, eq=False)
class _RowwiseJump(Jump):
    """A jump whose cell is evaluated by the native engine, without gradients."""

    program: Program | None = None

    def after(self, z: Tensor, inputs: Tensor) -> Tensor:
        """A row of state and inputs per jump."""
        assert self.program is not None
        return evaluate_rows(self.program, torch.cat([z, inputs], dim=1))


def _forward_only(problem: Problem) -> tuple[Tensor, Tensor]:
    programs = _programs_for_events(problem)
    return solve_plainly(problem, Backprop()) if isinstance(programs, str) else _natively(problem, programs, 1)


def _natively(problem: Problem, programs: Programs, every: int) -> tuple[Tensor, Tensor]:
    native = NativeProblem(
        *programs,
        drive="increment" if problem.term is None else problem.term.driven_by,
        tableau=problem.tableau.tensors(),
        events=problem.events.columns(),
        saved_offsets=problem.saved.offsets,
        saved_event=problem.saved.event,
        every=every,
    )
    inputs = None if problem.jump is None else problem.jump.inputs
    return solve_natively(native, problem.z0, problem.coefficients, inputs)


def _programs_for_events(problem: Problem) -> Programs | str:
    """Programs of term and jump, or why the plain loop must run; the engine has no gradients of the steps' times."""
    events, term = problem.events, problem.term
    if term is not None and term.driven_by == "value" and events.time.requires_grad:
        return "the times require gradients"
    if term is not None and not isinstance(events, KnotEvents) and events.length.requires_grad:
        return "the times require gradients"
    return _programs(term, problem.jump, problem.tableau, problem.z0, problem.coefficients.shape[2])


def _programs(term: Term | None, jump: Jump | None, tableau: Tableau, z0: Tensor, channels: int) -> Programs | str:
    """Programs of term and jump, or why there are none."""
    if os.environ.get("NEURALCDE_ENGINE", "") == "torch":
        return "NEURALCDE_ENGINE=torch"
    if engine_name() == "torch":
        return "no native kernels"
    if z0.device.type != "cpu":
        return f"the state is on {z0.device}"
    if transformed():
        return "inside a torch.func transform, or in forward mode"
    if z0.dtype not in (torch.float32, torch.float64):
        return f"the state is {z0.dtype}"
    if tableau.stages > most_stages():
        return f"{tableau.name} has more than {most_stages()} stages"
    flow = None if term is None else _program(term.field, z0, channels)
    if isinstance(flow, str):
        return flow
    cell = None if jump is None else _program(jump.cell, z0, jump.inputs.shape[1])
    return cell if isinstance(cell, str) else (flow, cell)


def _program(module: nn.Module, z0: Tensor, inputs: int) -> Program | str:
    program = lower(module, z0.shape[1], inputs)
    if isinstance(program, Program) and any(p.dtype != z0.dtype for p in program.parameters):
        return f"parameters are not {z0.dtype}"
    return program
