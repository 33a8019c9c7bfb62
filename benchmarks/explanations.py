"""Explaining predictions: time for 1,000 stays of 50 rows and 8 channels, a quarter of them observed."""

from __future__ import annotations

from typing import Any

import numpy as np

import neuralcde as nc

from .measure import once, save, show

STAYS, ROWS, CHANNELS, OBSERVED = 1000, 50, 8, 0.25
AT_MOST = 20  # seconds
MODELS: dict[str, dict[str, Any]] = {
    "default (with an encoder)": {},
    "without encoder": {"encoder": None},
    "four members and gradient boosting": {"members": 4, "boosting": True},
}


def main(chosen: list[str]) -> None:
    tables = {"stays": explained_stays}
    for name in chosen or tables:
        save("explanations", {name: tables[name]()})


def random_stays(seed: int = 0) -> nc.IrregularSeries:
    """Random walks of these sizes, whose values are observed at random."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(STAYS, ROWS, CHANNELS)).cumsum(1)
    values[rng.random(values.shape) >= OBSERVED] = np.nan
    return nc.IrregularSeries.from_list(zip(rng.uniform(0.1, 1.9, (STAYS, ROWS)).cumsum(1), values, strict=True))


def explained_stays() -> list[dict[str, object]]:
    """`clf.explain(series)` of each model, once, and how far its terms are from adding up."""
    series, rows = random_stays(), []
    y = (series.to_padded().values[:, -1, 0] > 0).numpy()
    for name, options in MODELS.items():
        clf = nc.NeuralCDEClassifier(max_epochs=1, random_state=0, **options).fit(series, y)
        outputs = clf.outputs(series)  # warm up: one-time loading must not count
        made: list[nc.Explanation] = []
        seconds = once(lambda clf=clf, made=made: made.append(clf.explain(series)))
        error = abs(made[0].final - clf.task_.scores(outputs).numpy()).max()
        rows.append({"model": name, "seconds": seconds, "at most": AT_MOST, "largest error of a sum": float(error)})
    show(f"Explaining {STAYS:,} stays of {ROWS} rows and {CHANNELS} channels, {OBSERVED:.0%} observed", rows)
    return rows
