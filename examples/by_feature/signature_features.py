"""Signatures as features: a linear CDE without training, followed by scikit-learn's linear models.

    python examples/by_feature/signature_features.py

The signature of a path consists of its iterated integrals. Linear maps of it approximate any continuous function of the
path, better with every level. Here ridge regression learns the area enclosed by an irregularly sampled loop. The area
is a product of two channels: a linear map of averages cannot express it, a linear map of the signature is exact from
depth 2 on.
"""

import numpy as np
import torch
from sklearn.linear_model import RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import neuralcde as nc


def loops(count: int, *, seed: int) -> tuple[nc.ControlPath, np.ndarray]:
    """Paths through random points in the plane, with time as a channel, and the area between each and its chord."""
    rng = np.random.default_rng(seed)
    pairs, areas = [], []
    for _ in range(count):
        points = rng.normal(size=(rng.integers(6, 14), 2)).cumsum(0) / 3
        points -= points[0]
        x, y = points.T
        areas.append((x[:-1] * y[1:] - x[1:] * y[:-1]).sum() / 2)
        pairs.append((np.sort(rng.uniform(0, 1, len(points))), points))
    return nc.linear(nc.IrregularSeries.from_list(pairs, dtype=torch.float64).with_channels()), np.array(areas)


def main() -> None:
    """Compare averages with signatures of depth 1, 2 and 3."""
    (path, area), (unseen, truth) = loops(300, seed=0), loops(300, seed=1)

    def averages(of: nc.ControlPath) -> np.ndarray:
        parts = of.at_rows().split(of.series.lengths.tolist())
        return np.stack([np.concatenate([part.mean(0), part.std(0)]) for part in parts])

    features = {"averages": averages, **{f"depth {n}": lambda p, n=n: nc.signature(p, n).numpy() for n in (1, 2, 3)}}
    for name, of in features.items():
        ridge = make_pipeline(StandardScaler(), RidgeCV(np.logspace(-9, 3, 13))).fit(of(path), area)
        print(f"{name:<9} {of(path).shape[1]:>3} features: R2 on unseen loops {ridge.score(of(unseen), truth):.3f}")


if __name__ == "__main__":
    main()
