"""Outputs at times between rows: each asked time is a branch from the last row before it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..paths import ControlPath, PathScheme
from ..series import IrregularSeries, ragged
from ..solve import Adaptive, Jump, solve
from .jump_model import JumpModel
from .observations import Observations
from .path_model import PathModel, series_of
from .pooling import longer_mean, running_mean
from .readout import Seen, SeenVariation
from .solved_model import SolvedModel
from .variations import RowHistory, Variations

Given = ControlPath | IrregularSeries
READING = ("path", "features", "jump", "cell_inputs")  # methods that could look at earlier rows, if users wrote them


def can_branch(model: PathModel, scheme: PathScheme) -> bool:
    """Whether the state at a row stays the same when rows after it are removed, so that branches can start from it.

    Parameters
    ----------
    model
        The model. With an encoder, its own scheme counts.
    scheme
        The scheme of the paths that the model is given.
    """
    if not isinstance(model, SolvedModel) or isinstance(model.steps, Adaptive):
        return False  # an adaptive step depends on the steps before it, so that a branch would take other steps
    own = type(model).forward is PathModel.forward and type(model).trajectory is SolvedModel.trajectory
    return own and (scheme if model.encoder is None else model.scheme).causality != "none"


def can_vary(model: SolvedModel, scheme: PathScheme) -> bool:
    """Whether branches to `Variations` can be solved: all that the model sees of earlier rows is known at each row."""
    own = scheme if model.encoder is None else model.scheme
    parts = [(own, "memory", "build"), (model.readout, "varies", "forward"), (model.encoder, "varies", "forward")]
    said = all(part is None or (getattr(part, flag) and _said_of(part, flag, method)) for part, flag, method in parts)
    methods = [getattr(type(model), name, PathModel.path) for name in READING]
    return said and all(method.__module__.startswith(f"{__package__}.") for method in methods)


def _said_of(part: object, flag: str, method: str) -> bool:
    """Whether a class that says something of its method does not have that method changed by a subclass."""
    place = [next(k for k, kind in enumerate(type(part).__mro__) if name in vars(kind)) for name in (flag, method)]
    return place[0] <= place[1]


class Branches:
    """The states of a model at the rows of series, and its outputs at these rows and at times after them.

    Parameters
    ----------
    model
        A model that `can_branch`.
    given
        The series, or their paths.
    scheme
        The scheme of these paths.
    """

    def __init__(self, model: SolvedModel, given: Given, scheme: PathScheme):
        self.model, self.path, self.given = model, model.driving_path(given), series_of(given)
        self.scheme = scheme if model.encoder is None else model.scheme
        states = model.trajectory(self.path, rows=True).at_rows
        assert states is not None
        self.states = states
        self.features = model.features_at_rows(self.states, self.path)
        self.means = None if model.pool == "last" else running_mean(self.features, self.path)
        self._of_doubled: Observations | None = None

    def at_rows(self, row: Int[Tensor, " asked"]) -> Float[Tensor, "asked outputs"]:
        """The outputs at these rows."""
        found = self.model.pooled(self.features[row], None if self.means is None else self.means[row])
        return self.model.readout(Seen(found, self.path, row, self.given))  # type: ignore[no-any-return]

    def after_rows(self, row: Int[Tensor, " asked"], given: Given) -> Float[Tensor, "asked outputs"]:
        """The outputs at the ends of other paths, each of which is known up to its last row but one.

        Parameters
        ----------
        row
            For each path, the row of these series that is its last row but one.
        given
            The truncated series, or their paths: the rows up to `row`, then one more, empty or not.
        """
        model, path = self.model, self.model.driving_path(given)
        jump, last = model.jump(path), path.series.offsets[1:] - 1
        if jump is not None:
            jump = dataclasses.replace(jump, inputs=jump.inputs[last], rows=jump.rows[last])
        return self._outputs(row, path, jump, lambda state: Seen(state, path, last, series_of(given)))

    def of_variations(self, part: Variations) -> Float[Tensor, "cases outputs"]:
        """The outputs at rows, none of them the first of its series, of which some channels are observed.

        The same as `after_rows` for series that were truncated and changed, but the earlier rows are not looked at
        again. The model must allow it (`can_vary`).
        """
        model, row = self.model, part.row
        path = self._last_gaps(part)
        jump: Jump | None = None
        if isinstance(model, JumpModel):
            last = path.series.offsets[1:] - 1
            if model.encoder is None:
                seen = part.observations(path, self._doubled(part.history))
                jump = Jump(model.cell, model.cell_inputs(seen), seen.jumps)
            else:
                whole = model.jump(path)
                jump = dataclasses.replace(whole, inputs=whole.inputs[last], rows=whole.rows[last])
        return self._outputs(row - 1, path, jump, lambda state: SeenVariation(state, path, row, self.given, part))

    def _last_gaps(self, part: Variations) -> ControlPath:
        """Paths through the last few rows up to that of each case; only their last gaps count."""
        model, series, row = self.model, self.path.series, part.row
        values = part.values() if model.encoder is None else None
        if values is None:
            assert model.encoder is not None
            time = self.path.at_rows()[row, :1]  # the first channel of encoded series
            values = torch.cat([time, model.encoder.of_variations(part)], dim=1)
        offsets = ragged.offsets_of((row - series.offsets[part.series] + 1).clamp(max=self.scheme.memory + 1))
        of_row = ragged.series_of_rows(offsets)
        rows = row[of_row] - (offsets[1:][of_row] - 1 - torch.arange(len(of_row), device=row.device))
        return self.scheme.build(
            dataclasses.replace(
                series,
                times=series.times[rows],
                values=self.path.at_rows()[rows].index_copy(0, offsets[1:] - 1, values),
                offsets=offsets,
                static=series.static[part.series],
                ids=series.ids[part.series.cpu().numpy()],
            )
        )

    def _doubled(self, history: RowHistory) -> Observations:
        """The observations of the doubled series."""
        if self._of_doubled is None:
            self._of_doubled = Observations(dataclasses.replace(self.path, series=history.doubled))
        return self._of_doubled

    def _outputs(
        self,
        row: Int[Tensor, " asked"],
        path: ControlPath,
        jump: Jump | None,
        seen: Callable[[Tensor], Seen],
    ) -> Float[Tensor, "asked outputs"]:
        """The outputs at the ends of paths.

        Parameters
        ----------
        row
            For each path, the row of these series from which its last gap is solved.
        path
            The paths.
        jump
            The jump at the end of each path.
        seen
            Function from states to the input of the readout.
        """
        model, first = self.model, self.path.series.offsets[:-1]
        end = path.series.offsets[1:] - 1
        start = self.path.knots[first[ragged.series_of(self.path.series.offsets, row)]]
        state = self._last_states(path, self.states[row], jump, start)
        found = model.features(state[:, None], path, path.knots[end][:, None])[:, 0]
        mean = None
        if self.means is not None:
            since, now = path.knots[end - 1], path.knots[end]
            mean = longer_mean(self.means[row], since - start, self.features[row], found, now - since)
        return model.readout(seen(model.pooled(found, mean)))  # type: ignore[no-any-return]

    def _last_states(
        self, path: ControlPath, z: Float[Tensor, "asked hidden"], jump: Jump | None, start: Float[Tensor, " asked"]
    ) -> Float[Tensor, "asked hidden"]:
        """The states at the ends of paths, from those at the last row but one of each: only the last gap is solved."""
        last = path.series.offsets[1:] - 1
        rows = torch.stack([last - 1, last], dim=1).flatten()
        gap = torch.arange(-path.pieces_per_gap, 0, device=path.device)
        pieces = (path.piece_offsets[1:, None] + gap).flatten()
        series = dataclasses.replace(
            path.series,
            times=path.series.times[rows],
            values=path.series.values[rows],
            offsets=torch.arange(len(path) + 1, device=path.device) * 2,
        )
        if jump is not None:  # the state at the last row but one is the one after its jump
            ends = torch.stack([torch.zeros_like(jump.rows), jump.rows], dim=1).flatten()
            jump = dataclasses.replace(jump, inputs=jump.inputs.repeat_interleave(2, dim=0), rows=ends)
        model = self.model
        return solve(
            dataclasses.replace(path, series=series, coefficients=path.coefficients[pieces]),
            z,
            flow=model.flow(),
            jump=jump,
            solver=model.solver,
            steps=model.steps,
            gradient=model.gradient,
            start=start,
        ).last
