"""Parts defined outside the package, as a user would: two tasks, a path scheme, a field and a model."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import nn
from torch.nn import functional

import neuralcde as nc
from neuralcde.models import PathModel, Trajectory
from neuralcde.paths import PathScheme
from neuralcde.tasks import BinaryTask, Task


@dataclass
class DoubtfulLabels(BinaryTask, name="test doubtful labels"):
    """Two classes with some wrong labels: binary cross-entropy with label smoothing."""

    doubt: float = 0.1

    def loss(self, outputs, targets):
        known = ~targets.isnan()
        smoothed = targets[known] * (1 - 2 * self.doubt) + self.doubt
        return functional.binary_cross_entropy_with_logits(outputs[..., 0][known], smoothed.to(outputs.dtype))


@dataclass
class PoissonCounts(Task, name="test poisson"):
    """Counts with a Poisson loss; the output is the logarithm of the rate."""

    metric: ClassVar[str] = "minus_deviance"
    outputs = 1

    def encode(self, y):
        return torch.from_numpy(np.array(y, dtype=np.float64))

    def loss(self, outputs, targets):
        known = ~targets.isnan()
        return functional.poisson_nll_loss(outputs[..., 0][known], targets[known].to(outputs.dtype))

    def prior(self, targets):
        return targets.nanmean().clamp(min=1e-3).log().reshape(1)

    def decode(self, outputs):
        return outputs[..., 0].double().exp().numpy()

    def metrics(self, outputs, targets):
        return {"minus_deviance": -float(self.loss(outputs.double(), targets))}


@dataclass
class Staircase(PathScheme, name="test staircase"):
    """A linear path through rounded values."""

    height: float = 0.5
    causality = "knots"

    def build(self, series):
        rounded = replace(series, values=(series.values / self.height).round() * self.height)
        return replace(nc.linear(rounded, fill="forward"), series=series, scheme="test staircase")


class Rotation(nc.VectorField, name="test rotation"):
    """A field of sines."""

    def __init__(self, channels, hidden, *, speed=1.0):
        super().__init__()
        self.speed = speed
        self.turn = nn.Linear(hidden, hidden * channels)
        self.shape = hidden, channels

    def forward(self, t, z):
        return torch.sin(self.speed * self.turn(z)).unflatten(-1, self.shape)


class LastValues(PathModel, name="test last values"):
    """A model without a differential equation: the state is a layer applied to the values of X."""

    def __init__(self, channels, outputs, *, hidden=8, static=0, pool="last"):
        super().__init__(channels, outputs, hidden=hidden, static=static, pool=pool)
        self.layer = nn.Linear(channels, hidden)

    def trajectory(self, path, *, rows=False, times=None):
        at_rows = torch.tanh(self.layer(path.at_rows()))
        at_times = None if times is None else torch.tanh(self.layer(path.evaluate(times)))
        return Trajectory(at_rows[path.series.offsets[1:] - 1], at_rows, at_times)
