"""Forecasting: a Neural CDE encodes the past, an ODE predicts the future at times of your choice.

    python examples/by_feature/forecasting.py

A path is never extrapolated. Instead, the state at the end of the past is the initial state of a second equation
without data. Its only channel is time, and a CDE driven by time alone is an ODE, dz = g(z) dt. Both are trained
together. Every series has its own past and future times.
"""

import numpy as np
import torch
from torch import nn

import neuralcde as nc


def waves(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Times from -6 to 4 and values of waves with random phase and frequency; column 20 is time 0."""
    rng = np.random.default_rng(0)
    past, future = np.sort(rng.uniform(-6, 0, (count, 20))), np.sort(rng.uniform(0, 4, (count, 8)))
    times = np.concatenate([past, np.zeros((count, 1)), future], axis=1)
    return times, np.sin(rng.uniform(0.8, 1.2, (count, 1)) * times + rng.uniform(0, 6.3, (count, 1)))


class Forecaster(nn.Module):
    """Encode the past, evolve the state by an ODE, and read it out at every future row."""

    def __init__(self, channels: int, hidden: int = 16):
        super().__init__()
        self.encoder = nc.NeuralCDE(channels, outputs=1, hidden=hidden, width=32, depth=1)
        self.ode = nc.MLPField(channels=1, hidden=hidden, width=32, depth=1, final="identity")

    def forward(self, past: nc.ControlPath, clock: nc.ControlPath) -> torch.Tensor:
        """Forecasts, one per row of the clock."""
        z = self.encoder.solve(past).last
        return self.encoder.readout.linear(nc.solve_cde(clock, self.ode, z, save="knots").at_knots)[:, 0]


def main() -> None:
    """Train on 300 waves, forecast 100 others."""
    torch.manual_seed(0)
    times, values = waves(400)
    path = nc.linear(nc.IrregularSeries.from_padded(values[:, :21, None], times[:, :21]).with_channels())
    clock = nc.linear(nc.IrregularSeries.from_padded(times[:, 20:, None], times[:, 20:]))
    target, unseen = (torch.tensor(part[:, 20:]).float().flatten() for part in (values[:300], values[300:]))
    model = Forecaster(path.channels)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(120):
        loss = nn.functional.mse_loss(model(path[:300], clock[:300]), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    error = (model(path[300:], clock[300:]) - unseen).square().mean().sqrt()
    print(f"error on unseen waves {error:.2f}, standard deviation of what was forecast {unseen.std():.2f}")


if __name__ == "__main__":
    main()
