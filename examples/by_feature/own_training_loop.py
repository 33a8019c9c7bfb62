"""Without the estimator: series, path, model and a training loop in plain torch.

    python examples/by_feature/own_training_loop.py

A model maps a batch of paths to one output per series, like any torch module. `PathDataset.loader` is a torch
`DataLoader` whose batches are slices of the path: nothing is padded, whatever the lengths.
"""

import numpy as np
import torch
from torch.nn import functional

import neuralcde as nc


def spirals(count: int, *, seed: int) -> tuple[nc.IrregularSeries, torch.Tensor]:
    """Points on spirals that turn left or right, at 10 to 19 irregular times; a fifth of the values is missing."""
    rng = np.random.default_rng(seed)
    turn = rng.integers(0, 2, count)
    pairs = []
    for left in turn:
        times = np.sort(rng.uniform(0, 4, rng.integers(10, 20)))
        angle = (1 if left else -1) * times + rng.uniform(0, 6)
        points = np.stack([np.cos(angle), np.sin(angle)], axis=1) * np.exp(-0.2 * times)[:, None]
        points[rng.random(points.shape) < 0.2] = np.nan
        pairs.append((times, points))
    return nc.IrregularSeries.from_list(pairs, channels=["x", "y"]), torch.tensor(turn).float()


def main() -> None:
    """Scale, add time, build paths, train, test."""
    torch.manual_seed(0)
    series, turn = spirals(200, seed=0)
    unseen, truth = spirals(200, seed=1)
    scaler = nc.SeriesScaler().fit(series)
    path, test = (nc.linear(scaler.transform(part).with_channels(), fill="forward") for part in (series, unseen))

    model = nc.NeuralCDE(path.channels, outputs=1, hidden=8, width=16, depth=1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    data = nc.PathDataset(path, turn)
    for epoch in range(15):
        total = 0.0
        for batch, targets in data.loader(batch_size=20, shuffle=True):
            loss = functional.binary_cross_entropy_with_logits(model(batch)[:, 0], targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(batch)
        if epoch % 5 == 4:
            print(f"epoch {epoch + 1}: loss {total / len(data):.3f}")
    with torch.no_grad():
        right = (model(test)[:, 0] > 0) == truth.bool()
    print(f"accuracy on unseen spirals: {right.float().mean():.2f}; engine: {model.solve(test).stats.engine}")


if __name__ == "__main__":
    main()
