"""Outputs at times between rows: each asked time is a branch from the last row before it."""

from __future__ import annotations

import dataclasses

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..paths import ControlPath, PathScheme
from ..series import IrregularSeries
from ..solve import Adaptive, solve
from .path_model import PathModel, series_of
from .pooling import longer_mean, running_mean
from .readout import Seen
from .solved_model import SolvedModel

Given = ControlPath | IrregularSeries


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


class Branches:
    """The states of a model at the rows of series, and its outputs at these rows and at times after them.

    Parameters
    ----------
    model
        A model that `can_branch`.
    given
        The series, or their paths.
    """

    def __init__(self, model: SolvedModel, given: Given):
        self.model, self.path, self.given = model, model.driving_path(given), series_of(given)
        states = model.trajectory(self.path, rows=True).at_rows
        assert states is not None
        self.states = states
        self.features = model.features_at_rows(self.states, self.path)
        self.means = None if model.pool == "last" else running_mean(self.features, self.path)

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
        end = path.series.offsets[1:] - 1
        state = self._last_states(path, self.states[row])
        found = model.features(state[:, None], path, path.knots[end][:, None])[:, 0]
        mean = None
        if self.means is not None:
            start, since, now = path.knots[path.series.offsets[:-1]], path.knots[end - 1], path.knots[end]
            mean = longer_mean(self.means[row], since - start, self.features[row], found, now - since)
        return model.readout(Seen(model.pooled(found, mean), path, end, series_of(given)))  # type: ignore[no-any-return]

    def _last_states(self, path: ControlPath, z: Float[Tensor, "asked hidden"]) -> Float[Tensor, "asked hidden"]:
        """The states at the ends of paths, from those at the last row but one of each: only the last gap is solved."""
        offsets, model = path.series.offsets, self.model
        last = offsets[1:] - 1
        rows = torch.stack([last - 1, last], dim=1).flatten()
        gap = torch.arange(-path.pieces_per_gap, 0, device=path.device)
        pieces = (path.piece_offsets[1:, None] + gap).flatten()
        series = dataclasses.replace(
            path.series,
            times=path.series.times[rows],
            values=path.series.values[rows],
            offsets=torch.arange(len(path) + 1, device=path.device) * 2,
        )
        # Inputs of a cell may depend on all rows, e.g. on the time since the last observation. The state at the last
        # row but one is the one after its jump.
        jump = model.jump(path)
        if jump is not None:
            again = jump.rows[rows].index_fill(0, series.offsets[:-1], False)
            jump = dataclasses.replace(jump, inputs=jump.inputs[rows], rows=again)
        return solve(
            dataclasses.replace(path, series=series, coefficients=path.coefficients[pieces]),
            z,
            flow=model.flow(),
            jump=jump,
            solver=model.solver,
            steps=model.steps,
            gradient=model.gradient,
            start=path.knots[offsets[:-1]],
        ).last
