"""Inputs of estimators: matching targets with series, units of time, types, and channels unseen in training."""

import datetime

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.model_selection import RandomizedSearchCV

import neuralcde as nc
from neuralcde.estimators.inputs import as_targets
from neuralcde.tasks import classification_task, regression_task

FAST = {"max_epochs": 8, "hidden": 6, "width": 8, "depth": 1, "learning_rate": 1e-2, "random_state": 0}
QUICK = {**FAST, "max_epochs": 2}
RNG = np.random.default_rng(0)
WALKS = RNG.normal(size=(40, 12, 2)).cumsum(1)
RISES = WALKS[:, -1, 0] > WALKS[:, 0, 0]


def walks(**options):
    return nc.IrregularSeries.from_padded(WALKS, **options)


def test_targets_of_series_with_repeated_ids_are_matched_by_position():
    both = nc.IrregularSeries.concat([walks()[:20], walks()[:20]])
    assert both.ids.tolist() == [*range(20)] * 2
    np.testing.assert_array_equal(as_targets(pd.Series(range(40)), both), range(40))
    np.testing.assert_array_equal(as_targets(pd.Series(range(20, 40)), both), [*range(20, 40)] * 2)  # one per id


def test_a_repeated_index_is_refused():
    y = pd.Series([1, 1, 0], index=["a", "a", "b"])
    series = nc.IrregularSeries.from_list([([0.0], [[1.0]])] * 2, ids=["a", "b"])
    with pytest.raises(ValueError, match="the index of y has some ids twice"):
        as_targets(y, series)


@pytest.mark.parametrize("gone", [float("nan"), None, pd.NA, pd.NaT], ids=["NaN", "None", "NA", "NaT"])
@pytest.mark.parametrize("kind", [list, pd.Series, lambda y: dict(enumerate(y))], ids=["list", "pandas", "mapping"])
def test_missing_labels_are_refused(kind, gone):
    y = ["up" if rises else "down" for rises in RISES]
    y[3] = gone
    with pytest.raises(ValueError, match=r"y contains NaN or None: series 3 has no target"):
        nc.NeuralCDEClassifier(**FAST).fit(walks(), kind(y))


def test_missing_labels_of_rows_are_ignored():
    y = [["up", float("nan"), *["down", "up"] * 5] for _ in range(40)]
    clf = nc.NeuralCDEClassifier(per_row=True, **FAST).fit(walks(), y)
    assert clf.classes_.tolist() == ["down", "up"]


def test_row_targets_from_an_unsorted_table_are_refused():
    frame = pd.DataFrame({"id": ["a", "b"] * 6, "t": np.arange(12.0), "x": RNG.normal(size=12), "y": [0, 1] * 6})
    clf = nc.NeuralCDEClassifier(per_row=True, **FAST)
    series = nc.IrregularSeries.from_long(frame, id="id", time="t", channels=["x"])
    with pytest.raises(ValueError, match="not in the order of series and time"):
        clf.fit(series, frame["y"])
    table = frame.sort_values(["id", "t"])
    again = nc.IrregularSeries.from_long(table, id="id", time="t", channels=["x"])
    assert again == series
    np.testing.assert_array_equal(
        clf.fit(again, table["y"]).predict(series), clf.fit(series, [0] * 6 + [1] * 6).predict(series)
    )


def test_training_continues_when_no_validation_target_is_known():
    y = np.full((60, 5), np.nan)
    y[:6, 0], y[:6, 1] = 0, 1
    X = RNG.normal(size=(60, 5))
    for seed in range(200):
        clf = nc.NeuralCDEClassifier(
            per_row=True, **{**FAST, "random_state": seed, "max_epochs": 2, "validation_fraction": 0.14}
        )
        if clf.fit(X, y).history_[0]["validation_accuracy"] != clf.history_[0]["validation_accuracy"]:
            break
    else:
        pytest.fail("no split had an unlabelled validation series")
    assert len(clf.history_) == 2


def test_targets_far_from_zero_are_predicted_as_well_as_those_near_zero():
    y = WALKS[:, -1, 0] - WALKS[:, 0, 0]
    near = nc.NeuralCDERegressor(**FAST).fit(walks(), y).predict(walks())
    far = nc.NeuralCDERegressor(**FAST).fit(walks(), y + 1_700_000_037).predict(walks())
    np.testing.assert_allclose(far - 1_700_000_037, near, atol=1e-4)


def test_channels_far_from_zero_keep_their_precision_in_float64():
    near = nc.NeuralCDEClassifier(**FAST).fit(WALKS, RISES)
    far = nc.NeuralCDEClassifier(**FAST).fit(WALKS + 1e8, RISES)
    np.testing.assert_allclose(far.predict_proba(WALKS + 1e8), near.predict_proba(WALKS), atol=1e-4)
    frame = pd.DataFrame(
        {"id": np.repeat(range(40), 12), "t": np.tile(np.arange(12.0), 40), "x": WALKS[..., 0].ravel() + 1e8}
    )
    series = nc.IrregularSeries.from_long(frame, id="id", time="t", dtype=torch.float64)
    assert nc.NeuralCDEClassifier(**FAST).fit(series, RISES).read_long(frame) == series
    with pytest.warns(UserWarning, match=r"\['x'\] vary so little relative to their size that float32"):
        nc.SeriesScaler().fit(nc.IrregularSeries.from_long(frame.assign(x=frame["x"] - 9e7), id="id", time="t"))


def stamped(unit, zone=None):
    """Random walks of one channel, one row per hour."""
    hours = pd.Timestamp("2026-01-01", tz=zone) + pd.to_timedelta(np.tile(np.arange(12), 40), unit="h")
    frame = pd.DataFrame({"id": np.repeat(range(40), 12), "t": hours, "x": WALKS[..., 0].ravel()})
    return frame, nc.IrregularSeries.from_long(frame, id="id", time="t", unit=unit)


def test_another_unit_of_time_is_refused():
    frame, hours = stamped("h")
    _, seconds = stamped("s")
    clf = nc.NeuralCDEClassifier(**FAST).fit(hours, RISES)
    with pytest.raises(ValueError, match=r"units of 's', but the estimator was fitted on .* units of 'h'.*read_long"):
        clf.predict(seconds)
    np.testing.assert_array_equal(clf.predict(clf.read_long(frame)), clf.predict(hours))
    with pytest.raises(ValueError, match=r"parts\[1\] has times that are .*'s'.* read them alike"):
        nc.IrregularSeries.concat([hours, seconds])


def test_time_zones_are_never_guessed():
    frame, series = stamped("h", "Europe/Berlin")
    clf = nc.NeuralCDEClassifier(**FAST).fit(series, RISES)
    asked = pd.Timestamp("2026-01-01 03:00", tz="Europe/Berlin")
    found = clf.predict_proba_at(series, [asked])
    np.testing.assert_array_equal(found, clf.predict_proba_at(series, [asked.tz_convert("Asia/Tokyo")]))
    np.testing.assert_array_equal(
        found, clf.predict_proba_at(series, [datetime.datetime(2026, 1, 1, 2, tzinfo=datetime.UTC)])
    )
    for naive in ([np.datetime64("2026-01-01T03:00")], [datetime.datetime(2026, 1, 1, 3)]):
        with pytest.raises(ValueError, match=r"times have no time zone.*Europe/Berlin.*tz_localize"):
            clf.predict_proba_at(series, naive)
    with pytest.raises(TypeError, match=r"no time zone, but like= had Europe/Berlin"):
        clf.read_long(frame.assign(t=frame["t"].dt.tz_localize(None)))


def test_times_of_a_wrong_shape_are_refused():
    clf = nc.NeuralCDEClassifier(**FAST).fit(WALKS, RISES)
    with pytest.raises(ValueError, match=r"times of shape \(3, 2\) do not fit 40 series"):
        clf.predict_proba_at(WALKS, np.ones((3, 2)))


@pytest.mark.parametrize("before", [np.nan, 500.0], ids=["never observed", "never varies"])
def test_channels_constant_in_training_do_not_change_predictions(before, tmp_path):
    training, later = np.array(WALKS), np.array(WALKS)
    training[:, :, 1], later[:, :, 1] = before, 1e4 + 300 * WALKS[:, :, 1]
    with pytest.warns(UserWarning, match=r"channels \['x1'\] never vary in the training series"):
        clf = nc.NeuralCDEClassifier(intensity=True, **FAST).fit(training, RISES)
    expected = clf.predict_proba(training)
    np.testing.assert_allclose(clf.predict_proba(later)[:, 1], expected[:, 1], atol=0.0 if np.isnan(before) else 1e-6)
    clf.save(tmp_path / "model")
    np.testing.assert_array_equal(nc.load(tmp_path / "model").predict_proba(later), clf.predict_proba(later))


@pytest.mark.parametrize("intensity", [False, True])
def test_the_warning_about_constant_channels_says_what_is_still_used(intensity):
    """Constant values are ignored. Their counts of observations are still used if `intensity=True`."""
    constant = np.array(WALKS)
    constant[:, :, 1] = 500.0
    constant[:, 3, 1] = np.nan
    with pytest.warns(UserWarning, match=r"\['x1'\] never vary .* their values, which are ignored\.") as caught:
        clf = nc.NeuralCDEClassifier(intensity=intensity, **QUICK).fit(constant, RISES)
    assert ("How often ['x1'] were observed is still used" in str(caught[0].message)) is intensity
    rarer = np.array(constant)
    rarer[:, 5:, 1] = np.nan
    same = np.array_equal(clf.predict_proba(rarer), clf.predict_proba(constant))
    assert same is not intensity


def test_arrays_in_another_layout_are_refused():
    with pytest.raises(ValueError, match=r"looks like \(series, channels, steps\). Pass X.swapaxes\(1, 2\)"):
        nc.NeuralCDEClassifier(**FAST).fit(WALKS.swapaxes(1, 2), RISES)


def test_arrays_and_series_give_the_same_predictions():
    on_array = nc.NeuralCDEClassifier(**FAST).fit(WALKS, RISES)
    series = walks(dtype=torch.float64)
    np.testing.assert_array_equal(on_array.predict_proba(series), on_array.predict_proba(WALKS))
    on_series = nc.NeuralCDEClassifier(**FAST).fit(series, RISES)
    np.testing.assert_array_equal(on_series.predict_proba(WALKS), on_array.predict_proba(WALKS))
    with pytest.raises(ValueError, match="channels"):
        on_array.predict(nc.IrregularSeries.from_padded(WALKS[:, :, :1]))


@pytest.mark.parametrize(
    "change",
    [
        {"solver": "euler"},
        {"substeps": 2},
        {"pool": "mean"},
        {"class_weight": {False: 1, True: 50}},
        {"path": "hermite"},
    ],
    ids=str,
)
@pytest.mark.parametrize("large", [False, True], ids=["paths", "batch by batch"])
def test_a_run_with_other_settings_is_not_resumed(change, large, tmp_path, monkeypatch):
    if large:
        monkeypatch.setattr("neuralcde.estimators.training_data.LARGE", 10)
    settings = {**FAST, "schedule": "constant", "max_epochs": 2}
    nc.NeuralCDEClassifier(**settings).fit(WALKS, RISES, folder=tmp_path)
    with pytest.raises(ValueError, match="cannot resume: data, targets, path or model differ"):
        nc.NeuralCDEClassifier(**settings, **change).fit(WALKS, RISES, folder=tmp_path, resume=True)
    more = nc.NeuralCDEClassifier(**{**settings, "max_epochs": 3}).fit(WALKS, RISES, folder=tmp_path, resume=True)
    assert len(more.history_) == 3


def test_resume_needs_a_seed(tmp_path):
    with pytest.raises(ValueError, match="resume=True needs a random_state"):
        nc.NeuralCDEClassifier(**{**FAST, "random_state": None}).fit(WALKS, RISES, folder=tmp_path, resume=True)


def test_numpy_numbers_work_in_checkpoints_and_searches(tmp_path):
    settings = {**FAST, "learning_rate": np.float64(1e-2), "patience": np.int64(5), "schedule": "constant"}
    nc.NeuralCDEClassifier(**settings).fit(WALKS, RISES, folder=tmp_path)
    clf = nc.NeuralCDEClassifier(**{**settings, "max_epochs": np.int64(9)}).fit(
        WALKS, RISES, folder=tmp_path, resume=True
    )
    assert len(clf.history_) == 9
    search = RandomizedSearchCV(
        nc.NeuralCDEClassifier(**{**FAST, "max_epochs": 2}), {"batch_size": np.array([8, 16])}, n_iter=2, cv=2
    )
    assert search.fit(WALKS, RISES).best_params_["batch_size"] in (8, 16)


def test_the_device_and_the_column_names_are_saved(tmp_path):
    frame = pd.DataFrame(WALKS[:, :, 0], columns=[f"t{k}" for k in range(12)])
    clf = nc.NeuralCDEClassifier(device=torch.device("cpu"), **FAST).fit(frame, RISES)
    clf.save(tmp_path / "model")
    loaded = nc.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_proba(frame), clf.predict_proba(frame))
    with pytest.raises(ValueError, match="feature names should match"):
        loaded.predict(frame[frame.columns[::-1]])


def test_subclasses_of_estimators_cannot_be_saved(tmp_path):
    class Mine(nc.NeuralCDEClassifier):
        pass

    with pytest.raises(TypeError, match="can be saved, not Mine"):
        Mine(**FAST).fit(WALKS, RISES).save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_a_default_index_is_not_taken_for_ids():
    """A default index means positions. For a subset of the series it could be mistaken for the ids 1, 2, ..."""
    frame = pd.DataFrame({"stay": np.repeat(np.arange(1, 7), 2), "t": [0.0, 1.0] * 6, "x": np.arange(12.0)})
    series = nc.IrregularSeries.from_long(frame, id="stay", time="t")
    counted = pd.Series([10, 20, 30, 40, 50, 60])
    assert as_targets(counted, series).tolist() == counted.tolist()
    with pytest.raises(
        ValueError, match=r"6 targets for 4 series, and its index only counts them; make the ids its index"
    ):
        as_targets(counted, series[:4])
    assert as_targets(counted.rename_axis("stay"), series[:4]).tolist() == [20, 30, 40, 50]
    from_zero = nc.IrregularSeries.from_long(frame.assign(stay=frame["stay"] - 1), id="stay", time="t")
    assert as_targets(counted, from_zero[:2]).tolist() == [10, 20]
    assert as_targets(counted.set_axis(range(1, 7)), series[1:3]).tolist() == [20, 30]


@pytest.mark.parametrize("factor", [1e200, 1e-200])
def test_targets_whose_squares_overflow_or_underflow_are_refused(factor):
    with pytest.raises(ValueError, match="too large or too small to be squared; change their unit"):
        regression_task(np.array([1.0, 2.0, 3.0]) * factor)


def test_class_weights_that_are_not_positive_and_finite_are_refused():
    for wrong in (0.0, -1.0, np.inf):
        with pytest.raises(ValueError, match="weights must be positive"):
            classification_task(["a", "b", "a"], {"a": 1.0, "b": wrong})


@pytest.mark.filterwarnings("error")
def test_read_only_targets_are_accepted():
    fixed = np.array([1.0, 2.0])
    fixed.flags.writeable = False
    assert regression_task(fixed).encode(fixed).tolist() == [[-1.0], [1.0]]


@pytest.mark.parametrize("dtype", ["Int64", "boolean", "Float64", "string"])
@pytest.mark.parametrize("estimator", [nc.NeuralCDEClassifier, nc.NeuralCDERegressor])
def test_nullable_pandas_columns_are_accepted_as_targets(estimator, dtype):
    """No target of a series may be missing; missing targets of rows are ignored."""
    numbers = pd.Series(RISES.astype(int)).astype(dtype)
    if dtype == "string" and estimator is nc.NeuralCDERegressor:
        numbers = numbers.map({"0": "low", "1": "high"}).astype(dtype)
        with pytest.raises(ValueError, match="y must be numbers"):
            estimator(**QUICK).fit(WALKS, numbers)
        return
    whole = estimator(**QUICK).fit(WALKS, numbers)
    plain = estimator(**QUICK).fit(WALKS, numbers.to_numpy(dtype=str if dtype == "string" else float))
    np.testing.assert_array_equal(whole.predict(WALKS).astype(float), plain.predict(WALKS).astype(float))
    numbers[5] = pd.NA
    with pytest.raises(ValueError, match=r"y contains NaN or None: series 5 has no target \(1 of 40 series\)"):
        estimator(**QUICK).fit(WALKS, numbers)
    rows = numbers.repeat(12).reset_index(drop=True)
    known = estimator(per_row=True, **QUICK).fit(WALKS, rows)
    expected = [None if gone else y for y, gone in zip(rows, rows.isna(), strict=True)]
    again = estimator(per_row=True, **QUICK).fit(WALKS, expected)
    np.testing.assert_array_equal(known.predict(WALKS), again.predict(WALKS))
    assert np.isfinite(known.score(WALKS, rows))


def test_missing_entries_of_several_targets_are_refused():
    frame = pd.DataFrame({"a": RISES, "b": ~RISES}).astype("Int64")
    frame.loc[7, "b"] = pd.NA
    for estimator in (nc.NeuralCDEClassifier, nc.NeuralCDERegressor):
        with pytest.raises(ValueError, match="series 7 has no target"):
            estimator(**FAST).fit(WALKS, frame)


@pytest.mark.parametrize("gone", [np.nan, None, pd.NA], ids=repr)
@pytest.mark.parametrize("estimator", [nc.NeuralCDEClassifier, nc.NeuralCDERegressor])
def test_rows_without_any_known_target_are_refused(estimator, gone):
    with pytest.raises(ValueError, match="y has no known target: all of its 480 rows are NaN or None"):
        estimator(per_row=True, **FAST).fit(WALKS, [gone] * 480)


@pytest.mark.parametrize("per_row", [False, True], ids=["series", "rows"])
@pytest.mark.parametrize("estimator", [nc.NeuralCDEClassifier, nc.NeuralCDERegressor])
@pytest.mark.parametrize(
    ("target", "words"),
    [
        (1 + 2j, r"complex.*expected numbers, text, or True and False.*y\.real"),
        (np.datetime64("2026-01-01"), r"datetime64.*expected numbers.*Count from a first date"),
        (np.timedelta64(3, "h"), r"timedelta64.*expected numbers.*Count from a first date"),
        (pd.Timestamp("2026-01-01"), r"Timestamp.*expected numbers.*Count from a first date"),
        (datetime.date(2026, 1, 1), r"a date; expected numbers.*Count from a first date"),
        (b"up", r"\|S2; expected numbers.*y\.astype\(str\)"),
        ({"a": 1}, r"a dict; expected numbers"),
    ],
    ids=lambda x: type(x).__name__,
)
def test_targets_of_unsupported_types_are_refused(estimator, per_row, target, words):
    with pytest.raises(ValueError, match=rf"^y .*{words}"):
        estimator(per_row=per_row, **FAST).fit(WALKS, [target] * (480 if per_row else 40))


def test_targets_that_mix_text_and_numbers_are_refused():
    y = np.array(["up", 1] * 20, dtype=object)
    with pytest.raises(ValueError, match=r"y mixes kinds of targets, e\.g\. 1 and 'up'; make them one"):
        nc.NeuralCDEClassifier(**FAST).fit(WALKS, y)


@pytest.mark.parametrize("y", [5, "up", iter([1, 2])], ids=["number", "text", "iterator"])
def test_a_single_target_for_all_rows_is_refused(y):
    with pytest.raises(ValueError, match=r"y is a \w+; per_row=True needs one target for each of the 480 rows"):
        nc.NeuralCDEClassifier(per_row=True, **FAST).fit(WALKS, y)


def test_ragged_targets_are_refused():
    with pytest.raises(ValueError, match="y cannot be read as an array of targets, it is a list"):
        nc.NeuralCDEClassifier(**FAST).fit(WALKS, [[1], [1, 2]] * 20)


@pytest.mark.parametrize("per_row", [False, True], ids=["series", "rows"])
def test_outputs_that_are_not_finite_raise_an_error(per_row):
    """Without the check, NaN would be predicted as the first class and infinity as the second."""
    clf = nc.NeuralCDEClassifier(per_row=per_row, **FAST).fit(WALKS, np.repeat(RISES, 12) if per_row else RISES)
    with torch.no_grad():
        clf.module_.readout.linear.bias.fill_(torch.nan)
    for predict in (clf.predict, clf.predict_proba, lambda X: clf.predict_proba_at(X, [2.0])):
        with pytest.raises(ValueError, match=r"output for series 0 is not finite \(40 of 40 series\)"):
            predict(WALKS)
