"""Several binary labels at once, one number, several numbers.

    python examples/by_feature/multilabel_and_regression.py

The task follows from y: a matrix of zeros and ones means one label per column, a vector of numbers one target, a matrix
of numbers several targets. Regression targets are scaled internally, and predictions are in the original units.
"""

import numpy as np

import neuralcde as nc

QUICK = {"max_epochs": 20, "hidden": 8, "width": 16, "depth": 1, "batch_size": 16, "learning_rate": 1e-2}


def trips(count: int, *, seed: int) -> tuple[nc.IrregularSeries, np.ndarray]:
    """Random walks in the plane at irregular times, and the end point of each."""
    rng = np.random.default_rng(seed)
    pairs = []
    for _ in range(count):
        steps = rng.normal(size=(rng.integers(5, 12), 2))
        pairs.append((np.sort(rng.uniform(0, 10, len(steps))), steps.cumsum(0)))
    return nc.IrregularSeries.from_list(pairs, channels=["east", "north"]), np.array([x[-1] for _, x in pairs])


def main() -> None:
    """Fit three kinds of y for the same series."""
    series, end = trips(150, seed=0)
    unseen, truth = trips(150, seed=1)

    both = nc.NeuralCDEClassifier(**QUICK, random_state=0, class_weight="balanced").fit(series, (end > 0).astype(int))
    right = (both.predict(unseen) == (truth > 0)).mean(0)
    print(f"labels: ends east, ends north; right for {right[0]:.2f} and {right[1]:.2f} of the trips")
    print(f"probabilities of the first trip: {np.round(both.predict_proba(unseen[:1]), 2).tolist()[0]}")

    metres = 1000 * np.hypot(end[:, 0], end[:, 1])
    one = nc.NeuralCDERegressor(**QUICK, random_state=0).fit(series, metres)
    print(f"one number, the distance in metres: R2 {one.score(unseen, 1000 * np.hypot(*truth.T)):.2f}")

    two = nc.NeuralCDERegressor(**QUICK, random_state=0).fit(series, end)
    print(f"two numbers, where the trip ends: R2 {two.score(unseen, truth):.2f}")
    print(
        f"first trip: ends at {np.round(truth[0], 1).tolist()}, "
        f"predicted {np.round(two.predict(unseen[:1]), 1)[0].tolist()}"
    )


if __name__ == "__main__":
    main()
