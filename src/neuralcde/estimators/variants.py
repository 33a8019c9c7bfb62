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
from ..models.branches import Branches, can_branch, can_vary
from ..models.variations import RowHistory, Variations, with_empty_rows
from ..paths import ControlPath
from ..series import IrregularSeries, ragged
from ..series.until import cut_after
from .boosting import features_of_prepared, features_of_variations
from .ensembles import average
from .output_checks import check_finite
from .preparation import Preparation
from .trees import TreeEnsemble

CELLS = 1 << 22  # most values of truncated series that are held at once
COLUMNS = 32  # numbers per channel that a variant of a row takes, about


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
        features = None if self.trees is None else features_of_prepared(self.preparation, prepared, rows)
        return self._mean(found, features, prepared, rows)

    def of_variations(self, found: Sequence[Tensor], part: Variations) -> Float[Tensor, "cases outputs"]:
        """The same for rows of which only some channels are observed."""
        features = None if self.trees is None else features_of_variations(self.preparation, part)
        return self._mean(found, features, part.history.series, part.row)

    def _mean(
        self, found: Sequence[Tensor], features: Tensor | None, series: IrregularSeries, rows: Tensor
    ) -> Float[Tensor, "cases outputs"]:
        outputs = [part.cpu() for part in found]
        if self.trees is not None and features is not None:
            outputs.append(self.trees(features).to(outputs[0].dtype))
        mean = average(torch.stack(outputs), boosted=self.trees is not None)
        check_finite(mean, series, of_series=ragged.series_of(series.offsets, rows))
        return mean

    def at_the_end(self, prepared: IrregularSeries) -> Float[Tensor, "series outputs"]:
        """The outputs for whole prepared series."""
        given = self.given(prepared)
        return self.averaged([module(given) for module in self.modules], prepared, prepared.offsets[1:] - 1)


class Variants:
    """Outputs for series as they were at each of their rows, had only a part of the row been observed.

    The series are solved once. A variant of a row then takes one solve of the gap before it, from what is known at its
    row (`can_vary`), or else from the truncated series, if the model allows branches at all (`can_branch`). Otherwise
    the truncated series is solved.

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

    at_rows: Float[Tensor, "rows outputs"]

    def __init__(self, ensemble: Ensemble, scaled: IrregularSeries):
        self.ensemble, self.scaled = ensemble, scaled
        add = ensemble.preparation.with_channels
        prepared, scheme = add(scaled), ensemble.preparation.scheme
        given = ensemble.given(prepared)
        self.device = given.device
        self.branches: list[Branches | None] = [
            Branches(module, given, scheme) if isinstance(module, SolvedModel) and can_branch(module, scheme) else None
            for module in ensemble.modules
        ]
        self.varying = all(known is not None and can_vary(known.model, scheme) for known in self.branches)
        self.history = RowHistory(prepared, add(with_empty_rows(scaled)))
        rows = torch.arange(len(scaled.times))
        if None in self.branches:
            self.at_rows = self(rows, scaled.observed)
        else:
            found = [known.at_rows(rows.to(self.device)) for known in self.branches if known is not None]
            self.at_rows = ensemble.averaged(found, prepared, rows)

    def __call__(
        self, row: Int[Tensor, " cases"], shown: Bool[Tensor, "cases channels"]
    ) -> Float[Tensor, "cases outputs"]:
        """The outputs at some rows, had only the shown channels been observed in them."""
        series = self.scaled
        first = series.offsets[ragged.series_of(series.offsets, row)]
        outputs = torch.zeros(len(row), self.ensemble.modules[0].outputs)
        quick = (row > first) & self.varying
        for chosen, compute, length in (
            (quick, self._branched, torch.full_like(row, COLUMNS)),
            (~quick, self._truncated, row - first + 1),
        ):
            place = chosen.nonzero()[:, 0]
            block = length[place].cumsum(0) * series.channels // CELLS
            sizes = torch.unique_consecutive(block, return_counts=True)[1].tolist()
            for some in torch.split(place, sizes) if len(place) else ():
                outputs[some] = compute(row[some], shown[some])
        return outputs

    def _branched(self, row: Tensor, shown: Tensor) -> Float[Tensor, "cases outputs"]:
        """From what is known at each row; none of them is the first of its series."""
        part = Variations(self.history, row, shown)
        there = part if self.device.type == "cpu" else part.to(self.device)
        found = [known.of_variations(there).cpu() for known in self.branches if known is not None]
        return self.ensemble.of_variations(found, part)

    def _truncated(self, row: Tensor, shown: Tensor) -> Float[Tensor, "cases outputs"]:
        """From truncated series."""
        scaled, ensemble = self.scaled, self.ensemble
        cut = cut_after(scaled, ragged.series_of(scaled.offsets, row), row, scaled.times[row])
        last = cut.offsets[1:] - 1
        values = cut.values.index_copy(0, last, cut.values[last].masked_fill(~shown, torch.nan))
        prepared = ensemble.preparation.with_channels(dataclasses.replace(cut, values=values))
        given = ensemble.given(prepared)
        alone = prepared.lengths == 1  # nothing to branch from
        found = []
        for module, known in zip(ensemble.modules, self.branches, strict=True):
            if known is None:
                found.append(module(given))
                continue
            outputs = known.states.new_empty(len(row), module.outputs)
            for chosen, whole in ((alone, True), (~alone, False)):
                place = chosen.nonzero()[:, 0]
                if len(place):
                    part = given if len(place) == len(row) else given.at(place)
                    outputs[place] = module(part) if whole else known.after_rows(row[place].to(self.device) - 1, part)
            found.append(outputs)
        return ensemble.averaged(found, prepared, last)
