"""What is promised for few series: boosting that does not learn them by heart, and sets that hold the truth."""

import math

import numpy as np
import polars as pl
from mapie.classification import SplitConformalClassifier
from scipy.special import expit
from sklearn.metrics import log_loss

import neuralcde as nc
from neuralcde.datasets import icu_table
from neuralcde.estimators import boosting


def test_boosting_of_few_cases_is_regularised():
    """Twelve features of which three matter: larger trees are sure of their noise."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2000, 12))
    y = (rng.random(2000) < expit(x[:, 0] - x[:, 1] + 0.7 * x[:, 2] * x[:, 3] - 0.5)).astype(float)
    known = boosting.Cases(x[:130], y[:130], None)
    found = boosting._fitted("classification", known, None, 0).predict_proba(x[500:])[:, 1]
    large = boosting.HistGradientBoostingClassifier(
        **boosting.SETTINGS, min_samples_leaf=5, max_iter=150, early_stopping=False, random_state=0
    )
    before = large.fit(*known[:2]).predict_proba(x[500:])[:, 1]
    assert log_loss(y[500:], found) < 0.95 * log_loss(y[500:], before)


def stays(count, seed):
    table = icu_table(count, seed)
    outcome = table.group_by("stay", maintain_order=True).agg(pl.col("outcome").first())["outcome"].to_numpy()
    return nc.IrregularSeries.from_long(table.drop("outcome"), id="stay", time="hour", static=["age"]), outcome


def test_conformal_sets_of_stays_hold_the_truth_as_often_as_promised():
    """Whatever the model is worth: on stays that neither it nor the width of the sets has seen."""
    level, width, test = 0.9, 400, 600
    series, died = stays(120 + width + test, 0)
    clf = nc.NeuralCDEClassifier(max_epochs=2, hidden=4, width=4, random_state=0).fit(series[:120], died[:120])
    sets = SplitConformalClassifier(clf, confidence_level=level, prefit=True)
    seen, unseen = slice(120, 120 + width), slice(120 + width, None)
    _, inside = sets.conformalize(series[seen], died[seen]).predict_set(series[unseen])
    held = inside[np.arange(test), np.searchsorted(clf.classes_, died[unseen]), 0]
    # The share varies with the stays that are tested, and with those that set the width.
    error = math.sqrt(level * (1 - level) * (1 / width + 1 / test))
    assert abs(held.mean() - level) < 2 * error
    assert inside.sum(1).mean() < 2  # not both classes always
