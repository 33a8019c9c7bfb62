"""Outputs of an ensemble for series of which the last row is known in part."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ..models import PathModel, SolvedModel
from ..models.branches import Branches, can_branch
from ..paths import ControlPath
from ..series import IrregularSeries, ragged
from ..series.until import cut_after
from .boosting import features_of_prepared
from .ensembles import average
from .output_checks import check_finite
from .preparation import Preparation
from .trees import TreeEnsemble

CELLS = 1 << 22  # most values of truncated series that are held at once


@dataclass(frozen=True, eq=False)
class Ensemble:
    """Fitted models, perhaps trees, and what they have in common.

    Parameters
    ----------
    modules, trees
        The models, and gradient boosting or None.
    preparation
        The preprocessing.
    device
        Device of the models.
    """

    modules: Sequence[PathModel]
    trees: TreeEnsemble | None
    preparation: Preparation
    device: Any

    def given(self, prepared: IrregularSeries) -> ControlPath | IrregularSeries:
        """What the models take, made of prepared series."""
        made = prepared if self.preparation.encoded else self.preparation.path(prepared)
        return made.to(self.device)

    def averaged(
        self, found: Sequence[Tensor], prepared: IrregularSeries, rows: Int[Tensor, " cases"]
    ) -> Float[Tensor, "cases outputs"]:
        """The mean of the outputs of the models, and of the trees, at some rows of prepared series."""
        outputs = [part.cpu() for part in found]
        if self.trees is not None:
            outputs.append(self.trees(features_of_prepared(self.preparation, prepared, rows)).to(outputs[0].dtype))
        mean = average(torch.stack(outputs), boosted=self.trees is not None)
        check_finite(mean, prepared, of_series=ragged.series_of(prepared.offsets, rows))
        return mean

    def at_the_end(self, prepared: IrregularSeries) -> Float[Tensor, "series outputs"]:
        """The outputs for whole prepared series."""
        given = self.given(prepared)
        return self.averaged([module(given) for module in self.modules], prepared, prepared.offsets[1:] - 1)


class Variants:
    """Outputs for series as they were at each of their rows, had only a part of the row been observed.

    The series are solved once. A variant of a row then takes one solve of the gap before it, if the model allows it
    (`can_branch`); otherwise the truncated series is solved.

    Parameters
    ----------
    ensemble
        The fitted models.
    scaled
        The series, scaled but without added channels.

    Attributes
    ----------
    at_rows
        The outputs at each row, as the series are: those for the series until then.
    """

    def __init__(self, ensemble: Ensemble, scaled: IrregularSeries):
        self.ensemble, self.scaled = ensemble, scaled
        prepared = ensemble.preparation.with_channels(scaled)
        given, scheme = ensemble.given(prepared), ensemble.preparation.scheme
        self._branches = [
            Branches(module, given) if isinstance(module, SolvedModel) and can_branch(module, scheme) else None
            for module in ensemble.modules
        ]
        rows = torch.arange(len(scaled.times))
        if None in self._branches:
            self.at_rows: Float[Tensor, "rows outputs"] = self(rows, scaled.observed)
        else:
            found = [known.at_rows(rows.to(given.device)) for known in self._branches if known is not None]
            self.at_rows = ensemble.averaged(found, prepared, rows)

    def __call__(
        self, row: Int[Tensor, " cases"], shown: Bool[Tensor, "cases channels"]
    ) -> Float[Tensor, "cases outputs"]:
        """The outputs at some rows, had only the shown channels been observed in them; rows in increasing order."""
        series = self.scaled
        if not len(row):
            return torch.zeros(0, self.ensemble.modules[0].outputs)
        found = []
        begun = ragged.series_of_rows(series.offsets)
        held = (row - series.offsets[begun[row]] + 1).cumsum(0) * series.channels // CELLS
        for some in torch.split(torch.arange(len(row)), torch.unique_consecutive(held, return_counts=True)[1].tolist()):
            at = row[some]
            cut = cut_after(series, begun[at], at, series.times[at])
            last = cut.offsets[1:] - 1
            values = cut.values.index_copy(0, last, cut.values[last].masked_fill(~shown[some], torch.nan))
            found.append(self._outputs(at, dataclasses.replace(cut, values=values)))
        return torch.cat(found)

    def _outputs(self, row: Int[Tensor, " cases"], cut: IrregularSeries) -> Float[Tensor, "cases outputs"]:
        ensemble = self.ensemble
        prepared = ensemble.preparation.with_channels(cut)
        given = ensemble.given(prepared)
        alone = prepared.lengths == 1  # nothing to branch from
        found = []
        for module, known in zip(ensemble.modules, self._branches, strict=True):
            if known is None:
                found.append(module(given))
                continue
            outputs = torch.empty(len(row), module.outputs, device=given.device, dtype=known.states.dtype)
            for chosen, solved in ((alone, module), (~alone, None)):
                place = chosen.nonzero()[:, 0]
                if len(place):
                    part = given if len(place) == len(row) else given.at(place)
                    before = row[place].to(given.device) - 1
                    outputs[place] = known.after_rows(before, part) if solved is None else solved(part)
            found.append(outputs)
        return ensemble.averaged(found, prepared, prepared.offsets[1:] - 1)
