"""Streams of estimators refuse what they could not keep or save, and stay as they were."""

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
