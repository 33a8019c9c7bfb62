"""Missing values stay missing, and how often something is measured can be what matters.

    python examples/by_feature/missing_values_and_intensity.py

In this ward nobody's lactate changes, but it is measured more often in patients whom the doctors worry about. The
values carry no information; the pattern of missing values carries all of it. `intensity=True` gives the model a running
count of observations per channel. The default, "auto", does so if any values are missing.
"""

import numpy as np
from sklearn.metrics import roc_auc_score

import neuralcde as nc


def ward(count: int, *, seed: int) -> tuple[nc.IrregularSeries, np.ndarray]:
    """Stays with a constant lactate that is measured often or rarely, and whether the doctors worry."""
    rng = np.random.default_rng(seed)
    worry = rng.random(count) < 0.5
    pairs = []
    for often in worry:
        times = np.concatenate([[0.0], np.sort(rng.uniform(0, 24, 15))])
        seen = np.concatenate([[True], rng.random(15) < (0.6 if often else 0.25)])
        lactate = np.where(seen, rng.normal(2, 0.5), np.nan)
        pairs.append((times, np.stack([lactate, rng.normal(80, 9, 16)], axis=1)))
    return nc.IrregularSeries.from_list(pairs, channels=["lactate", "pulse"]), worry


def main() -> None:
    """Compare the same model with and without the counts."""
    series, worry = ward(200, seed=0)
    unseen, truth = ward(200, seed=1)
    print(series)
    print("lactate of the first stay:", [round(x, 1) for x in series[0].values[:, 0].tolist()])
    print("channels with counts:", ", ".join(series.with_channels(counts="per_channel").channel_names))
    for intensity in (False, True):
        clf = nc.NeuralCDEClassifier(
            intensity=intensity, max_epochs=20, hidden=8, width=8, batch_size=32, learning_rate=1e-2, random_state=0
        )
        p = clf.fit(series, worry).predict_proba(unseen)[:, 1]
        print(f"intensity={intensity}: AUROC on unseen stays {roc_auc_score(truth, p):.2f}")


if __name__ == "__main__":
    main()
