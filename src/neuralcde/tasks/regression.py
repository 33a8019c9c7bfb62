"""Regression on one target or several."""

from __future__ import annotations

import reprlib
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from sklearn.metrics import mean_absolute_error, r2_score, root_mean_squared_error
from torch import Tensor
from torch.nn import functional

from ..contracts import ArgumentError
from ..figures import Drawing, number, short
from .boosting import BoostingProblem
from .evaluation import Curve, Evaluation, Forecast, Role
from .metrics import weighted_errors
from .number_figures import regression_figures
from .task import GENERAL_VERDICTS, LINES, Task, is_finite

TOO_LARGE = "the numbers in y are too large or too small to be squared; change their unit."


@dataclass
class RegressionTask(Task, name="regression"):
    """One number or several per case. Outputs are standardised targets, the loss is the mean squared error.

    Parameters
    ----------
    means, scales
        Mean and standard deviation of each target in the training data.
    flat
        Whether y has one dimension; predictions then have one, too.
    """

    metric: ClassVar[str] = "r2"
    title: ClassVar[str] = "Regression"
    means: tuple[float, ...]
    scales: tuple[float, ...]
    flat: bool = True

    def __post_init__(self) -> None:
        parts = self.means, self.scales
        if not all(isinstance(part, tuple) and part and all(map(is_finite, part)) for part in parts):
            raise ValueError(f"means and scales must be finite numbers, got {reprlib.repr(parts)}.")
        if len(self.means) != len(self.scales) or not min(self.scales) > 0:
            raise ValueError(f"scales must be positive, one for each of the means, got {reprlib.repr(parts)}.")
        if not all(abs(mean) < 1e150 for mean in self.means) or not all(
            1e-150 < scale < 1e150 for scale in self.scales
        ):
            raise ValueError(TOO_LARGE)
        if not isinstance(self.flat, bool) or (self.flat and len(self.means) > 1):
            raise ValueError(f"flat={reprlib.repr(self.flat)} does not fit {len(self.means)} targets.")

    @classmethod
    def from_targets(cls, y: NDArray[Any], **options: Any) -> Self:
        """Mean and standard deviation of each target in y; NaN is unknown."""
        values = np.asarray(y, dtype=np.float64)
        flat = values.ndim == 1
        columns = values.reshape(-1, 1) if flat else values
        with np.errstate(over="ignore", invalid="ignore"):
            means, scales = np.nanmean(columns, axis=0), np.nanstd(columns, axis=0)
        differ = np.nanmax(columns, axis=0) > np.nanmin(columns, axis=0)
        scales = np.where(differ, scales, 1.0)
        if not np.isfinite([means, scales]).all() or (scales == 0).any():
            raise ArgumentError(TOO_LARGE, argument="y")
        learnt: dict[str, Any] = {"means": tuple(means.tolist()), "scales": tuple(scales.tolist()), "flat": flat}
        return cls(**learnt | options)

    @property
    def outputs(self) -> int:
        """One per target."""
        return len(self.means)

    def encode(self, y: Any) -> Float[Tensor, "*cases targets"]:
        """Standardised targets; NaN where unknown."""
        values = torch.from_numpy(np.array(y, dtype=np.float64))
        values = values[..., None] if self.flat else values
        if values.shape[-1] != self.outputs:
            raise ArgumentError(
                f"y has {values.shape[-1]} targets, but the model was made for {self.outputs}.", argument="y"
            )
        return (values - values.new_tensor(self.means)) / values.new_tensor(self.scales)

    def loss(
        self, outputs: Float[Tensor, "*cases targets"], targets: Float[Tensor, "*cases targets"]
    ) -> Float[Tensor, ""]:
        """Mean squared error of the standardised targets."""
        known = ~targets.isnan()
        return functional.mse_loss(outputs[known], targets[known].to(outputs.dtype))

    def losses(
        self, outputs: Float[Tensor, "*cases targets"], targets: Float[Tensor, "*cases targets"]
    ) -> Float[Tensor, "*cases"]:
        """Squared error of each case, averaged over its standardised targets."""
        return (outputs.double() - targets.double()).square().nanmean(-1)

    def prior(self, targets: Float[Tensor, "*cases targets"]) -> Float[Tensor, " targets"]:
        """The mean of each target."""
        return targets.reshape(-1, self.outputs).nanmean(0)

    def softened(
        self, targets: Float[Tensor, "cases targets"], outputs: Float[Tensor, "cases targets"], share: float
    ) -> Float[Tensor, "cases targets"]:
        """Means: the squared error from a mean has the gradient of the mixture of squared errors."""
        return targets.lerp(outputs.to(targets), share)

    def boosting_problems(self, targets: Float[Tensor, "cases targets"]) -> list[BoostingProblem]:
        """One problem per target; the raw score is the standardised target."""
        return [BoostingProblem("regression", column, None, (k,)) for k, column in enumerate(targets.unbind(1))]

    def decode(self, outputs: Float[Tensor, "*cases targets"]) -> NDArray[Any]:
        """In the units of y."""
        values = self.in_units(outputs)
        return values[..., 0] if self.flat else values

    def metrics(
        self, outputs: Float[Tensor, "*cases targets"], targets: Float[Tensor, "*cases targets"]
    ) -> dict[str, float]:
        """R², root mean squared error and mean absolute error in the units of y, averaged over targets."""
        scales = torch.tensor(self.scales, dtype=torch.float64)
        scaled = outputs.detach().double().cpu(), targets.double().cpu()
        found, truth = ((part * scales).reshape(-1, self.outputs).numpy() for part in scaled)
        columns = [(truth[~np.isnan(truth[:, k]), k], found[~np.isnan(truth[:, k]), k]) for k in range(self.outputs)]

        def mean(metric: Any, least: int = 1) -> float:
            return float(np.mean([metric(*pair) if len(pair[0]) >= least else np.nan for pair in columns]))

        return {"r2": mean(r2_score, 2), "rmse": mean(root_mean_squared_error), "mae": mean(mean_absolute_error)}

    def resampled_metrics(
        self, outputs: Float[Tensor, "cases targets"], targets: Float[Tensor, "cases targets"], weights: NDArray[Any]
    ) -> dict[str, NDArray[Any]]:
        """The same metrics, all resamples at once."""
        scales = np.array(self.scales)
        found, truth = outputs.detach().double().cpu().numpy(), targets.double().cpu().numpy()
        return weighted_errors(weights, found * scales, truth * scales)

    def check_encoded(self, targets: Tensor, cases: int) -> None:
        """Refuse a tensor of another shape."""
        super().check_encoded(targets, cases)
        if targets.shape != (cases, self.outputs):
            raise ValueError(f"targets are not numbers of shape {(cases, self.outputs)}.")

    def in_units(self, standardised: Float[Tensor, "*cases targets"]) -> NDArray[Any]:
        """From standardised targets to the units of y."""
        values = standardised.detach().double().cpu().numpy()
        found: NDArray[Any] = values * np.array(self.scales) + np.array(self.means)
        return found

    def scores(self, outputs: Float[Tensor, "*cases targets"]) -> Float[Tensor, "*cases targets"]:
        """In the units of y."""
        return torch.from_numpy(self.in_units(outputs))

    def summary(self, targets: Float[Tensor, "cases targets"]) -> list[Any]:
        """Quantiles of each target, in the units of y."""
        return super().summary(torch.from_numpy(self.in_units(targets)))

    def figures(self, test: Evaluation) -> list[Drawing]:
        """Predicted against true values, and residuals."""
        return regression_figures(self.in_units(test.outputs), self.in_units(test.targets), test)

    def forecast(
        self, outputs: Float[Tensor, "times targets"], truth: Float[Tensor, "cases targets"], names: list[str]
    ) -> Forecast:
        """Predictions and true values; several targets are drawn standardised, on one axis."""
        if len(names) > 1:
            curves = super().forecast(outputs, truth, names).curves
            return Forecast("predicted targets, standardised; dashed: true", curves)
        curve = Curve(short(names[0]), self.in_units(outputs)[:, 0], self.in_units(truth)[:, 0])
        return Forecast(f"predicted {curve.name}; dashed: true", [curve])

    def verdict(
        self, outputs: Float[Tensor, "1 targets"], target: Float[Tensor, "1 targets"], names: list[str], role: Role
    ) -> tuple[str, str]:
        """Predicted and true values."""
        found, true = self.in_units(outputs)[0], self.in_units(target)[0]
        several = [f"{short(name)} " if len(found) > 1 else "" for name in names[:LINES]]
        pairs = [f"{name}{number(found[k])}, true {number(true[k])}" for k, name in enumerate(several)]
        return GENERAL_VERDICTS[role], f"Predicted {'; '.join(pairs)}"
