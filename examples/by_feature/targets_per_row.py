"""One target per observation: the model learns to be right at all times, not only at the end.

    python examples/by_feature/targets_per_row.py

Machines run, and some of them break; from then on they tremble. Every row has a label, but some labels are unknown
(empty) and are ignored. With `per_row=True`, y has one target per row, and there is one prediction per row, which
depends on the past only.
"""

import numpy as np
import pandas as pd
from sklearn.metrics import roc_auc_score

import neuralcde as nc


def log(count: int, *, seed: int) -> pd.DataFrame:
    """One row per machine and hour: two sensors, and whether the machine is broken."""
    rng = np.random.default_rng(seed)
    parts = []
    for machine in range(count):
        hours = np.sort(rng.uniform(0, 24, 20))
        broken = hours > rng.uniform(4, 40)
        noise = rng.normal(0, np.where(broken, 1.0, 0.2)[:, None], (20, 2))
        noise[rng.random(noise.shape) < 0.2] = np.nan
        state = np.where(rng.random(20) < 0.1, None, np.where(broken, "broken", "fine"))
        columns = {"machine": f"m{machine}", "hour": hours, "left": noise[:, 0], "right": noise[:, 1], "state": state}
        parts.append(pd.DataFrame(columns))
    return pd.concat(parts)


def labels(frame: pd.DataFrame) -> dict[str, np.ndarray]:
    """The labels per machine, in order of time."""
    return {name: part["state"].to_numpy() for name, part in frame.sort_values("hour").groupby("machine")}


def main() -> None:
    """Fit and predict with one target per row."""
    frame, new = log(100, seed=0), log(100, seed=1)
    series = nc.IrregularSeries.from_long(frame, id="machine", time="hour", channels=["left", "right"])
    unseen = nc.IrregularSeries.from_long(new, like=series)
    quick = {"max_epochs": 15, "hidden": 8, "width": 16, "depth": 1, "batch_size": 16, "learning_rate": 2e-2}
    clf = nc.NeuralCDEClassifier(per_row=True, random_state=0, **quick).fit(series, labels(frame))
    p = clf.predict_proba(unseen)[:, 0]  # one per row, of classes_[0]: "broken"
    states = labels(new)
    truth = np.concatenate([states[name] for name in unseen.ids])
    known = pd.notna(truth)
    print(
        f"{len(p)} rows of {len(unseen)} machines; "
        f"AUROC over rows {roc_auc_score(truth[known] == 'broken', p[known]):.2f}"
    )
    machine = next(k for k in range(100) if {"fine", "broken"} <= set(states[unseen.ids[k]]))
    rows = slice(*unseen.offsets[machine : machine + 2].tolist())
    for hour, state, risk in list(zip(unseen.times[rows].tolist(), truth[rows], p[rows], strict=True))[::3]:
        print(f"{unseen.ids[machine]} at hour {hour:4.1f}: {state}, broken with probability {risk:.2f}")


if __name__ == "__main__":
    main()
