"""Values far outside the training range: one warning per call, a list of them, and bounded effects on predictions."""

import warnings

import numpy as np
import pytest

import neuralcde as nc
from fresh_python import fresh_python
from neuralcde.series import FarValueWarning
from neuralcde.series.far_values import FarValues

SMALL = {"max_epochs": 15, "hidden": 8, "width": 8, "random_state": 0}


def stays(count=80, *, seed=0):
    """Series of 12 rows in two channels, and whether the first one rises."""
    rng = np.random.default_rng(seed)
    y = np.arange(count) % 2
    X = rng.lognormal(0, 0.5, (count, 12, 2))
    X[:, :, 0] *= np.where(y[:, None], np.linspace(0.5, 2.5, 12), np.linspace(2.5, 0.5, 12))
    X[rng.random(X.shape) < 0.2] = np.nan
    return X, y


def series_of(X):
    return nc.IrregularSeries.from_padded(X, channels=["pH", "pulse"], ids=[f"stay {k}" for k in range(len(X))])


@pytest.fixture(scope="module")
def fitted():
    X, y = stays()
    return nc.NeuralCDEClassifier(**SMALL).fit(series_of(X), y)


def spoilt(X):
    """One observed value in about 100 times 1000."""
    wrong = np.random.default_rng(9).random(X.shape) < 0.01
    return np.where(wrong, 1000 * X, X), wrong & ~np.isnan(X)


@pytest.mark.parametrize("scale", ["robust", "standard"])
def test_a_value_times_a_thousand_moves_no_probability_far(scale, monkeypatch):
    X, y = stays(200, seed=1)
    bad, wrong = spoilt(X)
    assert wrong.sum() > 20
    model = nc.NeuralCDEClassifier(**SMALL, scale=scale).fit(series_of(stays()[0]), stays()[1])

    def moved():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FarValueWarning)
            return np.abs(model.predict_proba(series_of(bad)) - model.predict_proba(series_of(X)))[:, 1]

    found, touched = moved(), wrong.any((1, 2))
    assert (found[~touched] < 1e-5).all()
    assert found[touched].mean() < 0.25
    assert model.score(series_of(X), y) > 0.9
    if scale == "standard":  # without the rule the errors would dominate; robust scaling bounds them
        monkeypatch.setattr(FarValues, "removed", lambda self: self.series)
        assert found.mean() < 0.5 * moved().mean()


@pytest.mark.parametrize("scale", ["robust", "standard"])
def test_a_gross_error_in_a_channel_of_few_values_is_found(scale):
    X, y = stays()
    X[:, :, 1] = np.nan
    X[:40, 3, 1] = np.random.default_rng(3).normal(80, 10, 40)  # 20 on each side of the median: too few for quantiles
    model = nc.NeuralCDEClassifier(**SMALL, scale=scale).fit(series_of(X), y)
    bad = X[:4].copy()
    bad[0, 5, 1] = 80e3
    with pytest.warns(FarValueWarning, match="channel 'pulse': 1 value far outside"):
        found = model.predict_proba(series_of(bad))
    np.testing.assert_allclose(found, model.predict_proba(series_of(X[:4])), atol=1e-6)


def test_far_static_features_become_the_nearest_usual_value():
    X, y = stays()
    age = np.random.default_rng(4).integers(20, 90, 80) * 1.0
    series = nc.IrregularSeries.from_padded(X, static=age[:, None], static_names=["age"])
    model = nc.NeuralCDEClassifier(**SMALL).fit(series, y)
    far, nearest = age[:4].copy(), age[:4].copy()
    far[1] = 5000
    nearest[1] = model.preparation_.scaler.static_usual_[0].high
    parts = [nc.IrregularSeries.from_padded(X[:4], static=a[:, None], static_names=["age"]) for a in (far, nearest)]
    with pytest.warns(FarValueWarning, match="not observed, those of static features as the nearest usual value"):
        found = model.predict_proba(parts[0])
    np.testing.assert_allclose(found, model.predict_proba(parts[1]), atol=1e-6)


def test_each_call_warns_once_and_names_the_worst_value(fitted):
    X = stays(6, seed=2)[0]
    X[4, 3, 0], X[4, 5, 0], X[1, 2, 1] = 99000.0, 9000.0, 5000.0
    series = series_of(X)
    words = (
        r"channel 'pH': 2 values far outside the usual range 0\.\d+ \.\. \d\.\d+, e\.g\. 99000 in series 'stay 4' at "
        r"time=3\.0; channel 'pulse': 1 value far outside .*; such values are treated as not observed\."
    )
    calls = {
        "predict": lambda: fitted.predict(series),
        "predict_proba": lambda: fitted.predict_proba(series),
        "outputs": lambda: fitted.outputs(series),
        "outputs_at": lambda: fitted.outputs_at(series, [4.0, 11.0]),
        "predict_proba_at": lambda: fitted.predict_proba_at(series, [4.0]),
        "score": lambda: fitted.score(series, [0, 1] * 3),
    }
    for name, call in calls.items():
        with pytest.warns(FarValueWarning, match=words) as caught:
            call()
        assert len(caught) == 1, name


def test_far_values_are_listed(fitted):
    X = stays(6, seed=2)[0]
    assert fitted.far_values(series_of(X)) == []
    X[4, 3, 0], X[1, 2, 1] = 99000.0, 5000.0
    first, second = fitted.far_values(series_of(X))
    assert (first.series, first.time, first.channel, first.value) == ("stay 1", 2.0, "pulse", 5000.0)
    assert (second.series, second.time, second.channel, second.value) == ("stay 4", 3.0, "pH", 99000.0)
    assert second.limits[0] < second.usual[0] < second.usual[1] < second.limits[1]


def test_fit_warns_once_of_values_outside_the_bulk():
    X, y = stays()
    X[7, 1, 0] = 1e5
    with pytest.warns(
        FarValueWarning, match=r"channel 'pH': 1 value .* 100000 in series 'stay 7' at time=1\.0"
    ) as caught:
        clf = nc.NeuralCDEClassifier(**SMALL | {"max_epochs": 1}).fit(series_of(X), y)
    assert len(caught) == 1
    assert [value.value for value in clf.far_values(series_of(X))] == [1e5]


def test_with_standard_scaling_a_typing_error_changes_neither_mean_nor_deviation():
    X, y = stays()
    options = SMALL | {"max_epochs": 1, "scale": "standard", "validation_fraction": 0.0}
    right = nc.NeuralCDEClassifier(**options).fit(series_of(X), y).preparation_.scaler
    X[7, np.flatnonzero(~np.isnan(X[7, :, 0]))[0], 0] = 1e5
    with pytest.warns(FarValueWarning, match="e.g. 100000 in series 'stay 7'"):
        wrong = nc.NeuralCDEClassifier(**options).fit(series_of(X), y).preparation_.scaler
    np.testing.assert_allclose(wrong.mean_, right.mean_, rtol=0.02)
    np.testing.assert_allclose(wrong.scale_, right.scale_, rtol=0.05)


def test_the_scale_is_saved_and_loaded(fitted, tmp_path):
    X = stays(6, seed=2)[0]
    X[4, 3, 0] = 99000.0
    fitted.save(tmp_path)
    again = nc.load(tmp_path)
    assert again.preparation_.scaler.scale == fitted.preparation_.scaler.scale == "standard"
    assert again.far_values(series_of(X)) == fitted.far_values(series_of(X))
    with pytest.warns(FarValueWarning):
        found = again.predict_proba(series_of(X))
    with pytest.warns(FarValueWarning):
        np.testing.assert_array_equal(found, fitted.predict_proba(series_of(X)))


def test_warnings_point_at_the_line_of_the_caller():
    done = fresh_python("""
        import warnings
        import numpy as np
        import neuralcde as nc
        from sklearn.model_selection import cross_val_predict

        X = np.random.default_rng(0).normal(size=(40, 8))
        X[3, 4] = 1e6
        clf = nc.NeuralCDEClassifier(max_epochs=1, hidden=2, width=2, random_state=0)
        y = np.arange(40) % 2
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            clf.fit(X, y)
            clf.predict(X)
            clf.score(X, y)
            clf.outputs_at(X, [3.0, 7.0])
            cross_val_predict(clf, X, y, cv=2)
        assert len(caught) == 6, len(caught)
        lines = [one.lineno for one in caught]
        assert all(one.filename == "<string>" for one in caught), [one.filename for one in caught]
        assert lines[:4] == list(range(lines[0], lines[0] + 4)), lines
    """)
    assert done.returncode == 0, done.stderr
