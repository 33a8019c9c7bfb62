"""`neuralcde predict --explain`, and calibration on the command line."""

import json
import warnings

import numpy as np
import polars as pl
import pytest

import neuralcde as nc
from neuralcde.cli import main
from neuralcde.datasets import icu_table


def run(*words):
    with pytest.raises(SystemExit) as end:
        main([str(word) for word in words])
    return end.value.code or 0


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model that was fitted on made-up stays, and a table of new ones."""
    place = tmp_path_factory.mktemp("stays")
    icu_table(80, seed=0).write_csv(place / "stays.csv")
    icu_table(6, seed=1, first=80).drop("outcome").write_csv(place / "new.csv")
    words = ["--id", "stay", "--time", "hour", "--label", "outcome", "--static", "age", "--max-epochs", 1]
    assert not run("fit", place / "stays.csv", *words, "--calibrate", "temperature", "--out", place / "model")
    return place


def test_the_terms_of_each_prediction_are_written(folder, tmp_path):
    written = tmp_path / "terms.csv"
    assert not run("predict", folder / "model", folder / "new.csv", "--explain", written, "--out", tmp_path / "p.csv")
    terms, predictions = pl.read_csv(written), pl.read_csv(tmp_path / "p.csv")
    assert terms.columns == ["stay", "hour", "name", "kind", "column", "value", "term"]
    assert set(terms["name"]) == {"died"}  # the rarer one
    temperature = json.loads((folder / "model" / "config.json").read_text())["calibration"]["temperature"]
    sums = terms.group_by("stay", maintain_order=True).agg(pl.col("term").sum())["term"] / temperature
    chances = 1 / (1 + (-sums).exp())
    assert chances.to_list() == pytest.approx(predictions["p_died"].to_list(), abs=1e-4)


def test_explanations_at_times_have_those_times(folder, tmp_path, capsys):
    written = tmp_path / "terms.parquet"
    words = ["--at", "3,12.5", "--explain", written, "--out", tmp_path / "p.csv"]
    with warnings.catch_warnings():
        warnings.simplefilter("default")  # printed, not raised
        assert not run("predict", folder / "model", folder / "new.csv", *words)
    assert "predictions at given times are not calibrated" in capsys.readouterr().err
    terms, predictions = pl.read_parquet(written), pl.read_csv(tmp_path / "p.csv")
    sums = terms.group_by("stay", "at", maintain_order=True).agg(pl.col("term").sum(), pl.col("hour").max())
    assert sums["hour"].to_list() == sums["at"].to_list()  # a row without observations at that time
    found = sums.join(predictions.rename({"hour": "at"}), on=["stay", "at"])
    assert len(found) == 12
    chances = 1 / (1 + (-found["term"]).exp())
    assert chances.to_list() == pytest.approx(found["p_died"].to_list(), abs=1e-4)


@pytest.mark.parametrize("kind", ["classes", "numbers", "rows"])
def test_terms_of_other_models_add_up_to_their_outputs(kind, tmp_path):
    """Three classes by two models and trees; numbers; a target per row, of which the last prediction is explained."""
    table, new = icu_table(60, seed=0).drop("outcome"), icu_table(6, seed=1, first=60).drop("outcome")
    series = nc.IrregularSeries.from_long(table, id="stay", time="hour", static=["age"])
    options = {"max_epochs": 1, "hidden": 4, "width": 4, "random_state": 0}
    if kind == "classes":
        clf = nc.NeuralCDEClassifier(**options, members=2, boosting=True)
        clf.fit(series, np.array(list("abc") * 20), callbacks=[lambda _: False])
    elif kind == "numbers":
        clf = nc.NeuralCDERegressor(**options).fit(series, np.arange(60.0))
    else:
        clf = nc.NeuralCDEClassifier(**options, per_row=True).fit(series, np.arange(len(series.times)) % 2)
    clf.save(tmp_path / "model")
    new.write_csv(tmp_path / "new.csv")
    words = ["--explain", tmp_path / "terms.csv", "--out", tmp_path / "p.csv"]
    assert not run("predict", tmp_path / "model", tmp_path / "new.csv", *words)
    held = clf.read_long(new)
    outputs = clf.outputs(held)
    scores = clf.task_.scores(outputs[held.offsets[1:] - 1] if kind == "rows" else outputs).numpy()
    sums = pl.read_csv(tmp_path / "terms.csv").group_by("stay", "name", maintain_order=True).agg(pl.col("term").sum())
    assert sums["term"].to_list() == pytest.approx(scores.reshape(-1).tolist(), rel=1e-4, abs=1e-4)
    assert len(set(sums["name"])) == scores.shape[1]


def test_a_path_that_looks_ahead_is_refused_with_the_fix(tmp_path, capsys):
    table = icu_table(12, seed=0).drop("outcome")
    series = nc.IrregularSeries.from_long(table, id="stay", time="hour", static=["age"])
    clf = nc.NeuralCDEClassifier(max_epochs=1, hidden=4, width=4, path="natural_cubic", encoder=None)
    clf.fit(series, np.arange(12) % 2).save(tmp_path / "model")
    table.write_csv(tmp_path / "new.csv")
    assert run("predict", tmp_path / "model", tmp_path / "new.csv", "--explain", tmp_path / "terms.csv")
    assert "depends on later rows" in (told := capsys.readouterr().err)
    assert "linear" in told
    assert not (tmp_path / "terms.csv").exists()


def test_numbers_are_not_calibrated(folder, tmp_path, capsys):
    words = ["--id", "stay", "--time", "hour", "--label", "age", "--calibrate", "isotonic", "--out", tmp_path / "model"]
    assert run("fit", folder / "stays.csv", *words, "--exclude", "outcome")
    assert "--calibrate is for classification" in capsys.readouterr().err
