"""The data of a fit: series, encoded targets and weights, and the datasets that are made of parts of them."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..contracts import ArgumentError
from ..paths import ControlPath, PathDataset
from ..series import IrregularSeries, ragged
from ..tasks import Task
from .auxiliary import Auxiliary
from .preparation import Preparation

# Number of values above which paths, or the series for an encoder, are made per batch, to save memory.
LARGE, LARGE_SERIES = 2**24, 2**26


@dataclass(frozen=True, eq=False)
class TrainingData:
    """What all members of an ensemble are trained on; each has its own training and validation series among them.

    Parameters
    ----------
    series
        All series that were given to `fit`.
    targets
        Encoded targets, one per series; with `per_row`, one per row.
    weights
        One weight per series; None for equal weights.
    held_out
        Series and encoded targets that were given for validation; None if it is on some of the series.
    auxiliary
        The auxiliary task and its targets, one per row; None for none.
    task, preparation
        The task, and the preprocessing.
    per_row
        Whether there is a target per row.
    per_batch
        Whether each batch is prepared when it is needed.
    device
        Device of the computation.
    soft
        Targets of training, if they are not `targets`; see `soft_targets`.
    """

    series: IrregularSeries
    targets: Tensor
    weights: NDArray[Any] | None
    held_out: tuple[IrregularSeries, Tensor] | None
    auxiliary: Auxiliary | None
    task: Task
    preparation: Preparation
    per_row: bool
    per_batch: bool
    device: Any
    soft: Tensor | None = None

    def part(self, chosen: NDArray[Any], *, soft: bool = False) -> PathDataset:
        """The dataset of the series at these positions, with their `soft` targets where there are some."""
        targets = self.soft if soft and self.soft is not None else self.targets
        second = None
        if self.auxiliary is not None:
            rows, _ = ragged.select(self.series.offsets, torch.from_numpy(chosen))
            second = self.auxiliary.targets[rows]
        weight = None if self.weights is None else torch.from_numpy(self.weights[chosen])
        if weight is not None and self.per_row:
            weight = weight.repeat_interleave(self.series[chosen].lengths)
        return dataset_of(
            self.series[chosen] if self.large else self._prepared[chosen],
            self.preparation,
            targets[self.cases(chosen)],
            weight,
            second,
            per_row=self.per_row,
            device=self.device,
            per_batch=self.per_batch,
            prepared=not self.large,
        )

    @property
    def large(self) -> bool:
        """Whether each batch is prepared when it is needed."""
        return self.per_batch or is_large(self.series, self.preparation)

    @functools.cached_property
    def _prepared(self) -> IrregularSeries:
        """All series, prepared: once for all members that are trained in this process."""
        return self.preparation.series(self.series)

    def prepared(self, chosen: NDArray[Any]) -> IrregularSeries:
        """The prepared series at these positions."""
        return self.preparation.series(self.series[chosen]) if self.large else self._prepared[chosen]

    def validation(self, chosen: NDArray[Any]) -> PathDataset | None:
        """The dataset for validation: that of the series that were given for it, or of those at these positions."""
        if self.held_out is not None:
            series, targets = self.held_out
            return dataset_of(series, self.preparation, targets, per_row=self.per_row, device=self.device)
        return self.part(chosen) if len(chosen) else None

    def cases(self, chosen: NDArray[Any]) -> Any:
        """Positions of the targets of the series at these positions."""
        return ragged.select(self.series.offsets, torch.from_numpy(chosen))[0] if self.per_row else chosen

    def case_weights(self) -> NDArray[Any] | None:
        """The weight of every target."""
        if self.weights is None or not self.per_row:
            return self.weights
        return np.repeat(self.weights, self.series.lengths.numpy())


def encoded_validation(
    series: IrregularSeries, targets: NDArray[Any], task: Task, preparation: Preparation
) -> tuple[IrregularSeries, Tensor]:
    """The series and targets that were given for validation, with targets as the task encodes them."""
    try:
        preparation.warn_of_far_values(preparation.scaler.far_values(series))
        return series, task.encode(targets)
    except ValueError as reason:
        raise ArgumentError(f"validation: {reason}", argument="validation") from reason


def dataset_of(
    series: IrregularSeries,
    preparation: Preparation,
    targets: Tensor | None = None,
    weights: Tensor | None = None,
    auxiliary: Tensor | None = None,
    *,
    per_row: bool,
    device: Any,
    per_batch: bool = False,
    prepared: bool = False,
) -> PathDataset:
    """The dataset of these series, as paths, or as prepared series if the model has an encoder.

    For large data, or with `per_batch`, each batch is prepared when it is needed; `prepared` series are ready already.
    """

    def made(part: IrregularSeries) -> ControlPath | IrregularSeries:
        found = part if prepared else preparation.series(part)
        return (found if preparation.encoded else preparation.path(found)).to(device)

    large = not prepared and (per_batch or is_large(series, preparation))
    return PathDataset(
        series if large else made(series),
        None if targets is None else targets.to(device),
        per_row=per_row,
        weights=None if weights is None else weights.to(device),
        auxiliary=None if auxiliary is None else auxiliary.to(device),
        build=made if large else None,
    )


def is_large(series: IrregularSeries, preparation: Preparation) -> bool:
    """Whether paths of these series, or the prepared series for an encoder, are only made batch by batch."""
    return series.values.numel() > (LARGE_SERIES if preparation.encoded else LARGE)
