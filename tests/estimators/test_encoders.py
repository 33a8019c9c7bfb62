"""Estimators with a row encoder: what it sees, saving and loading, rows, options by name and as recipes."""

import dataclasses

import numpy as np
import pytest
import torch

import neuralcde as nc
from neuralcde.models import LinearReadout

FAST = {"max_epochs": 15, "hidden": 8, "width": 8, "depth": 1, "random_state": 0, "batch_size": 16}


def series_and_labels(count=160, seed=0):
    """Two channels of noise. The label says whether the second was measured within the last three rows."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(count, 12, 2))
    values[rng.random(values.shape) < 0.5] = np.nan
    labels = rng.random(count) < 0.5
    values[:, -3:, 1] = np.where(labels[:, None], 0.0, np.nan)
    values[:, 0] = 0.0
    static = rng.normal(size=(count, 1))
    static[::5] = np.nan
    return nc.IrregularSeries.from_padded(values, static=static, static_names=["age"]), labels


SERIES, LABELS = series_and_labels()
TEST, TEST_LABELS = series_and_labels(seed=1)


@pytest.fixture(scope="module")
def fitted():
    return nc.NeuralCDEClassifier(encoder="mlp", **FAST).fit(SERIES, LABELS)


def test_it_sees_when_something_was_measured(fitted):
    assert fitted.score(TEST, TEST_LABELS) > 0.95
    assert isinstance(fitted.module_.readout, LinearReadout)  # too few series for a network on summaries
    assert fitted.module_.pool == "both"
    assert fitted.module_.path_channels == 17


def test_without_intensity_it_sees_less():
    """The values in the last rows are 0 for one class, so that only values can tell; blanked, nothing can."""
    blind = nc.NeuralCDEClassifier(
        encoder=nc.RowMLP.with_options(features=("mean",)),
        readout=nc.SummaryReadout.with_options(families=("mean",)),
        intensity=False,
        **FAST,
    ).fit(SERIES, LABELS)
    assert blind.module_.encoder.inputs.families == blind.module_.readout.inputs.families == ("mean",)
    assert blind.score(TEST, TEST_LABELS) < 0.8


def constants(seed, count=40):
    """Channels that are constant within each series; the seed decides at which rows they are measured again."""
    rng, values = np.random.default_rng(0), np.random.default_rng(1).normal(size=(count, 3))
    again, pairs = np.random.default_rng(seed), []
    for level, rows in zip(values, rng.integers(2, 8, count), strict=True):
        measured = again.random((rows, 3)) < 0.5
        measured[0] = True
        pairs.append((np.arange(rows) * 1.0, np.where(measured, level, np.nan)))
    return nc.IrregularSeries.from_list(pairs)


@pytest.mark.parametrize(
    "options",
    [
        {"encoder": "mlp", "readout": "summary", "boosting": True},
        {"model": "ode_rnn", "encoder": "mlp"},
        {"encoder": None, "readout": "summary"},
    ],
    ids=str,
)
def test_without_intensity_the_times_of_measuring_change_nothing(options):
    first, second, labels = constants(2), constants(3), np.arange(40) % 2
    for intensity in (False, True):
        model = nc.NeuralCDEClassifier(intensity=intensity, **options, **FAST | {"max_epochs": 1}).fit(first, labels)
        for part in model.module_.readout.modules():
            if isinstance(part, torch.nn.Linear):
                torch.nn.init.normal_(part.weight, generator=torch.Generator().manual_seed(0))
        change = (model.member_outputs(first) - model.member_outputs(second)).abs().amax((1, 2))
        assert (change > 1e-3).all() if intensity else (change == 0).all()


def test_saved_and_loaded(fitted, tmp_path):
    fitted.save(tmp_path / "model")
    loaded = nc.load(tmp_path / "model")
    assert np.array_equal(loaded.predict_proba(TEST), fitted.predict_proba(TEST))
    assert np.array_equal(loaded.predict_proba(TEST[3:4]), fitted.predict_proba(TEST)[3:4])


def test_auto_only_where_half_of_the_values_are_missing(monkeypatch, tmp_path):
    monkeypatch.setattr("neuralcde.estimators.modules.SERIES_FOR_SUMMARIES", 100)
    auto = nc.NeuralCDEClassifier(**FAST | {"max_epochs": 1})
    assert not auto.fit(SERIES, LABELS).preparation_.encoded  # 43 % are missing
    rare = dataclasses.replace(SERIES, values=SERIES.values.where(SERIES.values != 0, torch.nan))
    assert auto.fit(rare, LABELS).preparation_.encoded
    assert auto.preparation_.scaler.scale == "robust"
    assert isinstance(auto.module_.readout, nc.SummaryReadout)
    auto.save(tmp_path / "model")
    assert np.array_equal(nc.load(tmp_path / "model").predict_proba(rare), auto.predict_proba(rare))
    complete = np.random.default_rng(0).normal(size=(40, 6, 2))
    assert not auto.fit(complete, np.arange(40) % 2).preparation_.encoded
    assert auto.module_.encoder is None
    assert auto.preparation_.scaler.scale == "standard"


def test_recipes_keep_their_options(tmp_path):
    encoder = nc.RowMLP.with_options(outputs=5, features=("last", "elapsed"))
    model = nc.NeuralCDEClassifier(encoder=encoder, readout="linear", pool="last", **FAST | {"max_epochs": 1})
    model.fit(SERIES, LABELS).save(tmp_path / "model")
    loaded = nc.load(tmp_path / "model")
    assert loaded.module_.encoder.inputs.families == ("last", "elapsed")
    assert loaded.module_.path_channels == 6
    assert np.array_equal(loaded.predict_proba(TEST), model.predict_proba(TEST))


@pytest.mark.parametrize("model", ["neural_cde", "gru_d", "gru_dt", "gru_ode", "ode_rnn"])
def test_with_every_model(model):
    made = nc.NeuralCDEClassifier(model, encoder="mlp", **FAST | {"max_epochs": 1}).fit(SERIES[:60], LABELS[:60])
    assert np.isfinite(made.predict_proba(TEST)).all()


def test_targets_at_rows():
    """The time since the last observation of the first channel, at every row."""
    gaps = []
    for one in SERIES:
        rows = torch.arange(len(one.times))
        last = torch.where(one.observed[:, 0], rows, -1).cummax(0).values
        gaps.append((rows - last).double().numpy())
    made = nc.NeuralCDERegressor(encoder="mlp", per_row=True, learning_rate=3e-3, **FAST).fit(SERIES, gaps)
    assert made.score(SERIES, gaps) > 0.9


def test_channels_are_dropped_and_scaled_in_training():
    options = FAST | {"max_epochs": 2, "channel_dropout": 0.3, "channel_jitter": 0.1}
    first, second = (nc.NeuralCDEClassifier(encoder="mlp", **options).fit(SERIES, LABELS) for _ in range(2))
    assert np.array_equal(first.predict_proba(TEST), second.predict_proba(TEST))
