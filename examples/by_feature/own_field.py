"""Your own vector field: as layers, as a function, as a class.

    python examples/by_feature/own_field.py

The field f of dz = f(z) dX maps a state to a matrix (hidden, channels). An `nn.Sequential` of common layers runs on the
native engine. Anything else runs on plain torch with the same solvers and gradients; `stats.engine` names the engine.
The last lines train a model with its own field, a learnt rotation, which keeps the length of z.
"""

import torch
from torch import nn

import neuralcde as nc

HIDDEN = 4


class Rotation(nc.VectorField):
    """dz = A z dX with one skew-symmetric A per channel, so that the length of z never changes."""

    def __init__(self, channels: int):
        super().__init__()
        self.weight = nn.Parameter(0.1 * torch.randn(channels, HIDDEN, HIDDEN))

    def forward(self, t: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        """The matrix (batch, hidden, channels)."""
        skew = self.weight - self.weight.transpose(1, 2)
        return torch.einsum("chk,bk->bhc", skew, z)


def main() -> None:
    """Solve with three fields, then train a model with one of them."""
    torch.manual_seed(0)
    pairs = [(torch.arange(n), torch.randn(n, 2).cumsum(0) / 3) for n in range(3, 13)]
    path = nc.linear(nc.IrregularSeries.from_list(pairs).with_channels())
    layers = nn.Sequential(nn.Linear(HIDDEN, 16), nn.SiLU(), nn.Linear(16, 12), nn.Tanh(), nn.Unflatten(1, (HIDDEN, 3)))

    def function(t: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        """Decay to zero, driven by the time channel only."""
        return torch.stack([-0.1 * z, torch.zeros_like(z), torch.zeros_like(z)], dim=2)

    z0 = nn.functional.normalize(torch.randn(len(path), HIDDEN))
    for field in (layers, function, rotation := Rotation(path.channels)):
        solution = nc.solve_cde(path, field, z0)
        name = getattr(field, "__name__", type(field).__name__)
        print(f"{name}: |z| ends at {solution.last.norm(dim=1).mean():.3f}; engine {solution.stats.engine}")

    model = nc.NeuralCDE(path.channels, outputs=1, hidden=HIDDEN, field=rotation)
    target, optimizer = path.at_rows()[path.series.offsets[1:] - 1, 1], torch.optim.Adam(model.parameters(), lr=5e-2)
    for step in range(25):
        loss = nn.functional.mse_loss(model(path)[:, 0], target)
        if step in (0, 24):
            print(f"step {step + 1}: loss {loss.item():.3f}")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
