"""Rows of which only some channels are observed: what is known there, without going through earlier rows again."""

from __future__ import annotations

import dataclasses
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ..paths import ControlPath
from ..series import IrregularSeries, ragged
from ..series.row_features import row_features
from .observations import Observations


class RowHistory:
    """What is known at every row, with and without the row's observations.

    Everything that is known of a channel at a row (its last value, its mean, its count, the time since it was measured)
    depends on the earlier rows, and on whether this channel is observed at this row. Other channels do not matter. So
    two cases per row and channel are enough for all subsets of the row's channels. They are computed in one pass over
    series in which a row without observations stands before each row, at the same time.

    Parameters
    ----------
    series
        The series, with added channels.
    doubled
        The same, made of `with_empty_rows`.
    """

    def __init__(self, series: IrregularSeries, doubled: IrregularSeries):
        self.series, self.doubled = series, doubled
        self._features: dict[tuple[str, ...], Tensor] = {}

    def features(self, families: tuple[str, ...]) -> Float[Tensor, "rows features"]:
        """The features of the data channels at the rows of `doubled`."""
        if families not in self._features:
            series, data = self.doubled, [k for k, role in enumerate(self.doubled.roles) if role == "data"]
            values = series.values[:, data[0] : data[-1] + 1]
            self._features[families] = row_features(series.times, values, series.offsets, families)
        return self._features[families]

    @cached_property
    def filled(self) -> Float[Tensor, "rows channels"]:
        """The values of the rows of `doubled`, carried forward."""
        return ragged.forward_fill(self.doubled.values, self.doubled.observed, self.doubled.offsets)


def with_empty_rows(series: IrregularSeries) -> IrregularSeries:
    """The series with a row without observations before each row, at the same time; for `RowHistory` alone."""
    empty = torch.full_like(series.values, torch.nan)
    return dataclasses.replace(
        series,
        times=series.times.repeat_interleave(2),
        values=torch.stack([empty, series.values], dim=1).flatten(0, 1),
        offsets=series.offsets * 2,
    )


@dataclasses.dataclass(frozen=True, eq=False)
class Variations:
    """Some rows, each with the data channels that are observed there; the others count as not observed.

    Parameters
    ----------
    history
        What is known at every row.
    row
        The rows.
    shown
        The data channels that are shown in each case.
    """

    history: RowHistory
    row: Int[Tensor, " cases"]
    shown: Bool[Tensor, "cases data"]

    @property
    def series(self) -> Int[Tensor, " cases"]:
        """The position of the series of each case."""
        return ragged.series_of(self.history.series.offsets, self.row)

    def to(self, device: torch.device) -> Variations:
        """The same on another device."""
        history = RowHistory(self.history.series.to(device), self.history.doubled.to(device))
        return Variations(history, self.row.to(device), self.shown.to(device))

    def mixed(self, both: Tensor) -> Tensor:
        """For each case, the columns with or without the row's observation of their channel.

        Parameters
        ----------
        both
            Columns at the rows of `doubled`: one per data channel, or several blocks of these.
        """
        shown = self.shown.repeat(1, both.shape[1] // self.shown.shape[1])
        return torch.where(shown, both.index_select(0, 2 * self.row + 1), both.index_select(0, 2 * self.row))

    def features(self, families: tuple[str, ...]) -> Float[Tensor, "cases features"]:
        """The features of the data channels."""
        return self.mixed(self.history.features(families))

    def values(self) -> Float[Tensor, "cases channels"]:
        """The last value of each data channel, 0 before the first one, and the added channels."""
        roles, both = self.history.doubled.roles, self.history.filled
        mixed = [k for k, role in enumerate(roles) if role in ("count", "data")]
        found = both[2 * self.row + 1]
        found[:, mixed] = self.mixed(both[:, mixed])
        return found

    def observations(self, path: ControlPath, whole: Observations) -> Observations:
        """What a cell sees in each case.

        Parameters
        ----------
        path
            A path per case that ends at its row.
        whole
            The observations of the doubled series.
        """
        found, real = Observations(path), 2 * self.row + 1
        observed = self.shown & whole.observed[real]
        vars(found).update(  # the places where the properties are kept
            observed=observed,
            jumps=observed.any(1),
            known=self.mixed(whole.known),
            filled=self.mixed(whole.filled),
            interpolated=path.at_rows()[path.series.offsets[1:] - 1][:, found.data],
            gap=whole.gap[real],
            channel_gaps=whole.channel_gaps[real],
        )
        return found
