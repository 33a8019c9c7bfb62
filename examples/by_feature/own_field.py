"""A vector field of your own: as layers, as a function, as a class.

    python examples/by_feature/own_field.py

The field f of dz = f(z) dX gives a matrix (hidden, channels) at every state. Well-known layers in an `nn.Sequential` run on
the native engine; anything else runs on plain torch with the same solvers and gradients, and `stats.engine` says which. The
last lines train a whole model with a field of its own: a rotation that is learnt, which keeps the length of z.
"""

import torch
from torch import nn

import neuralcde as nc

HIDDEN = 4


class Rotation(nc.VectorField):
    """dz = A z dX with a skew-symmetric A for each channel, so that the length of z never changes."""

    def __init__(self, channels: int):
        super().__init__()
        self.weight = nn.Parameter(0.1 * torch.randn(channels, HIDDEN, HIDDEN))

    def forward(self, t: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        """The matrix (batch, hidden, channels)."""
        skew = self.weight - self.weight.transpose(1, 2)
        return torch.einsum("chk,bk->bhc", skew, z)


def main() -> None:
    """Three fields, then a model with one of them."""
    torch.manual_seed(0)
    pairs = [(torch.arange(n), torch.randn(n, 2).cumsum(0) / 3) for n in range(3, 13)]
    path = nc.linear(nc.IrregularSeries.from_list(pairs).with_channels())
    layers = nn.Sequential(nn.Linear(HIDDEN, 16), nn.SiLU(), nn.Linear(16, 12), nn.Tanh(), nn.Unflatten(1, (HIDDEN, 3)))

    def function(t: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        """A pull back to zero through the time channel alone."""
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
