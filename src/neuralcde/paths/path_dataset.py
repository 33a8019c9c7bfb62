"""A `torch.utils.data.Dataset` of control paths and their targets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from ..series import IrregularSeries, ragged
from .control_path import ControlPath


class PathDataset(Dataset[Any]):
    """A dataset with one path per series, and optional targets, for a `DataLoader`.

    A batch is indexed out of the whole path in one operation, by the positions of its series. Nothing is computed again
    and nothing is padded.

    Parameters
    ----------
    source
        Paths that are already built; or series, from which `build` makes each batch, which needs less memory.
    targets
        One target per series, as anything that `torch.as_tensor` accepts; None for no targets.
    per_row
        Whether `targets` has one entry per row of the series instead.
    weights
        One weight per target, which training gives to the target's loss; None for equal weights.
    auxiliary
        One target per row for a second loss in training, NaN where unknown; None for none.
    build
        Function that makes a batch of series, e.g. `nc.linear`; not allowed if `source` is paths. Without it, series
        stay series, for models that build their paths themselves.

    Examples
    --------
    >>> import torch, neuralcde as nc
    >>> series = nc.IrregularSeries.from_list([([0.0, 1.0, 2.0], torch.randn(3, 2)) for _ in range(10)])
    >>> data = nc.PathDataset(nc.linear(series.with_channels()), torch.arange(10))
    >>> [(len(path), y.tolist()) for path, y in data.loader(batch_size=4)]
    [(4, [0, 1, 2, 3]), (4, [4, 5, 6, 7]), (2, [8, 9])]
    """

    def __init__(
        self,
        source: ControlPath | IrregularSeries,
        targets: Any = None,
        *,
        per_row: bool = False,
        weights: Any = None,
        auxiliary: Any = None,
        build: Callable[[IrregularSeries], ControlPath | IrregularSeries] | None = None,
    ):
        if isinstance(source, ControlPath) and build is not None:
            raise ValueError("build= makes paths of series, e.g. build=nc.linear; these paths are built already.")
        self.source, self.build, self.per_row = source, build, per_row
        self.targets: Tensor | None = None if targets is None else torch.as_tensor(targets)
        wanted = len(self.series.times) if per_row else len(source)
        if self.targets is not None and (self.targets.ndim == 0 or len(self.targets) != wanted):
            each = "row" if per_row else "series"
            raise ValueError(f"targets must be one per {each}: {wanted}, got shape {tuple(self.targets.shape)}.")
        self.weights: Tensor | None = None if weights is None else torch.as_tensor(weights)
        if self.weights is not None and (self.targets is None or self.weights.shape != (wanted,)):
            raise ValueError(f"weights must be one per target: {wanted}, got shape {tuple(self.weights.shape)}.")
        self.auxiliary: Tensor | None = None if auxiliary is None else torch.as_tensor(auxiliary)
        rows = len(self.series.times)
        if self.auxiliary is not None and (self.auxiliary.ndim == 0 or len(self.auxiliary) != rows):
            raise ValueError(f"auxiliary must be one target per row: {rows}, got shape {tuple(self.auxiliary.shape)}.")

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, index: ragged.Index) -> Any:
        part = self.subset(index)
        return part.inputs if part.targets is None else (part.inputs, part.targets)

    def subset(self, index: ragged.Index) -> PathDataset:
        """A dataset of these series, in this order."""
        chosen = ragged.positions(index, len(self))
        part = self.source.at(chosen)
        rows = chosen
        if self.per_row or self.auxiliary is not None:
            rows, _ = ragged.select(self.series.offsets, chosen)
        cases = rows if self.per_row else chosen
        targets, weights = (None if of is None else of[cases] for of in (self.targets, self.weights))
        auxiliary = None if self.auxiliary is None else self.auxiliary[rows]
        return PathDataset(part, targets, per_row=self.per_row, weights=weights, auxiliary=auxiliary, build=self.build)

    @property
    def inputs(self) -> ControlPath | IrregularSeries:
        """What a model gets: all paths, built now if there is `build`; or the series, without `build`."""
        return self.source if isinstance(self.source, ControlPath) or self.build is None else self.build(self.source)

    @property
    def series(self) -> IrregularSeries:
        """The series that the paths interpolate."""
        return self.source.series if isinstance(self.source, ControlPath) else self.source

    @property
    def row_weights(self) -> Tensor | None:
        """The weight of every row: that of its target, or of its series; None for equal weights."""
        if self.weights is None or self.per_row:
            return self.weights
        return self.weights.repeat_interleave(self.series.lengths)

    def __getitems__(self, indices: Sequence[int]) -> Any:
        """A whole batch at once; `DataLoader` calls this in place of `__getitem__` per item."""
        return self[list(indices)]

    def loader(self, batch_size: int = 32, *, shuffle: bool = False, **options: Any) -> DataLoader[Any]:
        """A `DataLoader` of paths, or of pairs (path, targets); `options` are passed to its constructor."""
        if not shuffle:  # a DataLoader draws a seed even without shuffling: keep it off the global generator
            options.setdefault("generator", torch.Generator())
        return DataLoader(self, batch_size=batch_size, shuffle=shuffle, collate_fn=_identity, **options)


def _identity(batch: Any) -> Any:
    return batch
