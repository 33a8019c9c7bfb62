"""From a long table to a saved model that predicts for a new table.

    python examples/by_feature/table_to_model.py

The table has one row per stay and time, and one column per measured quantity; cells are empty if nothing was measured.
The stays differ in length and in their times. Nothing needs to be resampled or filled in.
"""

import tempfile

import numpy as np
import pandas as pd
from sklearn.model_selection import train_test_split

import neuralcde as nc


def stays(count: int, *, seed: int) -> tuple[pd.DataFrame, pd.Series]:
    """A long table, and one outcome per stay: the pulse of patients who fall ill rises."""
    rng = np.random.default_rng(seed)
    rows, outcome = [], {}
    for stay in range(count):
        name, ill = f"stay {stay}", rng.random() < 0.5
        outcome[name] = "ill" if ill else "well"
        level = rng.normal(80, 10)
        for hour in np.sort(rng.uniform(0, 24, rng.integers(5, 15))):
            pulse = level + (1.5 if ill else -0.5) * hour + rng.normal(0, 3)
            rows.append((name, hour, pulse if rng.random() < 0.8 else None, rng.normal(120, 9), 30 + stay % 50))
    frame = pd.DataFrame(rows, columns=["stay", "hour", "pulse", "pressure", "age"])
    return frame.sample(frac=1, random_state=seed), pd.Series(outcome)  # rows may come in any order


def main() -> None:
    """Read, fit, test, save, load, predict."""
    frame, outcome = stays(160, seed=0)
    series = nc.IrregularSeries.from_long(frame, id="stay", time="hour", static=["age"])
    print(series)

    training, test = train_test_split(np.arange(len(series)), test_size=0.25, random_state=0)
    outcome = outcome.loc[series.ids]  # by position; fit also takes outcomes by id
    clf = nc.NeuralCDEClassifier(max_epochs=30, hidden=8, width=8, batch_size=32, learning_rate=1e-2, random_state=0)
    clf.fit(series[training], outcome.iloc[training])
    print(f"accuracy on {len(test)} unseen stays: {clf.score(series[test], outcome.iloc[test]):.2f}")

    with tempfile.TemporaryDirectory() as folder:
        clf.save(folder)
        loaded = nc.load(folder)
    new, truth = stays(3, seed=3)
    new_series = nc.IrregularSeries.from_long(new, like=series)  # the same columns, read in the same way
    risk = loaded.predict_proba(new_series)[:, loaded.classes_.tolist().index("ill")]
    for name, p in zip(new_series.ids, risk, strict=True):
        print(f"{name}, in truth {truth[name]}: ill with probability {p:.2f}")


if __name__ == "__main__":
    main()
