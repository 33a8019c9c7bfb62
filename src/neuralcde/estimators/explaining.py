"""The account of a prediction: what each observation, static feature and gap changed in the output."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..contracts import Argument, ArgumentError
from ..explanations import Explanation, coalitions
from ..series import IrregularSeries
from ..series.table_format import TableColumn
from ..tasks import Task
from .variants import Ensemble, Variants

SERIES = 256  # most series that are explained at once,
CELLS = 1 << 20  # and most of their values
CASES = 1 << 18  # most variants of rows that are listed at once

Array = NDArray[np.float64]


@torch.no_grad()
def explain(ensemble: Ensemble, task: Task, series: IrregularSeries, outputs: Tensor, seed: int) -> Explanation:
    """Explain the outputs after the last row of each series; see `Explanation`.

    Parameters
    ----------
    ensemble, task
        The fitted models, and their task.
    series
        The series.
    outputs
        The outputs to explain, one per series. They are computed again here, but with other roundings.
    seed
        Seed of the permutations.
    """
    check_causal(ensemble)
    names = task.score_names("target")
    players = _Players.of(series)
    series = dataclasses.replace(series, format=dataclasses.replace(series.format, static=players.static))
    count = len(names)
    start = np.zeros((len(series), count))
    static = np.zeros((len(series), len(players.static), count))
    observations = np.zeros((len(series.times), len(players.channels), count))
    at_rows = np.zeros((len(series.times), count))
    nothing = np.zeros((len(series.times), count))  # had nothing been observed in the row
    for chosen in _parts(series):
        rows = slice(int(series.offsets[chosen.start]), int(series.offsets[chosen.stop]))
        account = _Account(ensemble, task, series[chosen], outputs[chosen], players, seed)
        at_rows[rows], nothing[rows], observations[rows] = account.of_rows()
        first = series.offsets[:-1][chosen].numpy()
        start[chosen], static[chosen] = account.of_static(nothing[first])
    passing = np.zeros_like(nothing)
    passing[1:] = nothing[1:] - at_rows[:-1]
    passing[series.offsets[:-1].numpy()] = 0.0
    return Explanation(
        series=series,
        names=tuple(names),
        unit=task.score_unit,
        columns=tuple(column.name for column in players.channels),
        static_columns=tuple(column.name for column in players.static),
        start=start,
        static=static,
        observations=observations,
        passing=passing,
        at_rows=at_rows,
    )


def _parts(series: IrregularSeries) -> Iterator[slice]:
    """Ranges of series that are explained together: few enough that what is known at their rows fits in memory."""
    block = (series.offsets[1:] - 1) * series.channels // CELLS + torch.arange(len(series)) // SERIES
    start = 0
    for count in torch.unique_consecutive(block, return_counts=True)[1].tolist():
        yield slice(start, start + count)
        start += count


def check_causal(ensemble: Ensemble) -> None:
    """Refuse paths whose values at a row depend on later rows: no observation has an effect of its own on them."""
    scheme = ensemble.preparation.scheme
    if scheme.causality == "none":
        raise ArgumentError(
            f"explain: on the path {scheme!r}, the state at a row depends on later rows, so that the output cannot be "
            "split among observations. Fit again with a causal path: ",
            Argument("path", "linear"),
            ', "hermite" or "rectilinear".',
            argument="path",
        )


@dataclass(frozen=True, eq=False)
class _Players:
    """The columns of the table among which changes are split; a column of text has one channel per category.

    Parameters
    ----------
    channels, static
        The columns.
    of_channel, of_static
        The column of each channel and of each static feature.
    """

    channels: tuple[TableColumn, ...]
    static: tuple[TableColumn, ...]
    of_channel: Tensor
    of_static: Tensor

    @classmethod
    def of(cls, series: IrregularSeries) -> _Players:
        channels = series.format.channel_columns(series.channel_names)
        static = series.format.static
        if tuple(name for column in static for name in column.feature_names) != series.static_names:
            static = tuple(TableColumn(name) for name in series.static_names)  # they came from an array
        return cls(channels, static, _column_of_each(channels), _column_of_each(static))

    def observed(self, series: IrregularSeries) -> NDArray[np.bool_]:
        """Whether each column was observed in each row."""
        found = np.zeros((len(series.times), len(self.channels)), dtype=bool)
        np.logical_or.at(found.T, self.of_channel.numpy(), series.observed.numpy().T)
        return found

    def known(self, series: IrregularSeries) -> NDArray[np.bool_]:
        """Whether each static column is known for each series."""
        found = np.zeros((len(series), len(self.static)), dtype=bool)
        text = torch.tensor([self.static[k].categories is not None for k in self.of_static.tolist()], dtype=torch.bool)
        values = torch.where(text, series.static.nan_to_num() != 0, ~series.static.isnan())
        np.logical_or.at(found.T, self.of_static.numpy(), values.numpy().T)
        return found

    def without_static(self, static: Tensor, shown: Tensor) -> Tensor:
        """Static features of which only the shown columns are known: others are NaN, or 0 for indicators of text."""
        text = torch.tensor([self.static[k].categories is not None for k in self.of_static.tolist()], dtype=torch.bool)
        hidden = torch.where(text, 0.0, torch.nan).to(static).expand_as(static)
        return torch.where(shown[:, self.of_static], static, hidden)


def _column_of_each(columns: Sequence[TableColumn]) -> Tensor:
    """The position of the column of each channel or feature."""
    counts = torch.tensor([len(column.feature_names) for column in columns], dtype=torch.int64)
    return torch.repeat_interleave(torch.arange(len(columns)), counts)


class _Account:
    """The terms of some series, which are solved together."""

    def __init__(
        self, ensemble: Ensemble, task: Task, series: IrregularSeries, outputs: Tensor, players: _Players, seed: int
    ):
        self.ensemble, self.task, self.series, self.players, self.seed = ensemble, task, series, players, seed
        self.variants = Variants(ensemble, ensemble.preparation.scaled(series))
        self.at_rows = self.variants.at_rows.index_copy(0, series.offsets[1:] - 1, outputs)

    def of_rows(self) -> tuple[Array, Array, Array]:
        """For each row: the score, the score had nothing been observed in it, and the shares of its columns."""
        whole = self._scores(self.at_rows)

        def score(row: Tensor, shown: Tensor) -> Array:
            return self._scores(self.variants(row, shown[:, self.players.of_channel]))

        return whole, *self._split(self.players.observed(self.series), whole, score)

    def of_static(self, whole: Array) -> tuple[Array, Array]:
        """The score knowing nothing, and the shares of the static columns; `whole` has the scores knowing these."""
        first = self.series.offsets[:-1]
        empty = dataclasses.replace(
            self.series,
            times=self.series.times[first],
            values=torch.full_like(self.series.values[first], torch.nan),
            offsets=torch.arange(len(self.series) + 1),
        )

        def score(case: Tensor, shown: Tensor) -> Array:
            part = empty.at(case)
            part = dataclasses.replace(part, static=self.players.without_static(part.static, shown))
            return self._scores(self.ensemble.at_the_end(self.ensemble.preparation.series(part)))

        return self._split(self.players.known(self.series), whole, score)

    def _split(
        self, there: NDArray[np.bool_], whole: Array, score: Callable[[Tensor, Tensor], Array]
    ) -> tuple[Array, Array]:
        """For each case, the score without any of its columns, and the Shapley values of these.

        Parameters
        ----------
        there
            The columns that each case has.
        whole
            The scores with all of them.
        score
            Function from cases, and the columns that each of them is to have, to scores.
        """
        nothing, shares = whole.copy(), np.zeros((*there.shape, whole.shape[1]))
        for cases, columns in _by_count(there):
            parts = coalitions(columns.shape[1], self.seed)
            members = parts.members[:-1]  # the score with all columns is known
            for some in _blocks(len(cases), len(parts)):
                case, column = cases[some], columns[some]
                shown = np.zeros((len(case), len(members), there.shape[1]), dtype=bool)
                place = np.broadcast_to(column[:, None], (len(case), *members.shape))
                np.put_along_axis(shown, place, np.broadcast_to(members, place.shape), axis=2)
                repeated = torch.from_numpy(case.repeat(len(members)))
                values = score(repeated, torch.from_numpy(shown).flatten(0, 1)).reshape(len(case), len(members), -1)
                values = np.concatenate([values, whole[case][:, None]], axis=1)
                nothing[case] = values[:, 0]
                shares[case[:, None], column] = np.einsum("ca,ras->rcs", parts.weights, values)
        return nothing, shares

    def _scores(self, outputs: Tensor) -> Array:
        found: Array = self.task.scores(outputs).numpy()
        return found


def _by_count(observed: NDArray[np.bool_]) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Rows with equally many observed columns, and the positions of these columns; rows without any are left out."""
    counts = observed.sum(1)
    for count in np.unique(counts[counts > 0]).tolist():
        rows = np.flatnonzero(counts == count)
        yield rows, observed[rows].nonzero()[1].reshape(len(rows), count)


def _blocks(rows: int, coalitions: int) -> Iterator[slice]:
    """Ranges of rows such that their variants are not too many at once."""
    step = max(1, CASES // coalitions)
    for start in range(0, rows, step):
        yield slice(start, start + step)
