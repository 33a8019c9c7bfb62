"""The record of a run: its report needs nothing else, and its size does not grow with the data."""

import dataclasses
import json

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from report_runs import NASTY, fitted, series_of

import neuralcde as nc
from neuralcde.figures import number, score
from neuralcde.report import write_report
from neuralcde.report.comparison import render_comparison
from neuralcde.report.examples import path_of, telling_channels
from neuralcde.report.explained import explanation_of_examples
from neuralcde.report.html import signed
from neuralcde.report.page import target_rows
from neuralcde.report.parts_of_test import group_rows
from neuralcde.report.record import choose_examples, record_run
from neuralcde.report.run import read_run
from neuralcde.report.summary import distribution, summary_of_series
from neuralcde.series.clock import clock_of
from neuralcde.tasks import BinaryTask, RegressionTask


@pytest.fixture(scope="module")
def run_and_series(tmp_path_factory):
    folder = tmp_path_factory.mktemp("binary")
    estimator, series, test = fitted("binary", folder)
    return read_run(folder), estimator, series, test


def test_the_summary_has_the_right_counts(run_and_series):
    run, _, series, _ = run_and_series
    found = run.data["series"]
    assert (found["training"], found["test"], found["rows"]) == (45, 15, len(series.times))
    assert found["values"] == int(series.observed.sum())
    assert [channel["name"] for channel in found["channels"]] == ["pulse", NASTY]
    assert found["channels"][0]["missing"] == pytest.approx(float(series.values[:, 0].isnan().float().mean()))
    assert found["static"] == [{"name": "age", "missing": 0.0}, {"name": "unit", "missing": 0.25}]
    assert sum(found["lengths"]["counts"]) == 60
    assert sum(found["gaps"]["counts"]) == int((series.lengths - 1).sum())
    assert run.data["targets"] == {"training": [15, 30], "test": [5, 10]}


def test_recorded_examples_equal_the_original_series(run_and_series):
    run, _, series, test = run_and_series
    places = [position for position, _ in run.data["examples"]]
    assert len(places) == 3
    assert run.examples == series[test[places]]
    for k, place in enumerate(places):  # the recorded outputs belong to these series
        alone = run.examples[[k]]
        at_end = run.estimator.outputs_at(alone, alone.times.numpy())[0, -1]
        torch.testing.assert_close(at_end, run.outputs[place], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("scheme", ["linear", "rectilinear", "natural_cubic"])
def test_the_path_runs_through_the_observations_in_the_users_units(scheme, tmp_path):
    series = series_of(30)
    stamps = nc.IrregularSeries.from_list(
        [(1e6 + 3600 * one.times.numpy(), 100 + 20 * one.values.numpy()) for one in series], channels=["a", "b"]
    )
    fitted("binary", tmp_path, series=stamps, path=scheme)
    run = read_run(tmp_path)
    for one in run.examples:
        t, path = path_of(run, one)
        assert t[0] == pytest.approx(float(one.times[0]))
        assert t[-1] == pytest.approx(float(one.times[-1]))
        for time, row in zip(one.times.numpy(), one.values.numpy(), strict=True):
            after = path[np.flatnonzero(np.isclose(t, time, rtol=0, atol=1e-6))[-1]]
            known = ~np.isnan(row)
            np.testing.assert_allclose(after[known], row[known], rtol=1e-4)


def test_the_record_does_not_grow_with_the_data(tmp_path):
    for count in (40, 400):
        fitted("regression", tmp_path / str(count), count=count, max_epochs=1)
    sizes = {count: (tmp_path / count / "data.json").stat().st_size for count in ("40", "400")}
    assert sizes["400"] < 2 * sizes["40"]  # ten test series are too few for times and groups
    assert len(read_run(tmp_path / "400").examples) == 3


def test_examples_of_two_classes_are_the_surest_of_each_and_the_worst():
    outputs = torch.tensor([[3.0], [1.0], [-2.0], [-4.0], [2.0], [-1.0]])
    targets = torch.tensor([1.0, 1.0, 0.0, 0.0, 0.0, 1.0])
    ones = np.ones(6, dtype=int)
    found = choose_examples(BinaryTask(("no", "yes")), outputs, targets, counts=ones, lengths=ones)
    assert found == [(0, "surest"), (3, "surest"), (4, "worst")]


def test_examples_of_regression_are_the_best_a_typical_and_the_worst():
    outputs, targets = torch.tensor([[0.0], [1.0], [2.0], [3.0], [9.0]]), torch.zeros(5, 1)
    ones = np.ones(5, dtype=int)
    task = RegressionTask((0.0,), (1.0,))
    assert choose_examples(task, outputs, targets, counts=ones, lengths=ones) == [
        (0, "surest"),
        (2, "typical"),
        (4, "worst"),
    ]
    long = np.array([1, 1, 1, 1, 10**6])
    assert choose_examples(task, outputs, targets, counts=ones, lengths=long)[-1] == (3, "worst")
    assert choose_examples(task, outputs[:1], targets[:1], counts=ones[:1], lengths=ones[:1]) == [(0, "worst")]


def test_constant_channels_are_not_drawn(tmp_path):
    """A channel that never varies carries no information."""
    series = series_of(60, channels="abcdef")
    values = series.values.clone()
    values[:, [1, 3]] = 7.0
    with pytest.warns(UserWarning, match=r"\['b', 'd'\] never vary"):
        fitted("regression", tmp_path, series=dataclasses.replace(series, values=values), intensity=False)
    run = read_run(tmp_path)
    assert (
        telling_channels(run, None)
        == telling_channels(run, explanation_of_examples(run.estimator, run.examples, run.label))
        == [0, 2, 4, 5]
    )


def test_histograms_are_logarithmic_for_wide_ranges():
    whole = distribution(np.array([3, 3, 4, 7]))
    assert (sum(whole["counts"]), len(whole["counts"]), whole["logarithmic"]) == (4, 5, False)
    wide = distribution(np.array([0.01, 1.0, 100.0]))
    assert wide["logarithmic"]
    assert sum(wide["counts"]) == 3
    assert sum(distribution(np.array([2.0, 2.0]))["counts"]) == 2
    assert distribution(np.array([-1.0, 1000.0]))["logarithmic"] is False


def test_a_series_of_one_row_has_no_gaps():
    alone = summary_of_series(nc.IrregularSeries.from_list([([1.0], [[2.0]])]))
    assert alone["gaps"] is None
    assert alone["lengths"]["quantiles"] == [1.0] * 7


def test_time_axes_have_readable_units_and_origins():
    number = series_of(1).format
    assert clock_of(number, 3.0, 9.0).label == "time"
    far = clock_of(number, 1.7e9, 1.7e9 + 5)
    assert (far.start, far.label) == (1.7e9, "time since start")
    frame = pl.DataFrame({"id": [1, 1], "at": [3600_000_000, 3 * 86400_000_000 + 3600_000_000], "x": [0.0, 1.0]})
    stamps = nc.IrregularSeries.from_long(frame.with_columns(pl.col("at").cast(pl.Datetime("us"))), id="id", time="at")
    clock = clock_of(stamps.format, *stamps.times.tolist())
    assert (clock.factor * 86400, clock.label) == (pytest.approx(1.0), "days since start")
    assert clock.since == "1970-01-01 01:00"


def test_data_json_is_valid_json(run_and_series):
    run, *_ = run_and_series
    json.dumps(run.data, allow_nan=False)


def test_labels_per_row_are_counted_per_row(tmp_path):
    series = series_of(30)
    y = np.empty(30, dtype=object)
    y[:] = [np.stack([np.ones(n), np.arange(n) % 2], 1) for n in series.lengths.tolist()]
    estimator = nc.NeuralCDEClassifier(max_epochs=1, hidden=4, width=4, per_row=True).fit(series[:20], list(y[:20]))
    estimator.save(tmp_path)
    record_run(tmp_path, estimator, series, y, test=np.arange(20, 30))
    found = target_rows(read_run(tmp_path))
    assert [line["test"] for line in found] == np.concatenate(y[20:]).sum(0).tolist()
    assert [line["training"] for line in found] == np.concatenate(y[:20]).sum(0).tolist()


def test_recorded_targets_are_matched_by_id(tmp_path):
    series = dataclasses.replace(series_of(40), ids=np.arange(1, 41))
    y = pd.Series(np.arange(40) % 3 + 0.5, index=pd.Index(np.arange(1, 41), name="id"))[::-1]
    test = np.array([7, 3, 21])
    estimator = nc.NeuralCDERegressor(max_epochs=1, hidden=4, width=4).fit(series, y)
    estimator.save(tmp_path)
    record_run(tmp_path, estimator, series, y, test=test)
    np.testing.assert_allclose(estimator.task_.decode(read_run(tmp_path).targets), test % 3 + 0.5)


@pytest.mark.parametrize("kind", ["regression", "binary"])
def test_a_report_is_written_when_all_test_targets_are_unknown(kind, tmp_path):
    series = series_of(20)
    rows = [np.arange(n) % 2 * 1.0 for n in series.lengths.tolist()]
    for k in (3, 4):
        rows[k] = np.full_like(rows[k], np.nan)
    make = nc.NeuralCDERegressor if kind == "regression" else nc.NeuralCDEClassifier
    estimator = make(max_epochs=1, hidden=4, width=4, per_row=True).fit(series, rows)
    estimator.save(tmp_path)
    record_run(tmp_path, estimator, series, rows, test=np.array([3, 4]))
    assert len(read_run(tmp_path).examples) == 0
    assert "<html" in write_report(tmp_path).read_text()


def test_examples_may_have_equal_ids_and_channels_named_id_and_time(tmp_path):
    pairs = [(np.arange(3.0), np.random.default_rng(k).normal(size=(3, 2))) for k in range(12)]
    series = nc.IrregularSeries.from_list(pairs, channels=["time", "id"], ids=np.zeros(12, dtype=int))
    estimator = nc.NeuralCDEClassifier(max_epochs=1, hidden=4, width=4).fit(series, np.arange(12) % 2)
    estimator.save(tmp_path)
    record_run(tmp_path, estimator, series, np.arange(12) % 2, test=np.arange(4))
    found = read_run(tmp_path)
    positions = [position for position, _ in found.data["examples"]]
    assert torch.equal(found.examples.values, series[positions].values)
    assert "<html" in write_report(tmp_path).read_text()


def test_small_groups_are_listed_without_a_metric(tmp_path):
    """Of 30 test series, 6 have a unit of their own."""
    series = series_of(120)
    static = series.static.clone()
    static[:, 1] = torch.where(torch.arange(120) % 10 == 0, 2.0, 1.0)
    series = dataclasses.replace(series, static=static)
    fitted("binary", tmp_path / "run", series=series)
    rows = [row for row in json.loads((tmp_path / "run" / "data.json").read_text())["by_group"] if row["group"] == "2"]
    assert [(row["feature"], row["series"], row["value"]) for row in rows] == [("unit", 6, None)]
    page = write_report(tmp_path / "run").read_text()
    assert '<td class="n">6</td><td class="n">-</td><td class="n">fewer than 20 series</td>' in page
    assert group_rows(rows) == []  # without any metric there is no table


def test_all_numbers_have_one_minus_sign():
    assert (number(-0.51), score(-0.51), number(-1200), number(1e-7)) == (
        "\u22120.51",
        "\u22120.510",
        "\u22121,200",
        "1e\u221207",
    )
    assert (signed(-0.5), signed(0.5), number(float("nan"))) == ("\u22120.500", "+0.500", "-")


def test_runs_with_another_rarer_class_are_compared_by_the_class_of_the_first(tmp_path):
    for name in ("a", "b"):
        fitted("binary", tmp_path / name)
    runs = [read_run(tmp_path / name) for name in ("a", "b")]
    assert runs[0].estimator.task_.event == 0  # the rarer class has the first name
    page = render_comparison(runs, ["a", "b"])
    runs[1].estimator.task_ = dataclasses.replace(runs[1].estimator.task_, event=1)
    assert render_comparison(runs, ["a", "b"]) == page
