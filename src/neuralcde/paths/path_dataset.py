"""Paths and their targets, batch by batch, for `torch.utils.data.DataLoader`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from ..series import IrregularSeries, ragged
from .control_path import ControlPath


class PathDataset(Dataset[Any]):
    """A path a series, with or without a target: what a `DataLoader` takes.

    A batch is sliced out of the path as a whole, by the numbers of its series; nothing is computed again and nothing padded.

    Parameters
    ----------
    source
        Paths, built once; or series, of which each batch is built by `build` when its turn comes, which needs less memory.
    targets
        One a series, anything that becomes a tensor; None for none.
    per_row
        Whether there is a target for every row of the series instead.
    build
        From series to path, e.g. `nc.linear`; only with series.

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
        build: Callable[[IrregularSeries], ControlPath] | None = None,
    ):
        if isinstance(source, IrregularSeries) == (build is None):
            raise ValueError(
                "series need build=, the function that makes a path of them, e.g. build=nc.linear; paths are built already."
            )
        self.source, self.build, self.per_row = source, build, per_row
        self.targets: Tensor | None = None if targets is None else torch.as_tensor(targets)
        wanted = len(self.series.times) if per_row else len(source)
        if self.targets is not None and (self.targets.ndim == 0 or len(self.targets) != wanted):
            each = "row" if per_row else "series"
            raise ValueError(f"targets must be one a {each}: {wanted}, got shape {tuple(self.targets.shape)}.")

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, index: ragged.Index) -> Any:
        part, targets = self._part(index)
        path = part if isinstance(part, ControlPath) else self.build(part)  # type: ignore[misc]
        return path if targets is None else (path, targets)

    def subset(self, index: ragged.Index) -> PathDataset:
        """These series, in this order, as data of their own."""
        part, targets = self._part(index)
        return PathDataset(part, targets, per_row=self.per_row, build=self.build)

    def _part(self, index: ragged.Index) -> tuple[ControlPath | IrregularSeries, Tensor | None]:
        chosen = ragged.positions(index, len(self))
        part = self.source.at(chosen)
        if self.per_row:
            chosen, _ = ragged.select(self.series.offsets, chosen)
        return part, None if self.targets is None else self.targets[chosen]

    @property
    def series(self) -> IrregularSeries:
        """The series that the paths are of."""
        return self.source.series if isinstance(self.source, ControlPath) else self.source

    def __getitems__(self, indices: Sequence[int]) -> Any:
        """A whole batch at once, as a `DataLoader` asks for it."""
        return self[list(indices)]

    def loader(self, batch_size: int = 32, *, shuffle: bool = False, **options: Any) -> DataLoader[Any]:
        """A `DataLoader` of batches: a path, or a pair of path and targets; options as there."""
        if not shuffle:  # a DataLoader draws a number in any case: not from the global generator
            options.setdefault("generator", torch.Generator())
        return DataLoader(self, batch_size=batch_size, shuffle=shuffle, collate_fn=_as_it_is, **options)


def _as_it_is(batch: Any) -> Any:
    return batch
