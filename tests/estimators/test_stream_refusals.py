"""Streams of estimators refuse what they could not keep or save, and stay as they were."""

import copy
import pickle

import numpy as np
import pandas as pd
import pytest

import neuralcde as nc
import neuralcde.estimators.streams as streams_module
from neuralcde.estimators.untrusted_folder import read_file

QUICK = {"max_epochs": 1, "hidden": 5, "width": 6, "depth": 1, "validation_fraction": 0, "random_state": 0}


def fitted():
    """A classifier of stays with two channels, and age and sex."""
    rng, stays = np.random.default_rng(0), np.repeat(np.arange(20), 3)
    frame = pd.DataFrame({"stay": stays, "hour": np.tile([0.0, 1.0, 2.5], 20)})
    frame["pulse"], frame["lactate"] = rng.normal(80, 10, 60), rng.normal(2, 1, 60)
    frame["age"], frame["sex"] = np.repeat(rng.normal(60, 5, 20), 3), np.repeat(rng.choice(["f", "m"], 20), 3)
    series = nc.IrregularSeries.from_long(frame, id="stay", time="hour", static=["age", "sex"])
    return nc.NeuralCDEClassifier(**QUICK).fit(series, np.arange(20) % 2)


@pytest.mark.parametrize("predict", [False, True])
def test_states_that_are_not_finite_are_refused(predict, tmp_path, engine):
    """One of them would make the saved file of all streams unreadable."""
    clf = fitted()
    streams, empty = clf.stream(), np.full((2, 2), np.nan)
    streams.push_many(["fine", "wrong"], [0.0, -1.7e308], empty, predict=False)
    before = streams.to_bytes()
    with pytest.raises(ValueError, match="for stream 'wrong' is not finite"):
        streams.push_many(["fine", "wrong"], [1.0, 1.7e308], empty, predict=predict)
    with pytest.raises(ValueError, match="for stream 'wrong' is not finite"):
        streams.push("wrong", 1.7e308, {})
    assert streams.to_bytes() == before
    streams.save(tmp_path / "states")
    assert clf.stream(tmp_path / "states").ids == ["fine", "wrong"]


def test_states_of_any_size_are_read(tmp_path, monkeypatch):
    clf, sizes = fitted(), []
    streams = clf.stream()
    streams.push("a", 0.0, {})
    streams.save(tmp_path / "states")

    def noted(folder, name, largest, **options):
        sizes.append(largest)
        return read_file(folder, name, largest, **options)

    monkeypatch.setattr(streams_module, "read_file", noted)
    assert clf.stream(tmp_path / "states").ids == ["a"]
    assert sizes[0] > 2**50


@pytest.mark.parametrize("wrong", [[1], {"a": 1}, (1, 2), None, True], ids=repr)
def test_what_is_no_id_is_told_in_every_method(wrong):
    streams = fitted().stream()
    streams.push(1, 0.0, {})
    for method in (streams.peek, streams.remove, streams.last_time):
        with pytest.raises(TypeError, match="is not an id; ids are numbers or text"):
            method(wrong)
    assert streams.ids == [1]


def test_static_features_of_many_streams_have_a_row_per_id():
    streams, values = fitted().stream(), np.zeros((2, 2))
    words = r"static has shape .*; expected \(2, 3\): one row per id, with age, sex=f, sex=m"
    for static in ([[60.0], [61.0]], [60.0, 61.0], [[60.0, 0.0, 1.0]], [[60.0, 0.0, 1.0]] * 3):
        with pytest.raises(ValueError, match=words):
            streams.push_many(["a", "b"], [0.0, 0.0], values, static=static)
    with pytest.raises(ValueError, match="static must be finite"):
        streams.push_many(["a", "b"], [0.0, 0.0], values, static=[[np.inf, 0.0, 1.0]] * 2)
    assert len(streams) == 0


def dated(zone=None):
    """A classifier of series at dates and times."""
    times = pd.Timestamp("2026-01-01", tz=zone) + pd.to_timedelta(np.tile([0.0, 1.0], 12), unit="h")
    frame = pd.DataFrame({"id": np.repeat(np.arange(12), 2), "time": times, "x": np.arange(24) % 5.0})
    series = nc.IrregularSeries.from_long(frame, id="id", time="time", unit="h")
    return nc.NeuralCDEClassifier(**QUICK).fit(series, np.arange(12) % 2), series


@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_missing_dates_are_no_times(zone):
    """As a whole number, NaT is 290,000 years ago: a stream that began there would have an absurd gap."""
    clf, series = dated(zone)
    streams, values = clf.stream(), np.zeros((1, 1))
    for missing in (pd.NaT, np.datetime64("NaT")):
        with pytest.raises((ValueError, TypeError), match=r"stream 'a': t=.*NaT"):
            streams.push("a", missing, {})
    for missing in (pd.Series([pd.NaT]), pd.Series([pd.NaT], dtype=object), np.array(["NaT"], dtype="datetime64[s]")):
        with pytest.raises(ValueError, match=r"must be finite|no time zone"):
            streams.push_many(["a"], missing, values)
    with pytest.raises(ValueError, match=r"NaN or infinity|no time zone"):
        clf.predict_proba_at(series[:1], np.array(["NaT"], dtype="datetime64[s]"))
    some = pd.Series([pd.Timestamp("2026-01-02", tz=zone), pd.NaT], dtype=object)
    with pytest.raises(ValueError, match="must be finite"):
        streams.push_many(["a", "b"], some, np.zeros((2, 1)))
    assert len(streams) == 0


@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_many_rows_may_have_dates_as_text(zone):
    clf, _ = dated(zone)
    streams, end = clf.stream(), "" if zone is None else "+01:00"
    many = streams.push_many(["a", "b"], [f"2026-01-02T12:00{end}", f"2026-01-02T13:00{end}"], np.ones((2, 1)))
    for k, id in enumerate(("a", "b")):
        alone = streams.push(f"{id} alone", f"2026-01-02T1{2 + k}:00{end}", {"x": 1.0})
        assert streams.last_time(id) == streams.last_time(f"{id} alone")
        np.testing.assert_allclose(many[k], alone, rtol=1e-6)
    with pytest.raises(ValueError, match="it is not a date and time such as"):
        streams.push_many(["c"], ["2026"], np.ones((1, 1)))


@pytest.mark.parametrize("missing", [None, float("nan"), np.float32("nan"), pd.NA], ids=repr)
def test_missing_cells_of_a_table_were_not_observed(missing):
    """Text as well as numbers, in channels and static features: rows come from tables too."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"stay": np.repeat(np.arange(20), 3), "hour": np.tile([0.0, 1.0, 2.5], 20)})
    frame["pulse"], frame["alarm"] = rng.normal(80, 10, 60), rng.choice(["on", "off"], 60)
    frame["sex"] = np.repeat(rng.choice(["f", "m"], 20), 3)
    series = nc.IrregularSeries.from_long(frame, id="stay", time="hour", static=["sex"])
    streams = nc.NeuralCDEClassifier(**QUICK).fit(series, np.arange(20) % 2).stream()
    nothing = streams.push("a", 0.0, {})
    found = streams.push("b", 0.0, {"pulse": missing, "alarm": missing}, static={"sex": missing})
    np.testing.assert_array_equal(found, nothing)


def test_whole_numbers_that_could_not_be_saved_are_no_ids():
    streams = fitted().stream()
    streams.push(2**64, 0.0, {})
    with pytest.raises(ValueError, match="id has 16610 bits"):
        streams.push(10**5000, 0.0, {})
    assert len(streams.to_bytes()) > 0


def test_streams_can_be_copied_and_pickled():
    streams = fitted().stream()
    streams.push("a", 0.0, {"pulse": 80.0})
    expected = streams.peek("a", 3.0)
    for again in (copy.deepcopy(streams), pickle.loads(pickle.dumps(streams))):
        np.testing.assert_array_equal(again.peek("a", 3.0), expected)
        again.push("a", 1.0, {"pulse": 90.0})
    np.testing.assert_array_equal(streams.peek("a", 3.0), expected)
