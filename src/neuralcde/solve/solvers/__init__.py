"""Runge-Kutta methods, one per file, each a tableau with its citation."""

from ...contracts import ArgumentError, Registry
from .dopri5 import dopri5 as dopri5
from .ees25 import ees25 as ees25
from .euler import euler as euler
from .heun import heun as heun
from .midpoint import midpoint as midpoint
from .ralston import ralston as ralston
from .rk4 import rk4 as rk4
from .tableau import Tableau as Tableau
from .tsit5 import tsit5 as tsit5

solvers: Registry[Tableau] = Registry("solver", Tableau)
for method in (euler, midpoint, heun, ralston, rk4, dopri5, tsit5, ees25):
    solvers.add(method.name, method)


def as_solver(solver: str | Tableau) -> Tableau:
    """A solver from its name; a `Tableau` is returned unchanged."""
    if isinstance(solver, Tableau):
        return solver
    if not isinstance(solver, str) or solver not in solvers:
        raise ArgumentError(
            f"solver={solver!r} is not one of {list(solvers)}; a Tableau of your own works too.", argument="solver"
        )
    return solvers[solver]
