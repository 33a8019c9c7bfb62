"""How many members members="auto" stands for."""

import numpy as np
import pytest

import neuralcde as nc
from neuralcde.estimators import members


@pytest.mark.parametrize(
    ("asked", "series", "encoded", "count"),
    [("auto", 9_999, True, 1), ("auto", 10_000, True, 2), ("auto", 10_000, False, 1), (3, 5, False, 3)],
)
def test_auto_is_two_for_many_series_with_an_encoder(asked, series, encoded, count):
    assert members.number_of_members(asked, series, encoded=encoded) == count


@pytest.mark.parametrize("options", [{}, {"members": 2}, {"boosting": True}])
def test_what_a_model_gets_depends_on_its_own_training_series(options, monkeypatch):
    """105 series are enough for summaries, the 89 that are left after the validation series are not."""
    monkeypatch.setattr("neuralcde.estimators.modules.SERIES_FOR_SUMMARIES", 100)
    monkeypatch.setattr(members, "cores", lambda: 1)
    values = np.random.default_rng(0).normal(size=(120, 4, 2))
    X, y = nc.IrregularSeries.from_padded(values), np.arange(120) % 2
    given = {"encoder": "mlp", "hidden": 3, "width": 3, "max_epochs": 1, "random_state": 0} | options
    few, many = (nc.NeuralCDEClassifier(**given).fit(X[:n], y[:n]) for n in (105, 120))
    assert [type(model.module_.readout).__name__ for model in (few, many)] == ["LinearReadout", "SummaryReadout"]


def test_many_series_are_fitted_by_two_members_and_saved(monkeypatch, tmp_path):
    monkeypatch.setattr(members, "MANY_SERIES", 30)
    monkeypatch.setattr(members, "cores", lambda: 1)
    rng = np.random.default_rng(0)
    values = np.where(rng.random((40, 6, 2)) < 0.6, np.nan, rng.normal(size=(40, 6, 2)))
    X = nc.IrregularSeries.from_padded(values, lengths=np.full(40, 6))
    model = nc.NeuralCDEClassifier(hidden=4, width=4, max_epochs=1, random_state=0).fit(X, np.arange(40) % 2)
    assert len(model.members_) == 2
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(nc.load(tmp_path / "model").predict_proba(X), model.predict_proba(X))
    few = nc.NeuralCDEClassifier(hidden=4, width=4, max_epochs=1, random_state=0).fit(X[:20], np.arange(20) % 2)
    assert len(few.members_) == 1
