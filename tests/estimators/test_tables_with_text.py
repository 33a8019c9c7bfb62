"""Estimators that were fitted on tables with text channels: new tables, saving, loading, damaged categories."""

import hashlib
import json

import numpy as np
import polars as pl
import pytest

import neuralcde as nc


def stays(cells, series=12):
    """Series of 4 rows with a number and a text."""
    rows = np.arange(4 * series)
    made = {"id": rows // 4, "t": 1.0 * (rows % 4), "x": np.sin(rows), "ward": [cells[k % len(cells)] for k in rows]}
    return pl.DataFrame(made)


FRAME = stays(["north", None, "south", "north", "west"])


@pytest.fixture(scope="module")
def fitted():
    series = nc.IrregularSeries.from_long(FRAME, id="id", time="t")
    return nc.NeuralCDEClassifier(max_epochs=2, hidden=3, width=4, random_state=0).fit(series, np.arange(12) % 2)


def test_new_tables_are_read_like_the_first_one(fitted, tmp_path):
    fitted.save(tmp_path)
    again = nc.load(tmp_path)
    assert again.preparation_.format == fitted.preparation_.format
    new = stays(["south", "east", None])
    series = again.read_long(new)
    assert series.channel_names == ("x", "ward=north", "ward=south", "ward=west")
    ward = series.values[:3, 1:]
    assert ward[:2].tolist() == [[0, 1, 0], [0, 0, 0]]
    assert ward[2].isnan().all()
    np.testing.assert_array_equal(again.predict_proba(series), fitted.predict_proba(fitted.read_long(new)))


def test_the_model_sees_the_category(fitted):
    north, south, none = (
        fitted.predict_proba(fitted.read_long(stays([cell, None]))) for cell in ("north", "south", "?")
    )
    assert not np.allclose(north, south)
    assert not np.allclose(north, none)


def ward(*categories, name="ward"):
    return {"name": name, "categories": list(categories)}


WRONG = {
    "not a list": None,
    "no columns": [["ward"]],
    "no categories": [{"name": "ward"}],
    "null": [{"name": "ward", "categories": None}],
    "numbers": [ward("north", "south", 5)],
    "empty": [ward()],
    "an empty column": [ward("north", "south", "west"), ward(name="x")],
    "another order": [ward("south", "north", "west")],
    "another name": [ward("north", "south", "west", name="room")],
    "an unknown category": [ward("east", "north", "south", "west")],
    "a category twice": [ward("north", "north", "south", "west")],
    "a column twice": [ward("north", "south", "west"), ward("north", "south", "west")],
    "one column as two": [ward("north"), ward("south", "west")],
    "a surrogate": [ward("north", "south", "\ud800")],
    "the name of a number": [ward("north", "south", "west"), ward("", name="x")],
}


@pytest.mark.parametrize("wrong", WRONG)
def test_damaged_categories_are_refused(fitted, wrong, tmp_path):
    fitted.save(tmp_path)
    state = json.loads((tmp_path / "preprocess.json").read_text())
    assert state["format"]["text_channels"] == [ward("north", "south", "west")]
    state["format"]["text_channels"] = WRONG[wrong]
    content = json.dumps(state).encode()
    (tmp_path / "preprocess.json").write_bytes(content)
    config = json.loads((tmp_path / "config.json").read_text())
    config["files"]["preprocess.json"] = hashlib.sha256(content).hexdigest()
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r"preprocess.json is damaged: format.text_channels"):
        nc.load(tmp_path)
