"""On the native engine, predictions do not depend on the other series of a batch, bit for bit."""

import numpy as np
import pytest
import torch

import neuralcde as nc
from neuralcde._native import kernels
from solve_cases import on_engine


@pytest.fixture(autouse=True)
def on_native(monkeypatch):
    if kernels is None:
        pytest.skip("the native kernels were not built or are turned off")
    on_engine(monkeypatch, "native")


@pytest.fixture(scope="module")
def data():
    """Series of 1 to 29 rows with missing values and static features; together more than one batch."""
    rng = np.random.default_rng(0)
    pairs = []
    for count in rng.integers(1, 30, 150):
        values = rng.normal(size=(count, 5)).cumsum(0)
        values[rng.random(values.shape) < 0.4] = np.nan
        pairs.append((rng.exponential(size=count).cumsum(), values))
    static = rng.normal(size=(len(pairs), 3))
    static[::7, 1] = np.nan
    return nc.IrregularSeries.from_list(pairs, static=static)


def fitted(kind, data, targets, **options):
    return kind(max_epochs=1, validation_fraction=0, random_state=0, **options).fit(data, targets)


def check(predict, data, *, rows=False):
    together = predict(data)
    of_series = np.split(together, data.offsets[1:-1].numpy()) if rows else together
    for i in (0, 1, 7, 63, 127, 128, 149):
        assert np.array_equal(predict(data[i]), of_series[i] if rows else of_series[i : i + 1])
    for chosen in (np.arange(40, 57), np.random.default_rng(1).permutation(len(data))):
        found = predict(data[chosen])
        expected = np.concatenate([of_series[i] for i in chosen]) if rows else of_series[chosen]
        assert np.array_equal(found, expected)


@pytest.mark.parametrize("pool", ["last", "mean"])
@pytest.mark.parametrize(
    ("model", "path"),
    [
        *(("neural_cde", path) for path in ("linear", "natural_cubic", "rectilinear", "hermite")),
        *((model, path) for model in ("gru_ode", "gru_dt", "gru_d", "ode_rnn") for path in ("linear", "rectilinear")),
    ],
)
def test_probabilities_do_not_depend_on_the_batch(model, path, pool, data):
    clf = fitted(nc.NeuralCDEClassifier, data, np.arange(len(data)) % 2, model=model, path=path, pool=pool)
    check(clf.predict_proba, data)


@pytest.mark.parametrize("pool", ["last", "mean"])
def test_classes_numbers_and_rows_do_not_depend_on_the_batch(pool, data):
    several = fitted(nc.NeuralCDEClassifier, data, np.arange(len(data)) % 5, pool=pool)
    check(several.predict_proba, data)
    check(fitted(nc.NeuralCDERegressor, data, np.arange(len(data)) / 7, pool=pool).predict, data)
    per_row = fitted(nc.NeuralCDEClassifier, data, np.arange(len(data.times)) % 2, per_row=True, pool=pool)
    check(per_row.predict_proba, data, rows=True)


@pytest.mark.parametrize("pool", ["last", "mean"])
def test_predictions_at_times_do_not_depend_on_the_batch(pool, data):
    clf = fitted(nc.NeuralCDEClassifier, data, np.arange(len(data)) % 2, pool=pool)
    times = torch.stack([data.times[data.offsets[:-1]], data.times[data.offsets[1:] - 1]], dim=1).mean(1, keepdim=True)
    together = clf.predict_proba_at(data, times.numpy())
    for i in (0, 1, 63, 128, 149):
        assert np.array_equal(clf.predict_proba_at(data[i], times[i : i + 1].numpy()), together[i : i + 1])
