"""Predictions over time: what the model would have predicted at each hour.

    python examples/by_feature/predictions_over_time.py

All stays look alike until hour 6, when some get worse. `predict_proba_at` predicts at times of your choice. No
prediction depends on later observations: it is the one for `series.until(t)`. The last lines change the future to check
this. A model that should be right at every hour, not only at the end, needs one target per row: see targets_per_row.py.
"""

import dataclasses

import numpy as np
from sklearn.metrics import roc_auc_score

import neuralcde as nc

HOURS = [2.0, 5.0, 7.0, 9.0, 12.0]


def stays(count: int, *, seed: int) -> tuple[nc.IrregularSeries, np.ndarray]:
    """Stays of twelve hours; a third of them gets worse from hour 6 on."""
    rng = np.random.default_rng(seed)
    worse = rng.random(count) < 1 / 3
    pairs = []
    for bad in worse:
        times = np.concatenate([[0.0], np.sort(rng.uniform(0, 12, 14)), [12.0]])
        pulse = 80 + rng.normal(0, 3, 16) + bad * 6 * np.clip(times - 6, 0, None)
        pairs.append((times, pulse[:, None]))
    return nc.IrregularSeries.from_list(pairs, channels=["pulse"]), worse


def main() -> None:
    """Predict the risk per hour, then change the future and predict again."""
    series, worse = stays(200, seed=0)
    unseen, truth = stays(200, seed=1)
    clf = nc.NeuralCDEClassifier(
        path="rectilinear", max_epochs=20, hidden=8, width=8, batch_size=32, learning_rate=1e-2, random_state=0
    )
    clf.fit(series, worse)
    risk = clf.predict_proba_at(unseen, HOURS)[:, :, 1]  # (stays, hours); times may also be (stays, hours)
    for k, hour in enumerate(HOURS):
        bad, good = risk[truth, k].mean(), risk[~truth, k].mean()
        area = roc_auc_score(truth, risk[:, k])
        print(f"hour {hour:4}: mean risk {bad:.2f} of those who get worse, {good:.2f} of others, AUROC {area:.2f}")

    dreadful = unseen.values + 50 * (unseen.times > 6)[:, None]
    other = dataclasses.replace(unseen, values=dreadful)
    change = np.abs(clf.predict_proba_at(other, HOURS)[:, :, 1] - risk).max(0)
    for hour, difference in zip(HOURS, change, strict=True):
        print(f"hour {hour:4}: another future changes the risk by {difference:.2f}")


if __name__ == "__main__":
    main()
