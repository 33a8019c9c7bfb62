"""The comparison with the estimators' defaults: paired by fold, resumable, with changes that take effect."""

import numpy as np
import pytest
import torch
from experiments.lines import read_lines

import neuralcde as nc
from experiments import defaults


@pytest.fixture
def small(strokes, monkeypatch):
    """The small letters in place of all data sets, and two changes."""
    values, letters = strokes
    series = nc.IrregularSeries.from_list([(np.arange(float(len(v))), v) for v in values])
    monkeypatch.setattr(defaults, "DATA", {"letters": lambda: defaults.Data(series, np.array(letters), "accuracy")})
    few = {"max_epochs": 2, "hidden": 4, "width": 4}
    monkeypatch.setattr(defaults, "CHANGES", {"nothing": few, "more": {**few, "max_epochs": 8}})
    return series


def test_one_line_per_fold_and_change_and_no_repeats(small, tmp_path, capsys):
    file = tmp_path / "defaults.jsonl"
    defaults.measure(["letters"], file)
    lines = read_lines(file)
    assert sorted((line["fold"], line["change"]) for line in lines) == [
        (fold, change) for fold in range(defaults.FOLDS) for change in ("more", "nothing")
    ]
    assert {line["epochs"] for line in lines if line["change"] == "more"} == {8}
    capsys.readouterr()
    defaults.measure(["letters"], file)
    assert capsys.readouterr().out == ""
    assert read_lines(file) == lines


def test_one_that_fails_does_not_stop_the_others(small, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(defaults, "CHANGES", {"bad": {"hidden": -1}, **defaults.CHANGES})
    monkeypatch.setattr(defaults, "FOLDS", 1)
    file = tmp_path / "defaults.jsonl"
    assert defaults.measure(["letters"], file) == 1
    assert {line["change"] for line in read_lines(file)} == {"nothing", "more"}
    assert "'bad', 'fold': 0} failed: hidden" in capsys.readouterr().out


def test_differences_are_paired(small):
    scores = {"nothing": (0.5, 0.6, 0.7), "more": (0.6, 0.6, 0.9)}
    lines = [
        {"data": "letters", "change": change, "fold": fold, "score": score}
        for change, row in scores.items()
        for fold, score in enumerate(row)
    ]
    table = defaults.table(lines)
    assert table.rows == [["nothing", "60.0 ± 5.8 (3)"], ["more", "+10.0 ± 5.8 (3)"]]


def test_the_page_shows_what_was_measured():
    assert defaults.PAGE.read_text() == defaults.page()


def test_every_change_takes_effect(small):
    deviation = float(torch.cat([one.times - one.times[0] for one in small]).std(correction=0))
    for change in ({"NeuralCDE.initial_scale": 0.01}, {"time_unit": 10.0}, {"time_unit": "deviation"}):
        with defaults.classifier({**change, "max_epochs": 1, "hidden": 4, "width": 4}, 0) as model:
            model.fit(small, np.arange(80) % 2)
        plain = nc.NeuralCDEClassifier(max_epochs=1, hidden=4, width=4, random_state=0).fit(small, np.arange(80) % 2)
        if "time_unit" in change:
            scales = [m.preparation_.scaler.channel_scales_.time for m in (model, plain)]
            assert (
                scales[0] == (10.0 if change["time_unit"] == 10.0 else pytest.approx(deviation, rel=0.1)) != scales[1]
            )
        else:
            last, other = (list(m.module_.field.parameters())[-2].abs().mean() for m in (model, plain))
            assert last < 0.1 * other


def test_every_change_is_known():
    known = nc.NeuralCDEClassifier().get_params()
    for change in defaults.CHANGES.values():
        assert set(change) <= {*known, "NeuralCDE.initial_scale", "time_unit"}
