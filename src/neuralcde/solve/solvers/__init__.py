"""Solvers, one per file, with their citations. All but reversible Heun are Runge-Kutta methods, given by a tableau."""

from ...contracts import ArgumentError, Registry
from .dopri5 import dopri5 as dopri5
from .ees25 import ees25 as ees25
from .euler import euler as euler
from .heun import heun as heun
from .midpoint import midpoint as midpoint
from .ralston import ralston as ralston
from .reversible_heun import reversible_heun as reversible_heun
from .rk4 import rk4 as rk4
from .solver import Solver as Solver
from .tableau import Tableau as Tableau
from .tsit5 import tsit5 as tsit5

METHODS: tuple[Solver, ...] = (euler, midpoint, heun, ralston, rk4, dopri5, tsit5, ees25, reversible_heun)

solvers: Registry[Solver] = Registry("solver", Solver)
for method in METHODS:
    solvers.add(method.name, method)


def as_solver(solver: str | Solver) -> Solver:
    """A solver from its name; a solver is returned unchanged."""
    if isinstance(solver, Solver):
        return solver
    if not isinstance(solver, str) or solver not in solvers:
        raise ArgumentError(
            f"solver={solver!r} is not one of {list(solvers)}; a Tableau of your own works too.", argument="solver"
        )
    return solvers[solver]
