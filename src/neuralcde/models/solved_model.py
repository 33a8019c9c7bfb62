"""Base class of models whose states solve a differential equation, with or without jumps: the paper's five models."""

from __future__ import annotations

from typing import Any, Literal

from torch import Tensor, nn

from ..paths import ControlPath
from ..series import IrregularSeries
from ..solve import AtKnots, Gradient, Jump, Solution, Solver, Steps, Term, solve
from .initial_state import Initial
from .path_model import PathModel
from .trajectory import Trajectory

Variant = Literal["standard", "paper"]


class SolvedModel(PathModel):
    """A model with an initial state, a flow between observations, and a jump at observations.

    Subclasses define `flow`, `jump`, or both.

    Parameters
    ----------
    channels, outputs, hidden, static, initial, pool, time_channel, encoder, scheme, readout
        As in `PathModel`.
    solver, steps, gradient
        As in `solve_cde`.
    """

    def __init__(
        self,
        channels: int,
        outputs: int,
        *,
        hidden: int,
        initial: Initial,
        solver: str | Solver = "rk4",
        steps: Steps | None = None,
        gradient: str | Gradient = "checkpoint",
        **options: Any,
    ):
        super().__init__(channels, outputs, hidden=hidden, initial=initial, **options)
        self.solver, self.steps, self.gradient = solver, AtKnots() if steps is None else steps, gradient

    def extra_repr(self) -> str:
        """Options for the repr that are not submodules."""
        return f"pool={self.pool!r}, solver={self.solver!r}, steps={self.steps!r}"

    def flow(self) -> Term | None:
        """The flow between observations; None for a state that is constant there."""
        return None

    def jump(self, path: ControlPath) -> Jump | None:
        """The update of the state at observations; None for no update."""
        return None

    def trajectory(self, path: ControlPath, *, rows: bool = False, times: Tensor | None = None) -> Trajectory:
        """The states, computed in one solve."""
        save: Literal["last", "knots", "dense"] | Tensor = "last" if times is None else times
        if rows:
            save = "knots" if times is None else "dense"
        solution = self._solve(path, save)
        at_times = solution.evaluate(times) if rows and times is not None else solution.at_times
        return Trajectory(solution.last, solution.states_at_knots, at_times)

    def solve(
        self, path: ControlPath | IrregularSeries, save: Literal["last", "knots", "dense"] | Tensor = "last"
    ) -> Solution:
        """The solution behind the outputs; `save` as in `solve_cde`."""
        return self._solve(self.driving_path(path), save)

    def _solve(self, path: ControlPath, save: Literal["last", "knots", "dense"] | Tensor) -> Solution:
        return solve(
            path,
            self.initial(path),
            flow=self.flow(),
            jump=self.jump(path),
            solver=self.solver,
            steps=self.steps,
            gradient=self.gradient,
            save=save,
        )

    def engine(self, path: ControlPath | IrregularSeries) -> str:
        """Solve the paths and return the engine that ran: `stats.engine` of the solution."""
        return self.solve(path).stats.engine

    def penalised(self) -> list[Tensor]:
        """The parameters of the field; for models with jumps, all but those of the initial network (appendix D.1)."""
        if hasattr(self, "cell"):
            return [p for name, p in self.named_parameters() if not name.startswith("initial.")]
        field: nn.Module = self.field  # type: ignore[assignment]
        return list(field.parameters())


def check_variant(variant: str) -> None:
    """Raise `ValueError` for an unknown variant."""
    if variant not in ("standard", "paper"):
        raise ValueError(f'variant={variant!r} is not "standard" or "paper".')
