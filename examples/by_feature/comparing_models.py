"""The five models of the paper on the same series, selected by one argument.

    python examples/by_feature/comparing_models.py

The Neural CDE and GRU-ODE are driven by a path through the data; GRU-dt, GRU-D and ODE-RNN jump at the observations.
All share scaling, channels, training and readout, so only the model differs. The label says which of two channels peaks
first; every series has different times. This is a toy: it shows how to compare models, not which is best.
"""

import numpy as np

import neuralcde as nc

MODELS = ("neural_cde", "gru_ode", "gru_dt", "gru_d", "ode_rnn")


def peaks(count: int, *, seed: int) -> tuple[nc.IrregularSeries, np.ndarray]:
    """Two channels with one peak each; a third of the values is missing."""
    rng = np.random.default_rng(seed)
    first, pairs = [], []
    for _ in range(count):
        times = np.sort(rng.uniform(0, 10, 16))
        tops = rng.uniform(1, 9, 2)
        values = np.exp(-((times[:, None] - tops) ** 2)) + rng.normal(0, 0.05, (16, 2))
        values[rng.random(values.shape) < 1 / 3] = np.nan
        first.append("left" if tops[0] < tops[1] else "right")
        pairs.append((times, values))
    return nc.IrregularSeries.from_list(pairs, channels=["left", "right"]), np.array(first)


def main() -> None:
    """Fit each model and test it on the same unseen series."""
    series, first = peaks(100, seed=0)
    unseen, truth = peaks(200, seed=1)
    for model in MODELS:
        clf = nc.NeuralCDEClassifier(
            model, hidden=16, width=16, depth=1, max_epochs=12, batch_size=16, learning_rate=2e-2, random_state=0
        )
        accuracy = clf.fit(series, first).score(unseen, truth)
        parameters = sum(p.numel() for p in clf.module_.parameters())
        print(f"{model:<12} accuracy {accuracy:.2f} with {parameters} parameters")


if __name__ == "__main__":
    main()
