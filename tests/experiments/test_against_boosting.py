"""The comparison with gradient boosting on a small file: summaries, splits, lines and tables."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from experiments.boosting import BoostedSummaries, shapes, summaries
from experiments.defaults_data import Data, stays
from experiments.lines import read_lines

import neuralcde as nc
from experiments import against_boosting, calibration, typing_errors

NAN = float("nan")


def test_summaries_of_a_series():
    values = [[1.0, NAN], [NAN, NAN], [4.0, NAN]]
    series = nc.IrregularSeries.from_list([([1.0, 2.0, 5.0], values)], static=[[7.0]])
    np.testing.assert_allclose(
        summaries(series)[0],
        [4, NAN, 2.5, NAN, 1.5, NAN, 1, NAN, 4, NAN, np.log(3), 0, 0, np.log(5), 5, 7],
        rtol=1e-6,
    )
    np.testing.assert_allclose(summaries(series, intensity=False)[0, -2:], [5, 7])


def test_shapes_of_a_series():
    values = [[1.0, NAN], [NAN, NAN], [4.0, NAN], [0.0, 2.0]]
    series = nc.IrregularSeries.from_list([([1.0, 2.0, 4.0, 5.0], values)])
    found = shapes(series)[0]
    slope = np.polyfit([0, 0.75, 1], [1, 4, 0], 1)[0]
    first, maximum, minimum, slopes, *thirds = np.split(found, 7)
    np.testing.assert_allclose(first, [1, 2])
    np.testing.assert_allclose([maximum, minimum], [[0.75, 1], [1, 1]])
    np.testing.assert_allclose(slopes, [slope, NAN], rtol=1e-6)
    np.testing.assert_allclose(thirds, [[1, NAN], [NAN, NAN], [2, 2]])


def test_without_intensity_a_channel_that_was_never_measured_has_the_mean():
    """With intensity a channel whose presence alone tells the class is NaN. Without, it is a number like any other."""
    rng = np.random.default_rng(0)
    values, labels = rng.normal(size=(400, 4, 2)), np.arange(400) % 2
    values[labels == 1, :, 1] = np.nan
    series = nc.IrregularSeries.from_padded(values, lengths=np.full(400, 4))
    seen, hidden = (BoostedSummaries(intensity=flag).fit(series, labels) for flag in (True, False))
    assert (seen.predict(series) == labels).all()
    changed = torch.where(series.values.isnan(), NAN, 0.0)  # only what was measured is left
    plain = dataclasses.replace(series, values=changed)
    assert seen.predict_proba(plain)[:, 1].std() > 0.1
    table = hidden._table(plain)
    assert not np.isnan(table).any()


def test_one_line_per_split_and_no_repeats(sepsis_pack, tmp_path, capsys):
    file = tmp_path / "lines.jsonl"
    few = {"max_epochs": 1, "hidden": 4, "width": 4}
    assert against_boosting.measure(2, 1, [False], workers=2, file=file, **few) == 0
    lines = read_lines(file)
    assert sorted((line["split"], line["intensity"]) for line in lines) == [(0, False), (1, False)]
    for line in lines:
        assert line["series"] == 119  # one stay is not in the paper's experiment
        assert list(line["contestants"]) == ["boosting", "one member"]
        for found in line["contestants"].values():
            assert 0 <= found["auroc"] <= 1
            assert min(found.values()) >= 0
            assert set(found) == {*against_boosting.METRICS, *against_boosting.SECONDS}
    assert "versions" in lines[0]
    capsys.readouterr()
    against_boosting.measure(2, 1, [False], file=file, **few)
    assert capsys.readouterr().out == ""
    assert len(list(against_boosting.tables(lines))) == 1


def test_the_page_shows_the_recorded_lines():
    assert against_boosting.PAGE.read_text() == against_boosting.page()


def test_a_split_that_fails_does_not_stop_the_others(sepsis_pack, tmp_path, capsys):
    assert against_boosting.measure(2, 1, [True], file=tmp_path / "lines.jsonl", hidden=-1) == 2
    assert "split 1, intensity True, members 1 failed: hidden" in capsys.readouterr().out


def test_the_parts_of_a_split_are_disjoint(sepsis_pack):
    _, labels = against_boosting.stays()
    first, other = (against_boosting.parts(labels, split) for split in (0, 1))
    assert sorted(np.concatenate(first)) == list(range(119))
    assert not np.array_equal(first.test, other.test)


def test_members_are_fitted_once(sepsis_pack, monkeypatch):
    """The first member is the default, and the mean of the members leaves out the trees, which come last."""
    outputs = torch.randn(4, 19, 1, generator=torch.Generator().manual_seed(0))

    class Fitted:
        def __init__(self, **options):
            assert options["members"] == 3
            assert options["boosting"]
            self.task_ = self
            self.members_ = [SimpleNamespace(history=[{"seconds": 1.5}, {"seconds": 1.0}])] * 3

        def fit(self, X, y):
            assert len(X) == len(y) == 101  # training and validation series
            return self

        def member_outputs(self, X):
            return outputs[:, : len(X)]

        def probabilities(self, found):
            p = torch.sigmoid(found[:, 0]).numpy()
            return np.stack([1 - p, p], 1)

        def predict_proba(self, X):
            return self.probabilities(outputs[3, : len(X)])

    monkeypatch.setattr(nc, "NeuralCDEClassifier", Fitted)
    line = against_boosting.measured(0, True, 3)
    assert list(line["contestants"]) == [
        "boosting",
        "boosting, several",
        "one member",
        "default",
        "members",
        "members and boosting",
    ]
    _, labels = against_boosting.stays()
    truth = labels[against_boosting.parts(labels, 0).test]
    expected = against_boosting.roc_auc_score(truth, outputs[:3, : len(truth), 0].mean(0))
    assert line["contestants"]["members"]["auroc"] == pytest.approx(expected)
    assert line["contestants"]["one member"]["fit_seconds"] == 2.5


def test_the_default_is_timed_on_all_stays(sepsis_pack):
    found = against_boosting.time_of_default(max_epochs=1, hidden=4, width=4)
    assert found["series"] == 119
    assert found["members"] == 1
    assert min(found.values()) >= 0


def test_differences_to_boosting_are_paired():
    def found(auroc):
        return {"auroc": auroc, "average_precision": 0.5, "log_loss": 0.1, "fit_seconds": 2.0, "predict_seconds": 1.0}

    lines = [
        {"intensity": True, "contestants": {"boosting": found(low), "default": found(high)}}
        for low, high in ((0.90, 0.92), (0.94, 0.93))
    ]
    (table,) = against_boosting.tables(lines)
    assert table.rows[0] == ["boosting", "0.9200 ± 0.0200", *table.rows[0][2:4], "", "", "2.0", "1.0"]
    assert table.rows[1][4:6] == ["+0.0050 ± 0.0150", "1 of 2"]


@pytest.mark.filterwarnings("ignore::neuralcde.series.FarValueWarning")
def test_typing_errors_change_one_value_in_a_thousand(sepsis_pack):
    series, labels = against_boosting.stays()
    wrong = typing_errors.with_errors(series)
    changed = (wrong.values != series.values) & ~series.values.isnan()
    assert changed.sum() == 1
    torch.testing.assert_close(wrong.values[changed], 1000 * series.values[changed])
    found = typing_errors.measured(Data(series, labels, "roc_auc"), max_epochs=1, hidden=4, width=4)
    assert found["largest change"] <= 1
    assert typing_errors.table({"made up": found}).rows[0][0] == "made up"


def test_calibration_is_measured_on_test_series():
    before, after, difference, error, *brier = calibration.measured(
        stays(60), "temperature", max_epochs=1, hidden=4, width=4
    )
    assert difference == pytest.approx(after - before)
    assert error > 0
    assert 0 < max(brier) < 0.5
