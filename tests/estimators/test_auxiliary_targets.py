"""fit(..., auxiliary=): targets at rows as a second loss."""

import numpy as np
import pytest
import torch

import neuralcde as nc
from neuralcde.estimators.auxiliary import as_auxiliary

RNG = np.random.default_rng(0)
SERIES = nc.IrregularSeries.from_list(
    [(np.arange(5.0), RNG.normal(size=(5, 2))) for _ in range(20)], ids=[f"s{k}" for k in range(20)]
)
LABELS = np.arange(20) % 2
HOURLY = np.where(RNG.random(100) < 0.2, np.nan, RNG.integers(0, 2, 100).astype(float))


def fitted(**options):
    auxiliary, weight = options.pop("auxiliary", None), options.pop("sample_weight", None)
    model = nc.NeuralCDEClassifier(hidden=4, width=4, max_epochs=3, random_state=0, **options)
    return model.fit(SERIES, LABELS, weight, auxiliary=auxiliary)


@pytest.mark.parametrize("encoder", [None, "mlp"])
def test_auxiliary_targets_change_the_weights_and_leave_the_model_as_it_is(encoder, tmp_path):
    plain, taught = fitted(encoder=encoder), fitted(encoder=encoder, auxiliary=HOURLY)
    assert taught.module_.state_dict().keys() == plain.module_.state_dict().keys()
    assert not np.array_equal(plain.predict_proba(SERIES), taught.predict_proba(SERIES))
    taught.save(tmp_path / "model")
    assert np.array_equal(nc.load(tmp_path / "model").predict_proba(SERIES), taught.predict_proba(SERIES))


def test_auxiliary_targets_may_be_given_by_id():
    by_id = dict(zip(SERIES.ids.tolist(), np.split(HOURLY, 20), strict=True))
    found = fitted(auxiliary=by_id).predict_proba(SERIES)
    assert np.array_equal(found, fitted(auxiliary=HOURLY).predict_proba(SERIES))


def test_series_without_weight_are_left_out_with_their_auxiliary_targets():
    weight = (np.arange(20) >= 4).astype(float)
    other = HOURLY.copy()
    other[:20] = 1 - other[:20]
    found = [fitted(auxiliary=given, sample_weight=weight).predict_proba(SERIES) for given in (HOURLY, other)]
    assert np.array_equal(*found)


@pytest.mark.parametrize("per_row", [False, True])
def test_auxiliary_targets_have_the_weights_of_their_series(per_row):
    """Auxiliary targets of series with nearly no weight change nearly nothing."""
    weight = np.where(np.arange(20) % 4 < 2, 1e-9, 1.0)
    labels = np.repeat(LABELS, 5) if per_row else LABELS

    def outputs(auxiliary):
        options = {"max_epochs": 5, "learning_rate": 0.05, "ema_decay": 0.0, "random_state": 0}
        model = nc.NeuralCDEClassifier(hidden=4, width=4, per_row=per_row, **options)
        return model.fit(SERIES, labels, weight, auxiliary=auxiliary).outputs(SERIES)

    found, light = outputs(HOURLY), np.repeat(weight < 1, 5)
    np.testing.assert_allclose(outputs(np.where(light, 1 - HOURLY, HOURLY)), found, atol=1e-5)
    assert not np.allclose(outputs(np.where(light, HOURLY, HOURLY[::-1])), found, atol=0.05)


@pytest.mark.parametrize(
    ("given", "task"),
    [
        (np.array(["a", "b"])[np.arange(100) % 2], "BinaryTask"),
        (np.arange(100) % 3, "MulticlassTask"),
        (np.arange(100) / 2, "RegressionTask"),
        (np.arange(100), "RegressionTask"),
    ],
)
def test_the_task_follows_from_the_targets(given, task):
    found = as_auxiliary(given, SERIES, by_id=True)
    assert type(found.task).__name__ == task
    assert len(found.targets) == 100


def test_wrong_auxiliary_targets_are_refused_by_name():
    for wrong, text in (
        (HOURLY[1:], "auxiliary, which is given per row"),
        (np.zeros(100), "auxiliary has 1 different"),
    ):
        with pytest.raises(ValueError, match=text) as caught:
            fitted(auxiliary=wrong)
        assert caught.value.argument == "auxiliary"


def test_members_are_trained_with_the_auxiliary_targets(monkeypatch):
    monkeypatch.setattr("neuralcde.estimators.members.number_of_processes", lambda *given: 1)
    plain, taught = fitted(members=2), fitted(members=2, auxiliary=HOURLY)
    assert not torch.equal(plain.member_outputs(SERIES)[1], taught.member_outputs(SERIES)[1])
