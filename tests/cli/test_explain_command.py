"""`neuralcde predict --explain`, and calibration on the command line."""

import json
import warnings

import polars as pl
import pytest

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
    assert set(terms["name"]) == {"survived"}
    temperature = json.loads((folder / "model" / "config.json").read_text())["calibration"]["temperature"]
    sums = terms.group_by("stay", maintain_order=True).agg(pl.col("term").sum())["term"] / temperature
    chances = 1 / (1 + (-sums).exp())
    assert chances.to_list() == pytest.approx(predictions["p_survived"].to_list(), abs=1e-4)


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
    assert chances.to_list() == pytest.approx(found["p_survived"].to_list(), abs=1e-4)


def test_numbers_are_not_calibrated(folder, tmp_path, capsys):
    words = ["--id", "stay", "--time", "hour", "--label", "age", "--calibrate", "isotonic", "--out", tmp_path / "model"]
    assert run("fit", folder / "stays.csv", *words, "--exclude", "outcome")
    assert "--calibrate is for classification" in capsys.readouterr().err
