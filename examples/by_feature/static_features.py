"""Static features, which do not change over time: numbers and text, known or missing.

    python examples/by_feature/static_features.py

A rising pulse is bad on the ward and good on the track, so neither the series nor the place alone determines the
outcome. Text becomes one indicator per category. A number that is sometimes missing gets an indicator of missing
values. The features determine the initial state of the model.
"""

import numpy as np
import pandas as pd

import neuralcde as nc


def table(count: int, *, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Pulses that rise or fall on the ward or on the track, and whether that is bad."""
    rng = np.random.default_rng(seed)
    rows, bad = [], []
    for name in range(count):
        rises, place, age = rng.random() < 0.5, rng.choice(["ward", "track"]), rng.choice([30.0, 60.0, np.nan])
        bad.append(rises == (place == "ward"))
        for hour in np.sort(rng.uniform(0, 10, 8)):
            rows.append((name, hour, 80 + (3 if rises else -3) * hour + rng.normal(), place, age))
    return pd.DataFrame(rows, columns=["name", "hour", "pulse", "place", "age"]), np.array(bad)


def main() -> None:
    """Compare the same model with and without the static columns."""
    frame, bad = table(200, seed=0)
    new, truth = table(200, seed=1)
    for static in ([], ["place", "age"]):
        series = nc.IrregularSeries.from_long(frame, id="name", time="hour", channels=["pulse"], static=static)
        clf = nc.NeuralCDEClassifier(
            max_epochs=20, hidden=8, width=8, batch_size=32, learning_rate=1e-2, random_state=0
        ).fit(series, bad)
        accuracy = clf.score(nc.IrregularSeries.from_long(new, like=series), truth)
        print(f"static features {', '.join(series.static_names) or 'none'}: accuracy {accuracy:.2f}")


if __name__ == "__main__":
    main()
