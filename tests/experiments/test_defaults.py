"""The comparison with the estimators' defaults: paired by fold, resumable, with changes that take effect."""

import numpy as np
import pytest
from experiments.defaults_data import Data
from experiments.lines import read_lines

import neuralcde as nc
from experiments import defaults

FEW = {"max_epochs": 2, "hidden": 4, "width": 4}


@pytest.fixture
def small(strokes, monkeypatch):
    """The small letters in place of all data sets, and two changes."""
    values, letters = strokes
    series = nc.IrregularSeries.from_list([(np.arange(float(len(v))), v) for v in values])
    data = Data(series, np.array(letters), "accuracy", groups=np.arange(80) // 8)
    monkeypatch.setattr(defaults, "DATA", {"letters": lambda: data})
    monkeypatch.setattr(defaults, "CHANGES", {"nothing": FEW, "more": {**FEW, "max_epochs": 8}})
    return data


def test_one_line_per_fold_and_change_and_no_repeats(small, tmp_path, capsys):
    file = tmp_path / "defaults.jsonl"
    defaults.measure(["letters"], file)
    lines = read_lines(file)
    assert sorted((line["fold"], line["change"]) for line in lines) == [
        (fold, change) for fold in range(3) for change in ("more", "nothing")
    ]
    assert {line["epochs"] for line in lines if line["change"] == "more"} == {8}
    assert all(line["log_loss"] > 0 and line["seconds"] > 0 for line in lines)
    capsys.readouterr()
    defaults.measure(["letters"], file)
    assert capsys.readouterr().out == ""
    assert read_lines(file) == lines


def test_one_that_fails_does_not_stop_the_others(small, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(defaults, "CHANGES", {"bad": {"hidden": -1}, "nothing": FEW})
    file = tmp_path / "defaults.jsonl"
    assert defaults.measure(["letters"], file) == 3
    assert {line["change"] for line in read_lines(file)} == {"nothing"}
    assert "'bad', 'fold': 0} failed: hidden" in capsys.readouterr().out


def test_absent_data_are_skipped_with_a_message(small, monkeypatch, capsys):
    def absent():
        raise FileNotFoundError("there is no pbc2.csv")

    monkeypatch.setitem(defaults.DATA, "pbc2", absent)
    assert list(defaults.available(["pbc2", "letters"])) == ["letters"]
    assert capsys.readouterr().out == "pbc2 is skipped: there is no pbc2.csv\n"


def test_a_group_is_in_one_fold(small, monkeypatch):
    """A fit sees no series of the groups on which it is scored."""
    seen = []

    class Spy(defaults.BoostedSummaries):
        def fit(self, X, y, *, groups=None):
            seen.append(set(groups))
            return super().fit(X, y)

    for fold in range(3):
        defaults.measured(small, Spy, fold)
    held = [set(small.groups) - groups for groups in seen]
    assert sorted(group for groups in held for group in groups) == list(range(10))


def line(change, fold, score, **entries):
    return {"data": "letters", "change": change, "fold": fold, "score": score, **entries}


def test_differences_are_paired(small):
    found = {"nothing": (0.5, 0.6, 0.7), "more": (0.6, 0.6, 0.9)}
    lines = [line(change, fold, score) for change, row in found.items() for fold, score in enumerate(row)]
    assert defaults.scores(lines).rows == [["nothing", "60.0 ± 5.8 (3)"], ["more", "+10.0 ± 5.8 (3)"]]


def test_costs_are_means_over_the_folds(small):
    lines = [line("nothing", fold, 0.5, log_loss=0.1 * fold, seconds=10.0 * fold) for fold in range(3)]
    assert defaults.costs(lines).rows == [["nothing", "0.100, 10 s"]]


def test_the_page_shows_what_was_measured():
    assert defaults.PAGE.read_text() == defaults.page()


def test_every_change_is_known():
    known = set(nc.NeuralCDEClassifier().get_params(deep=False))
    for change in defaults.CHANGES.values():
        if isinstance(change, dict):
            assert set(defaults.classifier(change, 0).get_params(deep=False)) == known
    assert all(name in defaults.CHANGES for names in defaults.NO_CHANGE.values() for name in names)


def test_a_change_to_what_the_default_is_anyway_is_not_run(small, monkeypatch, tmp_path):
    """The small letters have no missing values, so that the default has no encoder."""
    monkeypatch.setattr(defaults, "CHANGES", {"nothing": FEW, "encoder off": FEW, "encoder on": FEW})
    file = tmp_path / "defaults.jsonl"
    defaults.measure(["letters"], file)
    assert {line["change"] for line in read_lines(file)} == {"nothing", "encoder on"}


@pytest.mark.parametrize("missing", [0.0, 0.6])
def test_what_counts_as_no_change_is_what_the_estimator_does(missing):
    """The changes of `NO_CHANGE` to scaling and encoder give the same model as the default."""
    rng = np.random.default_rng(0)
    values = np.where(rng.random((40, 6, 2)) < missing, np.nan, rng.normal(size=(40, 6, 2)))
    series, labels = nc.IrregularSeries.from_padded(values, lengths=np.full(40, 6)), np.arange(40) % 2
    encoded = defaults.has_encoder(Data(series, labels, "accuracy"))
    assert encoded == (missing > 0.5)

    def fitted(change):
        model = defaults.classifier({**defaults.CHANGES[change], **FEW}, 0).fit(series, labels)
        return model.preparation_.scaler.scale, model.preparation_.encoded, model.predict_proba(series).tolist()

    for change in defaults.NO_CHANGE[encoded]:
        if change != "fewer features":
            assert fitted(change) == fitted("nothing")
