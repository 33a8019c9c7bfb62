"""The scikit-learn regressor."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score

from ..contracts import ArgumentError, documented
from ..tasks import RegressionTask, regression_task
from .path_estimator import PathEstimator


@documented(PathEstimator.options)
class NeuralCDERegressor(RegressorMixin, PathEstimator):  # type: ignore[misc]
    """Predict numbers from series with a Neural CDE or another model of paths.

    Parameters
    ----------
    {options}

    Attributes
    ----------
    members_ : list of the fitted models, each with its history
    module_ : the first of these models, a torch module
    history_ : list of dicts, one per epoch of the first model

    Examples
    --------
    >>> import numpy as np, neuralcde as nc
    >>> X = np.random.default_rng(0).normal(size=(64, 10)).cumsum(1)
    >>> reg = nc.NeuralCDERegressor(max_epochs=60, hidden=8, width=8, random_state=0).fit(X, X[:, -1] - X[:, 0])
    >>> bool(reg.score(X, X[:, -1] - X[:, 0]) > 0.8)
    True
    """

    goal = "regression"

    def _checked_targets(self, y: NDArray[Any]) -> NDArray[Any]:
        try:
            numbers = np.asarray(y, dtype=np.float64)
        except (TypeError, ValueError, OverflowError) as reason:
            raise ArgumentError(f"y must be numbers, got {y.dtype}: Unknown label type.", argument="y") from reason
        if not np.isfinite(numbers).all():
            raise ArgumentError("Input y contains infinity; leave such series out.", argument="y")
        if numbers.ndim > 2:
            raise ArgumentError(f"y must have shape (series,) or (series, targets), got {numbers.shape}.", argument="y")
        return numbers

    def _inferred_task(self, y: NDArray[Any]) -> RegressionTask:
        return regression_task(y)

    def predict(self, X: Any) -> NDArray[Any]:
        """Predictions per series, or per row with `per_row`; shape (cases,), or (cases, targets) for 2-d targets."""
        outputs = self.outputs(X)
        return self.task_.decode(outputs)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Coefficient of determination R² of the predictions for X; y as in `fit`."""
        return float(r2_score(*self._pairs(X, y), sample_weight=sample_weight))

    def predict_at(self, X: Any, times: Any) -> NDArray[Any]:
        """Predictions at given times.

        They are the predictions for `X.until(t)`: nothing after a time is used for it. A time may lie after the last
        row. See `outputs_at` for the cost.

        Parameters
        ----------
        X
            Series, as in `fit`.
        times
            Shape (k,), the same times for all series, or (series, k), in the units of the table.

        Returns
        -------
        array
            Shape (series, k), or (series, k, targets) for 2-d targets; NaN where a series had not begun at the time.
        """
        return self.task_.decode(self.outputs_at(X, times))
