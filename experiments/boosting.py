"""Gradient boosting on summaries of the series: the contestant that a practitioner would try first."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import HistGradientBoostingClassifier

import neuralcde as nc
from neuralcde.series.row_features import row_features

VALUES, INTENSITY = ("last", "mean", "deviation", "minimum", "maximum"), ("count", "elapsed")
SETTINGS: dict[str, Any] = {"learning_rate": 0.05, "max_iter": 400, "l2_regularization": 1.0}
MIN_SERIES_TO_STOP_EARLY = 1000


def summaries(series: nc.IrregularSeries, *, intensity: bool = True) -> NDArray[np.float32]:
    """Features of each series: five summaries of each channel, the time of the last row, the static features.

    The summaries of a channel are its last value, mean, deviation, minimum and maximum; NaN if it was never observed.
    With `intensity` there are two more: the number of observations, and the time since the last one (both as
    logarithms, which makes no difference to trees).
    """
    families = [*VALUES, *INTENSITY] if intensity else [*VALUES]
    ends = series.offsets[1:] - 1
    rows = row_features(series.times, series.values, series.offsets, ["seen", *families])[ends].numpy()
    seen, *parts = np.split(rows, 1 + len(families), axis=1)
    values = [np.where(seen > 0, part, np.nan) for part in parts[: len(VALUES)]]
    clock = series.times[ends, None].numpy()
    return np.concatenate([*values, *parts[len(VALUES) :], clock, series.static.numpy()], axis=1).astype(np.float32)


def shapes(series: nc.IrregularSeries) -> NDArray[np.float32]:
    """Features of how each channel moves, which the `summaries` do not tell; NaN where they are unknown.

    These are its first value, its slope over time, the times of its maximum and of its minimum, and its means in the
    three thirds of the time. Time runs from 0 to 1 in each series.
    """
    rows = []
    values, times = series.values.double().numpy(), series.times.numpy()
    for start, stop in itertools.pairwise(series.offsets.tolist()):
        x, t = values[start:stop], times[start:stop] - times[start]
        t = (t / (t[-1] or 1.0))[:, None]
        seen = ~np.isnan(x)
        count, every = seen.sum(0), np.arange(x.shape[1])
        found = [x[seen.argmax(0), every], t[np.where(seen, x, -np.inf).argmax(0), 0]]
        found += [t[np.where(seen, x, np.inf).argmin(0), 0]]
        centred = np.where(seen, t - np.where(seen, t, 0).sum(0) / count.clip(1), 0)
        spread = (centred**2).sum(0)
        found += [
            np.where(spread > 0, (centred * np.where(seen, x, 0)).sum(0) / np.where(spread > 0, spread, 1), np.nan)
        ]
        for third in range(3):
            inside = seen & (np.minimum(t * 3, 2).astype(int) == third)
            sums = np.where(inside, x, 0).sum(0)
            found += [np.where(inside.any(0), sums / inside.sum(0).clip(1), np.nan)]
        rows.append(np.concatenate([np.where(count > 0, part, np.nan) for part in found]))
    return np.asarray(rows, dtype=np.float32)


class BoostedSummaries(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """`HistGradientBoostingClassifier` on `summaries`, with scikit-learn's interface for series.

    Parameters
    ----------
    intensity
        Whether the trees see when something was measured. If not, a channel that was never observed has the mean of
        the training series in place of NaN.
    settings
        Settings of the trees; None for `SETTINGS`.
    random_state
        Seed.
    """

    def __init__(self, *, intensity: bool = True, settings: dict[str, Any] | None = None, random_state: int = 0):
        self.intensity = intensity
        self.settings = settings
        self.random_state = random_state

    def fit(
        self,
        X: nc.IrregularSeries,
        y: NDArray[Any],
        *,
        groups: Any = None,
        validation: tuple[nc.IrregularSeries, NDArray[Any]] | None = None,
    ) -> BoostedSummaries:
        """Fit the trees; boosting stops early on the validation series.

        Without `validation`, a tenth of the training series validates if there are enough of them; groups are ignored.
        """
        table = self.features(X)
        static = X.static.shape[1]
        measured = table[:, : table.shape[1] - static]
        observed = ~np.isnan(measured)
        sums = np.where(observed, measured, 0.0).sum(0, dtype=np.float64)
        self.means_ = np.concatenate([sums / observed.sum(0).clip(min=1), np.full(static, np.nan)])
        stop = validation is not None or len(X) >= MIN_SERIES_TO_STOP_EARLY
        settings = {**(SETTINGS if self.settings is None else self.settings), "random_state": self.random_state}
        if not stop:  # a tenth of a few series is no guide
            settings["max_iter"] = min(settings["max_iter"], 100)
        self.trees_ = HistGradientBoostingClassifier(early_stopping=stop, **settings)
        held_out = {} if validation is None else {"X_val": self._table(validation[0]), "y_val": validation[1]}
        self.trees_.fit(self._filled(table), y, **held_out)
        self.classes_, self.n_iter_ = self.trees_.classes_, int(self.trees_.n_iter_)
        return self

    def predict_proba(self, X: nc.IrregularSeries) -> NDArray[np.float64]:
        """Probabilities (series, classes)."""
        found: NDArray[np.float64] = self.trees_.predict_proba(self._table(X))
        return found

    def predict(self, X: nc.IrregularSeries) -> NDArray[Any]:
        """The most probable class of each series."""
        return np.asarray(self.classes_[self.predict_proba(X).argmax(1)])

    def features(self, X: nc.IrregularSeries) -> NDArray[np.float32]:
        """Features of the series; static features are the last columns."""
        return summaries(X, intensity=self.intensity)

    def _table(self, X: nc.IrregularSeries) -> NDArray[np.float32]:
        return self._filled(self.features(X))

    def _filled(self, table: NDArray[np.float32]) -> NDArray[np.float32]:
        return table if self.intensity else np.where(np.isnan(table), self.means_, table).astype(np.float32)


class BoostedShapes(BoostedSummaries):
    """The same on `shapes` and `summaries`."""

    def features(self, X: nc.IrregularSeries) -> NDArray[np.float32]:
        """Features of the series; static features are the last columns."""
        return np.concatenate([shapes(X), super().features(X)], axis=1)
