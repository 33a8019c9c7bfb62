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
        Paths that are already built; or series, whose paths are built by `build` batch by batch, which needs less
        memory.
    targets
        One target per series, as anything that `torch.as_tensor` accepts; None for no targets.
    per_row
        Whether `targets` has one entry per row of the series instead.
    build
        Function from series to path, e.g. `nc.linear`; required if `source` is series, not allowed otherwise.

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
                "build= is the function from series to path, e.g. build=nc.linear; it is required with series and not "
                "allowed with paths, which are built already."
            )
        self.source, self.build, self.per_row = source, build, per_row
        self.targets: Tensor | None = None if targets is None else torch.as_tensor(targets)
        wanted = len(self.series.times) if per_row else len(source)
        if self.targets is not None and (self.targets.ndim == 0 or len(self.targets) != wanted):
            each = "row" if per_row else "series"
            raise ValueError(f"targets must be one per {each}: {wanted}, got shape {tuple(self.targets.shape)}.")

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, index: ragged.Index) -> Any:
        part, targets = self._part(index)
        path = part if isinstance(part, ControlPath) else self.build(part)  # type: ignore[misc]
        return path if targets is None else (path, targets)

    def subset(self, index: ragged.Index) -> PathDataset:
        """A dataset of these series, in this order."""
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
        """The series that the paths interpolate."""
        return self.source.series if isinstance(self.source, ControlPath) else self.source

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
