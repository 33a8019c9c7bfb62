"""Raw outputs of the members of an ensemble, and their average."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from ..models import PathModel
from ..models.path_model import series_of
from ..paths import PathDataset
from ..series import IrregularSeries, ragged
from ..series.row_features import features_shared
from .boosting import tree_outputs
from .output_checks import check_finite
from .outputs_at import Build, outputs_at, truncated_series
from .preparation import Preparation
from .trees import TreeEnsemble

BATCH_SIZE = 128


def average(outputs: Float[Tensor, "members *cases outputs"], *, boosted: bool) -> Float[Tensor, "*cases outputs"]:
    """The outputs of an ensemble: the mean over its members.

    With `boosted`, the last ones are those of gradient boosting, and the result is the mean of two: the mean of the
    models, and gradient boosting. Computed in float64.
    """
    if len(outputs) == 1:
        return outputs[0]
    exact = outputs.double()
    mean = (exact[:-1].mean(0) + exact[-1]) / 2 if boosted else exact.mean(0)
    return mean.to(outputs.dtype)


def member_outputs(
    modules: Sequence[PathModel],
    trees: TreeEnsemble | None,
    preparation: Preparation,
    series: IrregularSeries,
    data: PathDataset,
) -> Float[Tensor, "members cases outputs"]:
    """Outputs of each model, then of the trees if there are any; `data` is the dataset of the series.

    Raises
    ------
    ValueError
        If an output is not finite.
    """
    of_series = ragged.series_of_rows(series.offsets) if data.per_row else None
    found = _of_modules(modules, data)
    for outputs in found:
        check_finite(outputs, series, of_series=of_series)
    if trees is not None:
        rows = torch.arange(len(series.times)) if data.per_row else None
        outputs = tree_outputs(trees, preparation, series, rows).to(found[0].dtype)
        check_finite(outputs, series, of_series=of_series)
        found.append(outputs)
    return torch.stack(found)


@torch.no_grad()
def _of_modules(modules: Sequence[PathModel], data: PathDataset) -> list[Float[Tensor, "cases outputs"]]:
    """Outputs of each model, batch by batch, so that the models share what is known at the rows of a batch."""
    batches = []
    for batch in torch.split(torch.arange(len(data)), BATCH_SIZE) if len(data) else ():
        given = data.subset(batch).inputs
        with features_shared(series_of(given).values):
            batches.append([module(given, at="knots" if data.per_row else None).cpu() for module in modules])
    return [torch.cat(outputs) for outputs in zip(*batches, strict=True)]


def member_outputs_at(
    modules: Sequence[PathModel],
    trees: TreeEnsemble | None,
    preparation: Preparation,
    build: Build,
    series: IrregularSeries,
    asked: Tensor,
) -> Float[Tensor, "members series k outputs"]:
    """Outputs of each model at given times, then of the trees if there are any; see `outputs_at`."""
    found = [outputs_at(module, build, preparation.scheme, series, asked) for module in modules]
    if trees is not None:
        outputs = torch.full_like(found[0], torch.nan)
        for at, known in truncated_series(series, asked):
            outputs[at] = tree_outputs(trees, preparation, known).to(outputs.dtype)
            check_finite(outputs[at], series, of_series=at[0])
        found.append(outputs)
    return torch.stack(found)
