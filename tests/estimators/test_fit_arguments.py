"""Arguments of `fit` beside X and y: weights, groups, validation series, callbacks."""

import numpy as np
import pytest

import neuralcde as nc
from neuralcde.estimators import members
from neuralcde.estimators.splits import validation_split
from neuralcde.train.state import TrainingResult

QUICK = {"max_epochs": 2, "hidden": 3, "width": 4, "depth": 1, "random_state": 0}
RNG = np.random.default_rng(0)
SERIES = nc.IrregularSeries.from_list(
    [(np.arange(4.0), RNG.normal(size=(4, 2)).cumsum(0)) for _ in range(90)], ids=[f"s{k}" for k in range(90)]
)
Y = np.arange(90) % 2
OTHERS = nc.IrregularSeries.from_list([(np.arange(3.0), RNG.normal(size=(3, 2))) for _ in range(20)])


def new(**options):
    return nc.NeuralCDEClassifier(**QUICK | options)


def test_weights_change_the_fit_and_series_of_weight_0_are_left_out():
    weights = RNG.uniform(0.5, 3, 90)
    by_position = new().fit(SERIES, Y, weights).predict_proba(OTHERS)
    by_id = new().fit(SERIES, Y, dict(zip(SERIES.ids, weights, strict=True))).predict_proba(OTHERS)
    assert np.array_equal(by_position, by_id)
    assert not np.allclose(by_position, new().fit(SERIES, Y).predict_proba(OTHERS))
    chosen = np.arange(90) % 3 != 0
    some = new().fit(SERIES[chosen], Y[chosen], weights[chosen]).predict_proba(OTHERS)
    assert np.array_equal(new().fit(SERIES, Y, weights * chosen).predict_proba(OTHERS), some)


@pytest.mark.parametrize("options", [{}, {"boosting": True}], ids=["one model", "with trees"])
def test_the_start_has_the_weights_too(options):
    """Series with nearly no weight and far targets do not move the others, however few the epochs."""
    light = np.arange(90) % 2 == 0
    y, weights = RNG.normal(size=90), np.where(light, 1e-9, 1.0)

    def predicted(far):
        model = nc.NeuralCDERegressor(**QUICK | options | {"max_epochs": 1})
        return model.fit(SERIES, np.where(light, far, y), weights).predict(SERIES[~light])

    assert np.abs(predicted(100.0) - y[~light].mean()).max() < 5  # 50 without weights at the start


@pytest.mark.parametrize("labels", [None, Y], ids=["plain", "stratified"])
@pytest.mark.parametrize("size", [2, 7, 40])  # series in a group
def test_groups_are_never_split(labels, size):
    groups = RNG.permutation(np.arange(90) // size)
    for seed in range(5):
        training, validation = validation_split(0.2, 90, seed, labels, groups)
        assert not set(groups[training]) & set(groups[validation])
        assert sorted([*training, *validation]) == list(range(90))
        assert len(validation) >= 8


def test_fit_keeps_groups_together_by_position_and_by_id(monkeypatch):
    plans, row = [], {"epoch": 1, "loss": 1.0, "rate": 1.0, "seconds": 1.0}
    monkeypatch.setattr(members, "train_member", lambda data, plan, _: plans.append(plan) or TrainingResult([row], 1))
    patient = RNG.permutation(np.arange(90) // 3)
    for groups in (patient, dict(zip(SERIES.ids, patient, strict=True))):
        new().fit(SERIES, Y, groups=groups)
        assert not set(patient[plans[-1].training]) & set(patient[plans[-1].validating])
    assert np.array_equal(plans[0].validating, plans[1].validating)
    with pytest.raises(ValueError, match="groups: all series are in one group"):
        new().fit(SERIES, Y, groups=np.zeros(90))


def test_validation_series_that_are_given_judge_the_epochs():
    y = np.arange(20) % 2
    found = [new().fit(SERIES, Y, validation=(OTHERS, labels)).history_ for labels in (y, 1 - y)]
    for right, wrong in zip(*found, strict=True):
        assert right["loss"] == wrong["loss"]  # they are not trained on
        assert right["validation_auroc"] == pytest.approx(1 - wrong["validation_auroc"])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (OTHERS, r"validation must be a pair \(X, y\)"),
        ((OTHERS, np.zeros(3)), "validation: Found input variables with inconsistent numbers"),
        ((OTHERS, np.full(20, 7)), "validation: y has the class 7, which is not one of"),
        ((nc.IrregularSeries.from_list([([0.0], [[1.0]])]), [0]), "validation: the scaler was fitted on channels"),
    ],
    ids=["no pair", "lengths", "class", "channels"],
)
def test_wrong_validation_series_are_named(given, message):
    with pytest.raises(ValueError, match=message):
        new().fit(SERIES, Y, validation=given)


@pytest.mark.parametrize("callbacks", [print, [print, 3]], ids=["a function", "a number"])
def test_callbacks_that_are_no_list_of_functions_are_refused_before_training(callbacks):
    with pytest.raises(ValueError, match="callbacks must be a list of functions"):
        new().fit(SERIES, Y, callbacks=callbacks)
