"""The explanation of predictions: terms that add up to the output, as arrays, tables, importances and pictures."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from scipy.special import expit

from ..contracts import ArgumentError
from ..figures import Drawing
from ..series import IrregularSeries, ragged
from ..series.tables import measured_columns, static_columns, write_long

Array = NDArray[Any]
KINDS = ("start", "static", "time passing", "channel")  # of terms, in the order in which they come


class Term(NamedTuple):
    """What one observation changed.

    `series` is the id, `time` a number or a date in words, `value` the observed number or text, `name` the score that
    changed (a class or a target), and `term` the change.
    """

    series: Any
    time: float | str
    column: str
    value: float | str
    name: str
    term: float


class Importance(NamedTuple):
    """How much a column matters in a data set.

    `kind` is "channel", "static" or "time passing". `net` is the mean over the series of the absolute value of all
    terms of the column together, and `moved` the mean of the sum of their absolute values: a channel that raises the
    output and lowers it again has a small `net` and a large `moved`.
    """

    column: str
    kind: str
    net: float
    moved: float


@dataclass(frozen=True, eq=False)
class Explanation:
    r"""What each observation, static feature and gap changed in a prediction.

    The output of the model is followed from row to row. With $y_i$ the output just after row i, and $e_i$ the output at
    the same time had nothing been observed in that row,

    $$y_n = \text{start} + \text{static} + \sum_i (e_i - y_{i-1}) + \sum_i (y_i - e_i), \qquad e_0 = \text{start} +
      \text{static}.$$

    The difference $e_i - y_{i-1}$ is what the time that passed changed. The difference $y_i - e_i$ is what the row
    changed; it is split among the columns observed in it by their Shapley values, which are exact up to six columns and
    sampled for more. The start is the output for a series of which nothing is known. All terms of a series add up to
    its output.

    What is explained is a score: for classes their log odds (if there are two, of the one in `names`), for a regression
    the target in its unit. Scores are not calibrated; those of an ensemble are of its mean output.

    Parameters
    ----------
    series
        The series. All terms have as many entries, in the same order.
    names
        Names of the scores.
    unit
        "log odds", or "" for the unit of the target.
    columns, static_columns
        Names of the measured and of the static columns of the table.
    start
        The score knowing nothing.
    static
        Terms of the static columns; 0 where unknown.
    observations
        Terms of the measured columns in each row; 0 where not observed.
    passing
        Terms of the time that passed before each row; 0 for the first row of a series.
    at_rows
        The score just after each row.
    before_calibration
        Whether the predictions of the model are calibrated, so that those made of the scores differ from them.
    """

    series: IrregularSeries
    names: tuple[str, ...]
    unit: str
    columns: tuple[str, ...]
    static_columns: tuple[str, ...]
    start: Float[np.ndarray, "series scores"]
    static: Float[np.ndarray, "series static scores"]
    observations: Float[np.ndarray, "rows columns scores"]
    passing: Float[np.ndarray, "rows scores"]
    at_rows: Float[np.ndarray, "rows scores"]
    before_calibration: bool = False

    def __len__(self) -> int:
        return len(self.series)

    def __repr__(self) -> str:
        return f"Explanation({len(self)} series, scores {self.names}{', log odds' * (self.unit == 'log odds')})"

    def __getitem__(self, index: ragged.Index) -> Explanation:
        """The explanations of some of the series."""
        chosen = ragged.positions(index, len(self))
        of_series, _ = ragged.select(self.series.offsets, chosen)
        cases, rows = (part if isinstance(part, slice) else part.numpy() for part in (chosen, of_series))
        return dataclasses.replace(
            self,
            series=self.series.at(chosen),
            start=self.start[cases],
            static=self.static[cases],
            observations=self.observations[rows],
            passing=self.passing[rows],
            at_rows=self.at_rows[rows],
        )

    @property
    def final(self) -> Float[np.ndarray, "series scores"]:
        """The score of each series: the sum of its terms."""
        found: Array = self.start + self.static.sum(1) + self._totals(self.observations.sum(1) + self.passing)
        return found

    @property
    def probabilities(self) -> bool:
        """Whether the logistic function makes probabilities of the scores."""
        return self.unit == "log odds"

    def risk(self, score: Array) -> Array:
        """Probabilities, if the scores are log odds; else the scores themselves."""
        found: Array = expit(score) if self.probabilities else score
        return found

    def top(self, position: int = 0, count: int = 5, name: str | None = None) -> list[Term]:
        """The observations that moved the score of a series most, largest first.

        Parameters
        ----------
        position
            Position of the series.
        count
            Number of observations; fewer if the series has fewer.
        name
            Name of the score; by default the only one, or the highest.
        """
        one = self[position]
        score = one.place_of(name)
        return [one._term(row, column, score) for row, column in one.largest(score, count)]

    def largest(self, score: int, count: int) -> list[tuple[int, int]]:
        """Row and column of the observations with the largest terms of a score, at most so many, largest first."""
        terms = np.where(self.observed, self.observations[:, :, score], 0.0)
        order = np.argsort(-abs(terms), axis=None, kind="stable")[: min(count, int(self.observed.sum()))]
        rows, columns = np.unravel_index(order, terms.shape)
        return list(zip(rows.tolist(), columns.tolist(), strict=True))

    def _term(self, row: int, column: int, score: int) -> Term:
        """An observation of the only series."""
        time, value = float(self.series.times[row]), self.values[column][row]
        return Term(
            self.series.ids[:1].tolist()[0],
            time if self.series.format.kind == "number" else self.series.format.show(time),
            self.columns[column],
            value if isinstance(value, str) else float(value),
            self.names[score],
            float(self.observations[row, column, score]),
        )

    def importances(self, name: str | None = None) -> list[Importance]:
        """How much each column matters, the most important first; for several scores their mean, or that of one.

        Parameters
        ----------
        name
            Name of the score; None for all.
        """
        scores = slice(None) if name is None else [self.place_of(name)]
        found = []
        for kind, names, terms in (
            ("channel", self.columns, self.observations),
            ("time passing", ("time passing",), self.passing[:, None]),
        ):
            net = abs(self._totals(terms)[:, :, scores]).mean((0, 2))
            moved = self._totals(abs(terms))[:, :, scores].mean((0, 2))
            found += [Importance(*parts) for parts in zip(names, [kind] * len(names), net, moved, strict=True)]
        static = abs(self.static[:, :, scores]).mean((0, 2))
        found += [Importance(column, "static", x, x) for column, x in zip(self.static_columns, static, strict=True)]
        found = [Importance(column, kind, float(net), float(moved)) for column, kind, net, moved in found]
        return sorted(found, key=lambda item: -item.net)

    def to_long(self, backend: Literal["pandas", "polars", "pyarrow"] | None = None) -> Any:
        """A table with one row per term, by default in the library that the series came from.

        Its columns are the id, the time, the "name" of the score, the "kind" of the term ("start", "static", "time
        passing" or "channel"), the "column" of the table, the observed "value" (as text if the table has columns of
        text), and the "term". The terms of a series and a name add up to its score.
        """
        offsets = self.series.offsets.numpy()
        of_row = ragged.series_of_rows(self.series.offsets).numpy()
        later = np.ones(len(of_row), dtype=bool)
        later[offsets[:-1]] = False
        case, feature = self.known.nonzero()
        row, column = self.observed.nonzero()
        gap = np.flatnonzero(later)
        everyone = np.arange(len(self))
        first = offsets[:-1]
        # For each kind: the series, the row at whose time it is, the column, and the terms.
        parts = [
            (everyone, first, np.zeros_like(everyone), self.start),
            (case, first[case], feature, self.static[case, feature]),
            (of_row[gap], gap, np.zeros_like(gap), self.passing[gap]),
            (of_row[row], row, column, self.observations[row, column]),
        ]
        sizes = [len(part[0]) for part in parts]
        kind = np.repeat(np.arange(len(KINDS)), sizes)
        series, at, place = (np.concatenate([part[k] for part in parts]) for k in range(3))
        terms = np.concatenate([part[3] for part in parts])
        text = [np.array([None] * sizes[0], dtype=object)]
        text.append(_picked(self.static_values, case, feature))
        text.append(np.array([None] * sizes[2], dtype=object))
        text.append(_picked(self.values, row, column))
        value = np.concatenate(text)
        names = [*self.static_columns, *self.columns]
        shift = np.array([0, 0, 0, len(self.static_columns)])[kind]
        columns = np.array(names or [""], dtype=object)[np.where(np.isin(kind, (1, 3)), place + shift, 0)]
        columns[~np.isin(kind, (1, 3))] = None
        order = np.lexsort((place, kind, at, series))
        count = len(self.names)
        repeated = order.repeat(count)
        if any(isinstance(item, str) for item in value.tolist()):
            value = np.array([item if item is None or isinstance(item, str) else f"{item:g}" for item in value], object)
        else:
            value = np.array([np.nan if item is None else item for item in value.tolist()], dtype=np.float64)
        return write_long(
            self.series.ids[series[repeated]],
            self.series.times.numpy()[at[repeated]],
            [
                ("name", np.tile(np.array(self.names, dtype=object), len(order))),
                ("kind", np.array(KINDS, dtype=object)[kind[repeated]]),
                ("column", columns[repeated]),
                ("value", value[repeated]),
                ("term", terms[order].reshape(-1)),
            ],
            format=self.series.format,
            backend=backend,
        )

    def plot(self, position: int = 0, axes: Any = None, name: str | None = None, count: int = 5) -> Any:
        """Draw the risk of a series over time, with the observations that moved it most written on it.

        Parameters
        ----------
        position
            Position of the series.
        axes
            Axes of matplotlib; None for new ones.
        name
            Name of the score; by default the only one, or the highest.
        count
            Number of observations.

        Returns
        -------
        The axes.
        """
        from .picture import paint

        if axes is None:
            from matplotlib import pyplot

            _, axes = pyplot.subplots(figsize=(8, 4.5), layout="constrained")
        paint(self[position], axes, name, count)
        return axes

    def drawing(self, position: int = 0, name: str | None = None, count: int = 5) -> Drawing:
        """The picture of `plot` as SVG, with a title and a caption."""
        from .picture import drawing

        return drawing(self[position], name, count)

    def place_of(self, name: str | None) -> int:
        """The position of a score; by default that of the only one, or of the one that is highest in the mean."""
        if name is None:
            return int(self.final.mean(0).argmax())
        if name not in self.names:
            raise ArgumentError(f"name={name!r} is not one of the scores {list(self.names)}.", argument="name")
        return self.names.index(name)

    @cached_property
    def values(self) -> list[Array]:
        """The measured columns: numbers, or text; NaN or None where not observed."""
        channels = {name: k for k, name in enumerate(self.series.channel_names)}
        columns = measured_columns(self.series.values.numpy(), channels, self.series.format)
        return [_as_written(column) for _, column in columns]

    @cached_property
    def static_values(self) -> list[Array]:
        """The static columns: numbers, or text; NaN or None where unknown."""
        return [_as_written(column) for _, column in static_columns(self.series.static.numpy(), self.series.format)]

    @property
    def observed(self) -> NDArray[np.bool_]:
        """Whether each column was observed in each row."""
        return _there(self.values, len(self.series.times))

    @property
    def known(self) -> NDArray[np.bool_]:
        """Whether each static column is known for each series."""
        return _there(self.static_values, len(self))

    def _totals(self, of_rows: Array) -> Array:
        """Sums over the rows of each series."""
        found: Array = np.add.reduceat(of_rows, self.series.offsets[:-1].numpy(), axis=0)
        return found


def _as_written(column: Array) -> Array:
    """Numbers in float64, those in float32 as the shortest decimal number: 0.94 and not 0.9399999976158142."""
    if column.dtype != np.float32:
        return column
    found = column.astype(np.float64)
    known = ~np.isnan(column)
    found[known] = column[known].astype(str).astype(np.float64)
    return found


def _there(columns: list[Array], size: int) -> NDArray[np.bool_]:
    """Where columns hold a value."""
    found = [column != None if column.dtype == object else ~np.isnan(column) for column in columns]  # noqa: E711
    return np.stack(found, axis=1).astype(bool) if found else np.zeros((size, 0), dtype=bool)


def _picked(columns: list[Array], row: Array, column: Array) -> NDArray[np.object_]:
    """The entries at these rows and columns."""
    found = np.empty(len(row), dtype=object)
    for place, values in enumerate(columns):
        here = column == place
        found[here] = values[row[here]].tolist()
    return found
