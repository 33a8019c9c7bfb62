"""Values far outside the usual range, in data.json and on the page."""

import dataclasses
import json

import pytest
from report_runs import NASTY, fitted, series_of

from neuralcde.report import write_report
from neuralcde.series import FarValueWarning


def with_far_values(rows):
    series = series_of(120)
    values = series.values.clone()
    values[rows, 1] = 1e6
    return dataclasses.replace(series, values=values)


def test_a_page_without_far_values_says_nothing_of_them(tmp_path):
    fitted("binary", tmp_path)
    assert json.loads((tmp_path / "data.json").read_text())["far"]["test"] == {"counts": [], "listed": []}
    assert "far outside the usual range" not in write_report(tmp_path).read_text()


def test_far_values_are_recorded_and_shown_without_further_warnings(tmp_path):
    with pytest.warns(FarValueWarning):
        _, series, _ = fitted("binary", tmp_path, series=with_far_values([0, 2]))  # the first series is in the test
    far = json.loads((tmp_path / "data.json").read_text())["far"]
    assert far["test"]["counts"] == [{"name": NASTY, "count": 1}]
    (found,) = far["test"]["listed"]
    assert (found["series"], found["channel"], found["value"]) == (series.ids[0], NASTY, 1e6)
    assert found["time"] == float(series.times[0])
    assert far["training"]["counts"] == [{"name": NASTY, "count": 1}]
    page = write_report(tmp_path).read_text()  # a warning would be an error
    assert "<h3>Values far outside the usual range</h3>" in page
    assert "1 in test" in page
    assert "1 in training" in page
    assert "1,000,000" in page
    assert "&lt;b&gt;0&lt;/b&gt;" in page
    assert "<b>0</b>" not in page


def test_only_the_most_extreme_ones_are_listed(tmp_path, monkeypatch):
    monkeypatch.setattr("neuralcde.report.record.LISTED", 1)
    monkeypatch.setattr("neuralcde.report.record_checks.LISTED", 1)
    series = with_far_values([0, 1])
    series.values[1, 1] = 2e6
    with pytest.warns(FarValueWarning):
        fitted("binary", tmp_path, series=series, max_epochs=1)
    far = json.loads((tmp_path / "data.json").read_text())["far"]["test"]
    assert far["counts"] == [{"name": NASTY, "count": 2}]
    assert [found["value"] for found in far["listed"]] == [2e6]
    assert "Listed are the most extreme of 2." in write_report(tmp_path).read_text()
