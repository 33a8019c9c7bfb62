"""Regression: one number or several."""

from __future__ import annotations

import reprlib
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from sklearn.metrics import mean_absolute_error, r2_score, root_mean_squared_error
from torch import Tensor
from torch.nn import functional

from .task import Task, is_finite

TOO_LARGE = "the numbers in y are too large or too small to be squared; change their unit."


@dataclass(frozen=True, eq=False)
class RegressionTask(Task):
    """One number or several; outputs are in units of the targets' standard deviations, the loss is the mean square.

    Parameters
    ----------
    means, scales
        Mean and standard deviation of every target in the training data.
    flat
        Whether y has one dimension: predictions then have one too.
    """

    kind: ClassVar[str] = "regression"
    metric: ClassVar[str] = "r2"
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

    @property
    def outputs(self) -> int:
        """One a target."""
        return len(self.means)

    def encode(self, y: Any) -> Float[Tensor, "... targets"]:
        """Scaled, NaN where not known."""
        values = torch.from_numpy(np.array(y, dtype=np.float64))
        values = values[..., None] if self.flat else values
        if values.shape[-1] != self.outputs:
            raise ValueError(f"y has {values.shape[-1]} targets, but the model was made for {self.outputs}.")
        return (values - values.new_tensor(self.means)) / values.new_tensor(self.scales)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Mean squared error of the scaled targets."""
        known = ~targets.isnan()
        return functional.mse_loss(outputs[known], targets[known].to(outputs.dtype))

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Squared errors of the scaled targets, mean over targets."""
        return (outputs.double() - targets.double()).square().nanmean(-1)

    def prior(self, targets: Tensor) -> Tensor:
        """The mean, which is zero where these targets are those that the task was made of."""
        return targets.reshape(-1, self.outputs).nanmean(0)

    def decode(self, outputs: Tensor) -> NDArray[Any]:
        """In the units of y."""
        values: NDArray[Any] = outputs.detach().double().cpu().numpy() * np.array(self.scales) + np.array(self.means)
        return values[..., 0] if self.flat else values

    def metrics(self, outputs: Tensor, targets: Tensor) -> dict[str, float]:
        """Share of variance explained, root mean squared and mean absolute error, in the units of y; means over targets."""
        scales = torch.tensor(self.scales, dtype=torch.float64)
        scaled = outputs.detach().double().cpu(), targets.double().cpu()
        found, truth = ((part * scales).reshape(-1, self.outputs).numpy() for part in scaled)
        columns = [(truth[~np.isnan(truth[:, k]), k], found[~np.isnan(truth[:, k]), k]) for k in range(self.outputs)]

        def mean(metric: Any, least: int = 1) -> float:
            return float(np.mean([metric(*pair) if len(pair[0]) >= least else np.nan for pair in columns]))

        return {"r2": mean(r2_score, 2), "rmse": mean(root_mean_squared_error), "mae": mean(mean_absolute_error)}


def regression_task(y: Any) -> RegressionTask:
    """The task that these numbers ask for."""
    values = np.asarray(y, dtype=np.float64)
    flat = values.ndim == 1
    columns = values.reshape(-1, 1) if flat else values
    with np.errstate(over="ignore", invalid="ignore"):
        means, scales = np.nanmean(columns, axis=0), np.nanstd(columns, axis=0)
    differ = np.nanmax(columns, axis=0) > np.nanmin(columns, axis=0)
    scales = np.where(differ, scales, 1.0)
    if not np.isfinite([means, scales]).all() or (scales == 0).any():
        raise ValueError(TOO_LARGE)
    return RegressionTask(tuple(means.tolist()), tuple(scales.tolist()), flat)
