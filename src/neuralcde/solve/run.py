"""Choice of the engine that runs a problem, and of the gradient method."""

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
    available,
    engine_name,
    lower,
    most_stages,
    solve_natively,
    transformed,
)
from ..series import ragged
from .backsolve import solve_with_adjoint
from .events import KnotEvents
from .gradients import Backprop, Backsolve, Checkpoint, Gradient, Reversible
from .loop import Problem, solve_plainly
from .solvers import Solver, Tableau
from .steps import Steps
from .terms import Jump, Term

Programs = tuple[Program | None, Program | None]


class Ran(NamedTuple):
    """The saved states, for each series the event after which its state was not finite (or -1), and the engine used.

    `evaluated` is False if the states were known already.
    """

    states: Float[Tensor, "saved hidden"]
    failed: Int[Tensor, "series"]
    engine: str
    evaluated: bool = True


@dataclass(frozen=True, eq=False)
class Run:
    """Runs problems on the native engine if possible, else in plain torch, with one gradient method.

    Parameters
    ----------
    method
        How gradients are computed.
    steps
        How the steps are chosen. With `Adaptive`, the continuous adjoint uses the same tolerances backwards in time.
    """

    method: Gradient
    steps: Steps

    def __call__(self, problem: Problem, event_states: Tensor | None = None) -> Ran:
        """Solve the problem; `event_states` are the states at all events, if they are known already."""
        programs = _programs_for_events(problem)
        if isinstance(self.method, Backsolve | Reversible) and transformed():
            name = type(self.method).__name__.lower()
            raise ValueError(f'gradient="{name}" supports neither torch.func nor forward mode; use "checkpoint".')
        differentiated = torch.is_grad_enabled()
        if event_states is not None and not differentiated:
            engine = f"torch: {programs}" if isinstance(programs, str) else engine_name()
            first = problem.events.offsets[:-1][ragged.series_of_rows(problem.saved.offsets)]
            failed = torch.full((len(problem.z0),), -1, dtype=torch.int64, device=problem.z0.device)
            return Ran(event_states[first + problem.saved.event], failed, engine, False)
        if isinstance(self.method, Backsolve | Reversible) and differentiated:
            every = self.method.every if isinstance(self.method, Reversible) else 0
            engine = f"torch: {programs}" if isinstance(programs, str) else f"{engine_name()} forward, torch backward"
            return Ran(*solve_with_adjoint(problem, _forward_only, self.steps, every), engine)
        if isinstance(programs, str):
            method = Backprop() if transformed() or isinstance(self.method, Backsolve | Reversible) else self.method
            return Ran(*solve_plainly(problem, method), f"torch: {programs}")
        if isinstance(self.method, Backprop) and differentiated:
            return Ran(*solve_plainly(problem, self.method), "torch: backprop differentiates the plain loop")
        every = self.method.every if isinstance(self.method, Checkpoint) else 1
        return Ran(*_natively(problem, programs, every, event_states), engine_name(), event_states is None)


def _forward_only(problem: Problem) -> tuple[Tensor, Tensor]:
    programs = _programs_for_events(problem)
    return solve_plainly(problem, Backprop()) if isinstance(programs, str) else _natively(problem, programs, 1)


def _natively(
    problem: Problem, programs: Programs, every: int, event_states: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    assert isinstance(problem.solver, Tableau)
    native = NativeProblem(
        *programs,
        drive="increment" if problem.term is None else problem.term.driven_by,
        tableau=problem.solver.columns(),
        events=problem.events.columns(),
        saved_offsets=problem.saved.offsets,
        saved_event=problem.saved.event,
        every=every,
        event_states=event_states,
    )
    inputs = None if problem.jump is None else problem.jump.inputs
    return solve_natively(native, problem.z0, problem.coefficients, inputs)


def _programs_for_events(problem: Problem) -> Programs | str:
    """The programs of term and jump, or the reason why the plain loop must run.

    The native engine does not compute gradients with respect to the times and lengths of steps.
    """
    events, term = problem.events, problem.term
    if term is not None and term.driven_by == "value" and events.time.requires_grad:
        return "the times require gradients"
    if term is not None and not isinstance(events, KnotEvents) and events.length.requires_grad:
        return "the times require gradients"
    return programs_of(term, problem.jump, problem.solver, problem.z0, problem.coefficients.shape[2])


def programs_of(term: Term | None, jump: Jump | None, solver: Solver, z0: Tensor, channels: int) -> Programs | str:
    """The programs of term and jump, or the reason why there are none."""
    if not available():
        forced = os.environ.get("NEURALCDE_ENGINE", "") == "torch"
        return "NEURALCDE_ENGINE=torch" if forced else "no native kernels"
    if z0.device.type != "cpu":
        return f"the state is on {z0.device}"
    if transformed():
        return "inside a torch.func transform, or in forward mode"
    if z0.dtype not in (torch.float32, torch.float64):
        return f"the state is {z0.dtype}"
    if not isinstance(solver, Tableau):
        return f"{solver.name} is not a Runge-Kutta method"
    if len(solver.a) > most_stages():
        return f"{solver.name} has more than {most_stages()} stages"
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
