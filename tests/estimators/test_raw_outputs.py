"""Raw outputs of fitted estimators, from which predictions are made. Input is validated once."""

import numpy as np
import pytest
import torch
from scipy.special import expit
from sklearn.exceptions import NotFittedError

import neuralcde as nc
from neuralcde.estimators import inputs
from neuralcde.tasks import BinaryTask

QUICK = {"max_epochs": 2, "hidden": 5, "width": 6, "depth": 1, "random_state": 0}
WALKS = np.random.default_rng(0).normal(size=(20, 6)).cumsum(1)
RISES = WALKS[:, -1] > WALKS[:, 0]


def test_decoded_outputs_equal_predictions():
    clf = nc.NeuralCDEClassifier(**QUICK).fit(WALKS, RISES)
    logits = clf.outputs(WALKS)
    assert logits.shape == (20, 1)
    np.testing.assert_array_equal(clf.predict_proba(WALKS)[:, 1], expit(logits.double().numpy())[:, 0])
    np.testing.assert_array_equal(clf.predict(WALKS), logits[:, 0].numpy() > 0)
    reg = nc.NeuralCDERegressor(**QUICK).fit(WALKS, WALKS[:, -1])
    np.testing.assert_array_equal(reg.predict(WALKS), reg.task_.decode(reg.outputs(WALKS)))


def test_outputs_per_row_have_one_entry_per_observation():
    reg = nc.NeuralCDERegressor(per_row=True, **QUICK).fit(WALKS, WALKS)
    assert reg.outputs(WALKS[:3]).shape == (18, 1)


def test_outputs_at_the_last_row_equal_those_of_the_series():
    clf = nc.NeuralCDEClassifier(**QUICK).fit(WALKS, RISES)
    at = clf.outputs_at(WALKS, [2.5, 5.0])
    assert at.shape == (20, 2, 1)
    torch.testing.assert_close(at[:, 1], clf.outputs(WALKS), rtol=1e-5, atol=1e-6)
    own = np.stack([np.full(20, 2.5), np.linspace(0, 5, 20)], axis=1)  # other times for each series
    torch.testing.assert_close(clf.outputs_at(WALKS, own)[:, 0], at[:, 0])


def test_outputs_before_fit_are_refused():
    for method in (lambda clf: clf.outputs(WALKS), lambda clf: clf.outputs_at(WALKS, [1.0])):
        with pytest.raises(NotFittedError):
            method(nc.NeuralCDEClassifier())


@pytest.mark.parametrize("per_row", [False, True])
def test_score_validates_its_input_once(per_row, monkeypatch):
    y = np.sign(WALKS).astype(int) if per_row else RISES
    clf = nc.NeuralCDEClassifier(per_row=per_row, **QUICK).fit(WALKS, y)
    expected = float(np.mean(clf.predict(WALKS) == y.ravel()))
    calls = []
    validate = inputs.validate_data
    monkeypatch.setattr(
        inputs, "validate_data", lambda *given, **options: calls.append(1) or validate(*given, **options)
    )
    assert clf.score(WALKS, y) == pytest.approx(expected)
    assert len(calls) == 1


def test_targets_of_rows_are_encoded_once(monkeypatch):
    calls = []
    encode = BinaryTask.encode
    monkeypatch.setattr(BinaryTask, "encode", lambda task, y: calls.append(len(y)) or encode(task, y))
    nc.NeuralCDEClassifier(per_row=True, **QUICK).fit(WALKS, WALKS > 0)
    assert calls == [WALKS.size]
