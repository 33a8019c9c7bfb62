"""What the five models share: the initial state, the one loop, the readout."""

from __future__ import annotations

from typing import Literal

import numpy as np
from jaxtyping import Float
from torch import Tensor, nn

from ..engine import apply_layers
from ..fields.mlp import check_sizes
from ..paths import ControlPath
from ..solve import AtKnots, Gradient, Jump, Solution, Steps, Tableau, Term, solve
from .initial_state import Initial, InitialState
from .pooling import mean_over_time, running_mean, running_mean_at

Pool = Literal["last", "mean"]
Variant = Literal["standard", "paper"]
At = Literal["knots"] | Tensor | list[float]


class PathModel(nn.Module):
    """A model of paths: an initial state, a flow between observations, a jump at them, and a linear readout.

    Subclasses say which flow and which jump. `model(path)` gives one output a series, `model(path, at="knots")` and
    `model(path, at=times)` outputs that evolve in time.

    Parameters
    ----------
    channels
        Channels of the path, `path.channels`: time, counts and data.
    outputs
        Size of the output.
    hidden
        Size of the state.
    static
        Number of static features that come with the path.
    initial
        The initial state: "zero", "linear" (of X(t0)), "static" (a network on the static features), "both"; None for the
        model's own choice.
    pool
        What `model(path)` reads: the "last" state, or the "mean" of the state over time (each gap by the trapezoidal rule).
        Outputs `at` a time read the state there, or its mean up to then.
    time_channel
        Whether the path has a time channel. Without one a CDE does not see how fast time passes (section 6.1).
    solver, steps, gradient
        As in `solve_cde`.
    """

    def __init__(
        self,
        channels: int,
        outputs: int,
        *,
        hidden: int,
        static: int = 0,
        initial: Initial,
        pool: Pool = "last",
        time_channel: bool = True,
        solver: str | Tableau = "rk4",
        steps: Steps | None = None,
        gradient: str | Gradient = "checkpoint",
        readout_features: int | None = None,
    ):
        super().__init__()
        check_sizes(channels=channels, outputs=outputs, hidden=hidden)
        if not isinstance(static, int | np.integer) or static < 0:
            raise ValueError(f"static must be the number of static features, got {static!r}.")
        if pool not in ("last", "mean"):
            raise ValueError(f'pool={pool!r} is not "last" or "mean".')
        self.channels, self.outputs, self.hidden, self.static = channels, outputs, hidden, static
        self.pool, self.time_channel = pool, time_channel
        self.solver, self.steps, self.gradient = solver, AtKnots() if steps is None else steps, gradient
        self.initial = InitialState(initial, channels, static, hidden)
        self.readout = nn.Linear(readout_features or hidden, outputs)

    def extra_repr(self) -> str:
        """What the modules inside do not tell."""
        return f"pool={self.pool!r}, solver={self.solver!r}, steps={self.steps!r}"

    def flow(self) -> Term | None:
        """What happens between observations."""
        return None

    def jump(self, path: ControlPath) -> Jump | None:
        """What happens at observations."""
        return None

    def forward(self, path: ControlPath, at: At | None = None) -> Float[Tensor, "..."]:
        """Outputs: (series, outputs), or (rows, outputs) at the knots, or (series, k, outputs) at times.

        Rows are those of `path.series`: read them with `path.series.offsets`. Times are (k,) shared or (series, k).
        """
        self._check(path)
        if at is None:
            if self.pool == "last":
                end = path.interval[:, 1:]
                return self._outputs(self.features(self.solve(path).last[:, None], path, end)[:, 0])
            states = self.solve(path, save="knots").at_knots
            return self._outputs(mean_over_time(self.features_at_rows(states, path), path))
        if isinstance(at, str):
            if at != "knots":
                raise ValueError(f'at={at!r} is not "knots" or a tensor of times.')
            at_rows = self.features_at_rows(self.solve(path, save="knots").at_knots, path)
            return self._outputs(at_rows if self.pool == "last" else running_mean(at_rows, path))
        times = path.asked_times(at)
        there = self.solve(path, save=times).at_times
        assert there is not None
        found = self.features(there, path, times)
        if self.pool == "mean":
            at_rows = self.features_at_rows(self.solve(path, save="knots").at_knots, path)
            found = running_mean_at(found, times, at_rows, path)
        return self._outputs(found)

    def solve(self, path: ControlPath, save: Literal["last", "knots", "dense"] | Tensor = "last") -> Solution:
        """The states behind the outputs, as `solve_cde` gives them."""
        self._check(path)
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

    def features(
        self, states: Float[Tensor, "series k hidden"], path: ControlPath, times: Float[Tensor, "series k"]
    ) -> Float[Tensor, "series k features"]:
        """What the readout sees at times."""
        return states

    def features_at_rows(
        self, states: Float[Tensor, "rows hidden"], path: ControlPath
    ) -> Float[Tensor, "rows features"]:
        """What the readout sees at the rows of the series."""
        return states

    def _outputs(self, features: Float[Tensor, "*batch features"]) -> Float[Tensor, "*batch outputs"]:
        return apply_layers(self.readout, features)

    def _check(self, path: ControlPath) -> None:
        name = type(self).__name__
        if not isinstance(path, ControlPath):
            raise TypeError(
                f"{name} takes a ControlPath, got {type(path).__name__}; build one, e.g. nc.linear(series.with_channels())."
            )
        if path.channels != self.channels:
            raise ValueError(
                f"{name} was made for {self.channels} channels, but the path has {path.channels}: "
                f"{', '.join(path.series.channel_names[:8])}{', ...' if path.channels > 8 else ''}; make it {name}(channels=path.channels, ...)."
            )
        if self.time_channel and "time" not in path.series.roles:
            raise ValueError(
                "the path has no time channel; build it from series.with_channels(), or make the model with time_channel=False."
            )
        features = path.series.static.shape[1]
        if self.static and features != self.static:
            raise ValueError(
                f"{name} was made for {self.static} static features, but the series have {features}; make it {name}(..., static={features})."
            )
        parameter = self.readout.weight
        if parameter.dtype != path.dtype or parameter.device != path.device:
            raise ValueError(
                f"{name} is {parameter.dtype} on {parameter.device}, but the path is {path.dtype} on {path.device}; convert one: "
                "path.to(...) or model.to(...)."
            )


def check_variant(variant: str) -> None:
    """A variant is one of the two there are."""
    if variant not in ("standard", "paper"):
        raise ValueError(f'variant={variant!r} is not "standard" or "paper".')
