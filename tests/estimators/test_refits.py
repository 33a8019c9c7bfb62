"""A fit that fails or is interrupted leaves the estimator unchanged."""

import numpy as np
import pandas as pd
import pytest

import neuralcde as nc
from neuralcde.train import TrainingError

FAST = {"max_epochs": 2, "hidden": 4, "width": 4, "depth": 1, "random_state": 0}
RNG = np.random.default_rng(0)
WALKS = RNG.normal(size=(20, 5)).cumsum(1)
FRAME = pd.DataFrame(WALKS, columns=list("abcde"))
SERIES = nc.IrregularSeries.from_padded(WALKS[:, :, None])
Y = np.arange(20) % 2


def raises(error):
    def train(*_, **__):
        raise error

    return train


def diverges(monkeypatch):
    """Make training fail after all input was checked."""
    monkeypatch.setattr("neuralcde.estimators.members.train", raises(TrainingError("no finite loss")))


def interrupted(monkeypatch):
    """Make Ctrl-C come before the first epoch ends."""
    monkeypatch.setattr("neuralcde.train.loop._epoch", raises(KeyboardInterrupt()))


def unchanged(_):
    """Change nothing: the given parameters or data are invalid themselves."""


@pytest.mark.parametrize("before", [FRAME, SERIES], ids=["frame", "series"])
@pytest.mark.parametrize(
    ("settings", "X", "y", "happens", "error"),
    [
        ({"max_epochs": 0}, SERIES, Y, unchanged, ValueError),
        ({"hidden": "large"}, WALKS[:, :4], Y, unchanged, ValueError),
        ({"path": "spline"}, WALKS[:, :4], Y, unchanged, ValueError),
        ({}, WALKS[:, :4], np.full(20, np.nan), unchanged, ValueError),
        ({}, FRAME[["a", "b"]], ["one class"] * 20, unchanged, ValueError),
        ({}, SERIES, np.array(["u", "v", "w", "x"])[np.arange(20) % 4], diverges, TrainingError),
        ({"per_row": True}, WALKS[:, :3], np.tile([3, 4, 5], (20, 1)), interrupted, KeyboardInterrupt),
        ({"model": "gru_d"}, SERIES, np.eye(2)[Y], interrupted, KeyboardInterrupt),
    ],
    ids=["epochs", "size", "path", "y", "one class", "training", "Ctrl-C, rows", "Ctrl-C, labels"],
)
def test_a_failed_fit_changes_nothing(before, settings, X, y, happens, error, monkeypatch):
    clf = nc.NeuralCDEClassifier(**FAST).fit(before, Y)
    expected, classes = clf.predict_proba(before), clf.classes_
    clf.set_params(**settings)
    fitted = {name: value for name, value in vars(clf).items() if name not in clf.get_params()}
    happens(monkeypatch)
    with pytest.raises(error):
        clf.fit(X, y)
    after = {name: value for name, value in vars(clf).items() if name not in clf.get_params()}
    assert after.keys() == fitted.keys()
    assert all(after[name] is fitted[name] for name in fitted)
    clf.set_params(per_row=False)
    np.testing.assert_array_equal(clf.predict_proba(before), expected)
    np.testing.assert_array_equal(clf.classes_, classes)


def test_a_failed_fit_does_not_change_the_units_of_a_regressor():
    y = WALKS[:, -1]
    reg = nc.NeuralCDERegressor(**FAST).fit(SERIES, y)
    before = reg.predict(SERIES)
    with pytest.raises(ValueError, match="max_epochs"):
        reg.set_params(max_epochs=0).fit(SERIES, 1000 + 5 * y)
    np.testing.assert_array_equal(reg.predict(SERIES), before)


def test_a_failed_first_fit_leaves_the_estimator_unfitted(monkeypatch):
    diverges(monkeypatch)
    clf = nc.NeuralCDEClassifier(**FAST)
    with pytest.raises(TrainingError):
        clf.fit(FRAME, Y)
    assert vars(clf) == vars(nc.NeuralCDEClassifier(**FAST))
    assert not hasattr(clf, "classes_")


def test_a_new_fit_replaces_all_fitted_attributes():
    clf = nc.NeuralCDEClassifier(**FAST).fit(FRAME, Y)
    assert clf.n_features_in_ == 5
    assert clf.feature_names_in_.tolist() == list("abcde")
    clf.fit(WALKS[:, :4], np.array(list("uvw"))[np.arange(20) % 3])
    assert clf.n_features_in_ == 4
    assert not hasattr(clf, "feature_names_in_")
    assert clf.classes_.tolist() == list("uvw")
    clf.fit(SERIES, Y)
    assert not hasattr(clf, "n_features_in_")
    assert clf.classes_.tolist() == [0, 1]
