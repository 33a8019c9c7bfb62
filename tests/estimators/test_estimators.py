"""The estimators: any kind of input, scikit-learn's tools, saving without pickle."""

import json
import pickle
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from safetensors.torch import load_file
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline

import neuralcde as nc
from neuralcde.estimators import modules
from neuralcde.estimators.data_checks import DataWarning

FAST = {"max_epochs": 15, "hidden": 6, "width": 8, "depth": 1, "learning_rate": 1e-2, "random_state": 0}


def oscillations(count=40, seed=0):
    """Slow and fast oscillations with missing values, a static number that is sometimes missing, and a static text."""
    rng = np.random.default_rng(seed)
    rows = []
    for k in range(count):
        times = np.sort(rng.uniform(0, 8, 14))
        for t in times:
            a = np.sin(t * (1 + k % 2)) if rng.random() < 0.7 else np.nan
            rows.append((f"s{k}", t, a, rng.normal(), np.nan if k % 5 == 0 else 40.0 + k % 7, ["a", "b", None][k % 3]))
    frame = pd.DataFrame(rows, columns=["id", "t", "x", "noise", "age", "ward"])
    y = {f"s{k}": ["slow", "fast"][k % 2] for k in range(count)}
    return nc.IrregularSeries.from_long(frame, id="id", time="t", static=["age", "ward"]), y


SERIES, LABELS = oscillations()
Y = np.array([LABELS[name] for name in SERIES.ids.tolist()])


@pytest.mark.parametrize("model", ["neural_cde", "gru_ode", "gru_dt", "gru_d", "ode_rnn"])
def test_every_model_fits_predicts_and_saves(model, tmp_path):
    clf = nc.NeuralCDEClassifier(model, **{**FAST, "max_epochs": 50}).fit(SERIES, Y)
    p = clf.predict_proba(SERIES)
    assert p.shape == (40, 2)
    np.testing.assert_allclose(p.sum(1), 1, atol=1e-12)
    assert clf.classes_.tolist() == ["fast", "slow"]
    assert clf.score(SERIES, Y) > 0.7
    assert clf.module_.solve(clf._dataset(SERIES).source).stats.engine.startswith(("native", "torch: no native"))
    clf.save(tmp_path / "model")
    np.testing.assert_array_equal(nc.load(tmp_path / "model").predict_proba(SERIES), p)


def test_every_training_option_takes_effect():
    few = {**FAST, "max_epochs": 3}
    options = {
        "batch_size": 13,
        "learning_rate": 2e-2,
        "readout_lr_scale": 3.0,
        "weight_penalty": 0.1,
        "weight_decay": 0.5,
    }
    options |= {
        "gradient_clip": 0.01,
        "schedule": "constant",
        "ema_decay": 0.5,
        "channel_dropout": 0.5,
        "channel_jitter": 0.1,
    }
    usual = nc.NeuralCDEClassifier(**few).fit(SERIES, Y).predict_proba(SERIES)
    for name, value in options.items():
        other = nc.NeuralCDEClassifier(**{**few, name: value}).fit(SERIES, Y).predict_proba(SERIES)
        assert not np.array_equal(other, usual), name


def test_labels_by_id_and_by_position_give_the_same_model():
    shuffled = pd.Series(LABELS).sample(frac=1, random_state=0)
    ways = [nc.NeuralCDEClassifier(**FAST).fit(SERIES, y).predict_proba(SERIES) for y in (Y, LABELS, shuffled)]
    np.testing.assert_array_equal(ways[0], ways[1])
    np.testing.assert_array_equal(ways[0], ways[2])
    with pytest.raises(ValueError, match=r"no target for 1 of 40 series, e\.g\. 's0'"):
        nc.NeuralCDEClassifier(**FAST).fit(SERIES, {k: v for k, v in LABELS.items() if k != "s0"})


def test_the_index_of_y_is_used_only_if_the_series_have_ids():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 6)).cumsum(1)
    y = pd.Series(X[:, -1] > 0).sample(frac=1, random_state=0)
    shuffled = X[y.index]
    by_position = nc.NeuralCDEClassifier(**FAST).fit(shuffled, y.to_numpy()).predict_proba(shuffled)
    np.testing.assert_array_equal(nc.NeuralCDEClassifier(**FAST).fit(shuffled, y).predict_proba(shuffled), by_position)
    with pytest.raises(ValueError, match="inconsistent numbers"):
        nc.NeuralCDEClassifier(**FAST).fit(X[:30], y)
    renamed = pd.Series(LABELS).rename(index={"s3": "s99"})
    with pytest.raises(ValueError, match=r"lacks 1 of 40 ids, e\.g\. 's3'"):
        nc.NeuralCDEClassifier(**FAST).fit(SERIES, renamed)
    one_column = pd.DataFrame({"y": y.to_numpy()})
    with pytest.warns(match="column-vector"):
        assert nc.NeuralCDEClassifier(**FAST).fit(shuffled, one_column).predict(shuffled).shape == (40,)


def test_numpy_numbers_are_accepted_as_parameters(tmp_path):
    options = {**FAST, "hidden": np.int64(4), "max_epochs": np.int32(2), "learning_rate": np.float32(0.01)}
    clf = nc.NeuralCDEClassifier(**options | {"random_state": np.int64(3), "class_weight": {"slow": 1, "fast": 5.0}})
    clf.fit(SERIES, Y).save(tmp_path)
    again = nc.load(tmp_path)
    assert again.random_state == 3
    assert again.class_weight == {"slow": 1.0, "fast": 5.0}
    np.testing.assert_array_equal(clone(again).fit(SERIES, Y).predict(SERIES), clf.predict(SERIES))
    with pytest.raises(ValueError, match="class_weight"):
        clf.fit(SERIES, np.stack([Y == "slow", Y == "fast"], 1).astype(int))


def test_predictions_accept_datetimes():
    frame = SERIES.to_long("pandas").assign(t=lambda f: pd.Timestamp("2024-01-01") + pd.to_timedelta(f["t"], unit="h"))
    series = nc.IrregularSeries.from_long(frame, id="id", time="t", static=["age", "ward"], unit="h")
    clf = nc.NeuralCDEClassifier(**{**FAST, "max_epochs": 2}).fit(series, Y)
    noon = pd.Timestamp("2024-01-01 04:00")
    hours = (noon - pd.Timestamp("1970-01-01")) / pd.Timedelta("1h")
    ways = [clf.predict_proba_at(series, at) for at in ([noon], np.array([noon.to_datetime64()]), [hours])]
    np.testing.assert_allclose(ways[0], ways[2], atol=1e-6)
    np.testing.assert_array_equal(ways[0], ways[1])


def test_arrays_of_two_and_three_dimensions_are_accepted():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 8, 2)).cumsum(1)
    X[rng.random(X.shape) < 0.2] = np.nan
    y = (np.nan_to_num(X[:, :, 0]).sum(1) > 0).astype(int)
    assert nc.NeuralCDEClassifier(**FAST).fit(X, y).predict(X).shape == (30,)
    assert nc.NeuralCDEClassifier(**FAST).fit(X[:, :, 0], y).predict(X[:, :, 0]).shape == (30,)
    numbers = nc.NeuralCDERegressor(**FAST).fit(X, np.stack([y, 2.0 * y], 1))
    assert numbers.predict(X).shape == (30, 2)


def test_multilabel_predictions_have_one_column_per_label():
    y = np.stack([Y == "slow", np.arange(40) % 3 == 0], 1).astype(int)
    clf = nc.NeuralCDEClassifier(**FAST, class_weight="balanced")
    with pytest.warns(DataWarning, match="'ward' gives the label away"):  # the second label is ward "a"
        clf.fit(SERIES, y)
    assert clf.predict(SERIES).shape == clf.predict_proba(SERIES).shape == (40, 2)


def rows_of(series):
    """One label per row, by series: whether the last observed x was above zero. Some labels are unknown."""
    labels = []
    for part in series:
        x = part.values[:, 0].numpy()
        last = [x[: k + 1][~np.isnan(x[: k + 1])][-1:].sum() for k in range(len(x))]
        labels.append(np.where(np.arange(len(x)) % 6 == 5, None, np.where(np.array(last) > 0, "up", "down")))
    return labels


def test_targets_per_row_are_learnt_from_the_past_only(tmp_path):
    by_series = rows_of(SERIES)
    clf = nc.NeuralCDEClassifier(**{**FAST, "max_epochs": 60}, per_row=True)
    with pytest.warns(DataWarning, match="'x' gives the label away"):  # the label is its sign
        clf.fit(SERIES, by_series)
    assert clf.predict(SERIES).shape == SERIES.times.shape
    assert clf.predict_proba(SERIES).shape == (len(SERIES.times), 2)
    assert clf.score(SERIES, by_series) > 0.8
    assert clf.score(SERIES, np.concatenate(by_series)) == clf.score(SERIES, by_series)
    assert clf.score(SERIES, dict(zip(SERIES.ids.tolist(), by_series, strict=True))) == clf.score(SERIES, by_series)
    clf.save(tmp_path)
    np.testing.assert_array_equal(nc.load(tmp_path).predict(SERIES), clf.predict(SERIES))
    cut = SERIES.times < 4.0  # later rows do not change earlier predictions
    early = nc.IrregularSeries.from_list(
        [(part.times[part.times < 4], part.values[part.times < 4]) for part in SERIES], channels=SERIES.channel_names
    )
    plain = nc.IrregularSeries.from_list([(part.times, part.values) for part in SERIES], channels=SERIES.channel_names)
    clf.set_params(max_epochs=2).fit(plain, by_series)
    np.testing.assert_allclose(clf.predict_proba(early), clf.predict_proba(plain)[cut], atol=1e-6)
    numbers = nc.NeuralCDERegressor(**{**FAST, "max_epochs": 60}, per_row=True)
    y = np.where(np.arange(len(SERIES.times)) % 5 == 0, np.nan, SERIES.times.numpy() * 10)
    assert numbers.fit(SERIES, y).score(SERIES, y) > 0.8
    with pytest.raises(ValueError, match=r"series 's3' has 14 rows, but y has 13 targets"):
        clf.fit(SERIES, [*by_series[:3], by_series[3][:13], *by_series[4:]])
    with pytest.raises(ValueError, match="per_row=True needs one for each of the 560 rows"):
        clf.fit(SERIES, ["up"] * 13)


def test_preparing_large_data_per_batch_gives_the_same_result(monkeypatch):
    once = nc.NeuralCDEClassifier(**FAST).fit(SERIES, Y)
    monkeypatch.setattr("neuralcde.estimators.training_data.LARGE", 10)
    batches = nc.NeuralCDEClassifier(**FAST).fit(SERIES, Y)
    assert batches._dataset(SERIES).build is not None
    np.testing.assert_array_equal(once.predict_proba(SERIES), batches.predict_proba(SERIES))
    times = SERIES.times[SERIES.offsets[1:] - 1].numpy()[:, None]
    np.testing.assert_array_equal(once.predict_proba_at(SERIES, times), batches.predict_proba_at(SERIES, times))


def test_predictions_at_the_last_row_equal_predictions_of_the_series():
    clf = nc.NeuralCDEClassifier(**FAST).fit(SERIES, Y)
    low, high = SERIES.times[SERIES.offsets[:-1]], SERIES.times[SERIES.offsets[1:] - 1]
    p = clf.predict_proba_at(SERIES, np.stack([low, high], 1))
    assert p.shape == (40, 2, 2)
    np.testing.assert_allclose(p[:, 1], clf.predict_proba(SERIES), atol=1e-5)


def test_the_seed_determines_the_model_and_the_global_generator_is_untouched():
    torch.manual_seed(3)
    before = torch.random.get_rng_state()
    a = nc.NeuralCDEClassifier(**FAST).fit(SERIES, Y).predict_proba(SERIES)
    assert torch.equal(before, torch.random.get_rng_state())
    np.testing.assert_array_equal(a, nc.NeuralCDEClassifier(**FAST).fit(SERIES, Y).predict_proba(SERIES))
    other = nc.NeuralCDEClassifier(**{**FAST, "random_state": 1}).fit(SERIES, Y).predict_proba(SERIES)
    assert not np.array_equal(a, other)


def test_scikit_learn_tools_accept_series():
    quick = {**FAST, "max_epochs": 3}
    clf = nc.NeuralCDEClassifier(**quick)
    assert cross_val_score(clf, SERIES, Y, cv=2).shape == (2,)
    search = GridSearchCV(clf, {"hidden": [4, 6]}, cv=2).fit(SERIES, Y)
    assert search.best_params_["hidden"] in (4, 6)
    assert make_pipeline(clone(clf)).fit(SERIES, Y).predict(SERIES).shape == (40,)
    assert CalibratedClassifierCV(clf, cv=2).fit(SERIES, Y).predict_proba(SERIES).shape == (40, 2)


@pytest.mark.parametrize("kind", ["classifier", "regressor", "multilabel"])
def test_a_loaded_model_predicts_the_same_bits(kind, tmp_path):
    if kind == "regressor":
        fitted = nc.NeuralCDERegressor(**FAST).fit(SERIES, np.arange(40.0))
    else:
        y = Y if kind == "classifier" else np.stack([Y == "slow", Y == "fast"], 1).astype(int)
        fitted = nc.NeuralCDEClassifier(**FAST).fit(SERIES, y)
    fitted.save(tmp_path / "model")
    assert sorted(p.name for p in (tmp_path / "model").iterdir()) == [
        "config.json",
        "model.safetensors",
        "preprocess.json",
    ]
    for again in (nc.load(tmp_path / "model"), pickle.loads(pickle.dumps(fitted))):
        np.testing.assert_array_equal(again.predict(SERIES), fitted.predict(SERIES))
        assert again.get_params() == fitted.get_params()
        if kind != "regressor":
            np.testing.assert_array_equal(again.predict_proba(SERIES), fitted.predict_proba(SERIES))
    new, _ = oscillations(5, seed=9)
    template = nc.load(tmp_path / "model").preparation_.template()
    read = nc.IrregularSeries.from_long(new.to_long(), like=template)
    np.testing.assert_array_equal(fitted.predict(read), fitted.predict(new))


@pytest.mark.parametrize("name", ["config.json", "preprocess.json", "model.safetensors"])
@pytest.mark.parametrize("damage", ["missing", "truncated", "nonsense"])
def test_damaged_and_missing_files_are_named(name, damage, tmp_path):
    fitted = nc.NeuralCDEClassifier(**{**FAST, "max_epochs": 1}).fit(SERIES, Y)
    fitted.save(tmp_path)
    file = tmp_path / name
    content = file.read_bytes()
    if damage == "missing":
        file.unlink()
        with pytest.raises(FileNotFoundError, match=name):
            nc.load(tmp_path)
        return
    file.write_bytes(content[: len(content) // 2] if damage == "truncated" else b"\x80\x04cos\nsystem\n")
    with pytest.raises(ValueError, match="damaged"):
        nc.load(tmp_path)


def test_mixed_files_of_two_models_are_refused(tmp_path):
    for seed in (0, 1):
        nc.NeuralCDEClassifier(**{**FAST, "max_epochs": 1, "random_state": seed}).fit(SERIES, Y).save(
            tmp_path / str(seed)
        )
    (tmp_path / "0" / "model.safetensors").replace(tmp_path / "1" / "model.safetensors")
    with pytest.raises(ValueError, match=r"damaged: model\.safetensors is not the one"):
        nc.load(tmp_path / "1")


def test_foreign_newer_and_older_folders_are_refused(tmp_path):
    fitted = nc.NeuralCDEClassifier(**{**FAST, "max_epochs": 1}).fit(SERIES, Y)
    fitted.save(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"format": 99}))
    with pytest.raises(ValueError, match="newer format"):
        nc.load(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(config | {"format": 1}))
    with pytest.raises(ValueError, match=r"older version.*fit and save again"):
        nc.load(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"some": "model"}))
    with pytest.raises(ValueError, match="does not hold an estimator of neuralcde"):
        nc.load(tmp_path)


def test_a_full_disk_leaves_the_old_model(tmp_path, monkeypatch):
    fitted = nc.NeuralCDEClassifier(**{**FAST, "max_epochs": 1}).fit(SERIES, Y)
    fitted.save(tmp_path / "model")
    before = load_file(tmp_path / "model" / "model.safetensors")
    other = nc.NeuralCDEClassifier(**{**FAST, "max_epochs": 1, "random_state": 5}).fit(SERIES, Y)

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("neuralcde.estimators.saving.write_durably", full)
    with pytest.raises(OSError, match="No space"):
        other.save(tmp_path / "model")
    after = load_file(tmp_path / "model" / "model.safetensors")
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


def test_invalid_parameters_are_named():
    for name, value in (("model", "lstm"), ("path", "spline"), ("validation_fraction", 1.5), ("max_epochs", 0)):
        with pytest.raises(ValueError, match=name):
            nc.NeuralCDEClassifier(**{**FAST, name: value}).fit(SERIES, Y)
    with pytest.raises(ValueError, match="only one class"):
        nc.NeuralCDEClassifier(**FAST).fit(SERIES, ["a"] * 40)


def test_parameters_set_after_fit_do_not_change_what_is_saved(tmp_path):
    X = np.random.default_rng(0).normal(size=(20, 6)).cumsum(1)
    clf = nc.NeuralCDEClassifier(**FAST).fit(X, np.arange(20) % 2)
    before = clf.predict_proba(X)
    clf.set_params(hidden=17, pool="mean", solver="euler").save(tmp_path)
    np.testing.assert_array_equal(nc.load(tmp_path).predict_proba(X), before)


def test_the_seed_determines_the_model_in_threads_too(monkeypatch):
    X = np.random.default_rng(0).normal(size=(12, 4)).cumsum(1)
    make = modules.new_module

    def slowly(*parts):
        time.sleep(0.005)  # between seeding and drawing the weights
        return make(*parts)

    monkeypatch.setattr(modules, "new_module", slowly)

    def weights(_):
        clf = nc.NeuralCDEClassifier(max_epochs=1, hidden=4, width=4, random_state=0).fit(X, np.arange(12) % 2)
        return clf.predict_proba(X)[:, 1]

    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(weights, range(12)))
    assert len({tuple(row) for row in found}) == 1


def test_the_default_dtype_of_torch_does_not_matter(tmp_path):
    X = np.random.default_rng(0).normal(size=(12, 4)).cumsum(1)
    torch.set_default_dtype(torch.float64)
    try:
        clf = nc.NeuralCDEClassifier(**FAST).fit(X, np.arange(12) % 2)
        clf.save(tmp_path)
        state = torch.random.get_rng_state()
        np.testing.assert_array_equal(nc.load(tmp_path).predict_proba(X), clf.predict_proba(X))
        assert torch.equal(state, torch.random.get_rng_state())
    finally:
        torch.set_default_dtype(torch.float32)


def test_validation_needs_at_least_eight_series():
    X = np.random.default_rng(0).normal(size=(40, 4)).cumsum(1)
    options = {**FAST, "max_epochs": 1}
    assert (
        "validation_loss" in nc.NeuralCDEClassifier(**options, validation_fraction=0.2).fit(X, X[:, 0] > 0).history_[0]
    )
    assert "validation_loss" not in nc.NeuralCDEClassifier(**options).fit(X, X[:, 0] > 0).history_[0]
    nc.NeuralCDEClassifier(**options, validation_fraction=0.98).fit(X, np.arange(40) % 2)
    with pytest.raises(ValueError, match="of 40 series leaves none to learn from"):
        nc.NeuralCDEClassifier(**options, validation_fraction=0.99).fit(X, np.arange(40) % 2)


def test_a_time_may_be_a_single_number():
    X = np.random.default_rng(0).normal(size=(12, 4)).cumsum(1)
    clf = nc.NeuralCDEClassifier(**FAST).fit(X, np.arange(12) % 2)
    np.testing.assert_array_equal(clf.predict_proba_at(X, 2.0), clf.predict_proba_at(X, [2.0]))
    with pytest.raises(TypeError, match="those of the series are numbers"):
        clf.predict_proba_at(X, np.array([2], "m8[m]"))


@pytest.mark.parametrize("per_row", [False, True])
def test_mean_pooling_at_the_last_row_equals_the_prediction_of_the_series(per_row):
    series, y = SERIES, np.repeat(Y, SERIES.lengths) if per_row else Y
    clf = nc.NeuralCDEClassifier(**FAST, pool="mean", per_row=per_row).fit(series, y)
    last = series.times[series.offsets[1:] - 1][:, None].numpy()
    whole = clf.predict_proba(series)[series.offsets[1:].numpy() - 1] if per_row else clf.predict_proba(series)
    np.testing.assert_allclose(clf.predict_proba_at(series, last)[:, 0], whole, atol=1e-6)


@pytest.mark.parametrize("library", [pd, pl])
def test_a_long_table_passed_as_an_array_is_refused(library):
    clf = nc.NeuralCDEClassifier(**FAST).fit(
        library.DataFrame({"0": ["1.5", "2", "0"], "1": ["3", "1", "0"]}), [0, 1, 0]
    )
    assert clf.preparation_.scaler.channel_names_in_ == ("x0",)
    frame = library.DataFrame({"id": ["a", "a", "b"], "t": [0.0, 1.0, 0.0], "x": [1.0, 2.0, 3.0]})
    with pytest.raises(ValueError, match=r"Read a long table first: IrregularSeries\.from_long"):
        nc.NeuralCDEClassifier(**FAST).fit(frame, [0, 1, 0])


def test_unavailable_devices_are_refused(tmp_path):
    if torch.cuda.is_available():
        pytest.skip("there is one")
    with pytest.raises(ValueError, match="torch finds no GPU here"):
        nc.load(tmp_path, device="cuda")
    with pytest.raises(ValueError, match='device="foo" cannot be used'):
        nc.load(tmp_path, device="foo")


@pytest.mark.parametrize("model", ["neural_cde", "gru_ode", "gru_dt", "gru_d", "ode_rnn"])
def test_networks_of_one_unit_work(model):
    """Every layer has one unit."""
    X = np.random.default_rng(0).normal(size=(12, 5, 1))
    clf = nc.NeuralCDEClassifier(model, hidden=1, width=1, depth=4, max_epochs=1, random_state=0).fit(
        X, np.arange(12) % 2
    )
    assert np.isfinite(clf.predict_proba(X)).all()
