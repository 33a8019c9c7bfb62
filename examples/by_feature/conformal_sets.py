"""Sets of classes and intervals that hold the truth nine times in ten: split-conformal prediction with MAPIE.

The series that set the width are neither those of the training nor those of the test. MAPIE takes our estimators as it
takes those of scikit-learn (`pip install mapie`). Prints the share of test series whose truth is inside, which must be
0.9 up to its standard error, and how large the sets and intervals are.

    python examples/by_feature/conformal_sets.py
"""

import math
import warnings

import numpy as np
from mapie.classification import SplitConformalClassifier
from mapie.regression import SplitConformalRegressor

import neuralcde as nc

LEVEL, CONFORMAL, TEST = 0.9, 600, 1500


def walks(count, seed):
    """Random walks of two channels, and a number that depends on the end of the first one."""
    rng = np.random.default_rng(seed)
    pairs = [(np.arange(6.0), rng.normal(size=(6, 2)).cumsum(0)) for _ in range(count)]
    target = np.array([values[-1, 0] for _, values in pairs]) + rng.normal(size=count)
    return nc.IrregularSeries.from_list(pairs), target


def classes(target):
    """The numbers in three classes."""
    return np.array(["low", "middle", "high"])[np.digitize(target, [-1, 1])]


train, conformal, test = walks(300, 0), walks(CONFORMAL, 1), walks(TEST, 2)
options = {"max_epochs": 6, "hidden": 8, "width": 8, "learning_rate": 0.01, "random_state": 0}
# The share varies with the test series, and with those that set the width.
error = math.sqrt(LEVEL * (1 - LEVEL) * (1 / CONFORMAL + 1 / TEST))

clf = nc.NeuralCDEClassifier(**options).fit(train[0], classes(train[1]))
sets = SplitConformalClassifier(clf, confidence_level=LEVEL, prefit=True)
_, inside = sets.conformalize(conformal[0], classes(conformal[1])).predict_set(test[0])
held = inside[np.arange(TEST), np.searchsorted(clf.classes_, classes(test[1])), 0]
print(f"classes: {held.mean():.3f} of the sets hold the truth, standard error {error:.3f}")
print(f"a set has {inside.sum(1).mean():.2f} of 3 classes")

warnings.filterwarnings("ignore", message="Estimator does not appear fitted")  # MAPIE looks for n_features_in_
reg = nc.NeuralCDERegressor(**options).fit(*train)
intervals = SplitConformalRegressor(reg, confidence_level=LEVEL, prefit=True)
_, bounds = intervals.conformalize(*conformal).predict_interval(test[0])
low, high = bounds[:, 0, 0], bounds[:, 1, 0]
held = (low <= test[1]) & (test[1] <= high)
print(f"numbers: {held.mean():.3f} of the intervals hold the truth, standard error {error:.3f}")
print(f"an interval is {np.mean(high - low):.2f} wide; the deviation of the numbers is {test[1].std():.2f}")
