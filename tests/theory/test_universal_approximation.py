"""The universal approximation example, run on few paths: its claims hold."""

import csv
import importlib.util
import math
from pathlib import Path

import numpy as np
import pytest
import torch

import neuralcde as nc

FILE = Path(__file__).parents[2] / "examples" / "universal_approximation.py"


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("universal_approximation", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_error_on_unseen_paths_falls_with_depth(example, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    out = tmp_path / "new" / "errors.csv"
    table = example.main(["--series", "300", "--held-out", "150", "--depth", "4", "--out", str(out)])
    assert [row["words"] for row in table] == [3, 12, 39, 120]
    first, last = table[0], table[-1]
    assert last["squared area"] < 1e-8  # exact: a linear map of words of length 4
    assert min(row["squared area"] for row in table[:3]) > 0.5
    assert last["pendulum"] < 0.3 * first["pendulum"]
    assert last["maximum"] < 0.6 * first["maximum"]
    printed = capsys.readouterr().out
    assert f"{last['pendulum']:.2e}" in printed
    with out.open() as file:
        assert [float(row["maximum"]) for row in csv.DictReader(file)] == [row["maximum"] for row in table]
    assert out.with_suffix(".png").read_bytes().startswith(b"\x89PNG")


def test_the_functions_are_what_they_are_called(example):
    """A square of side 2, a path that retraces itself, and a pendulum without driving force."""
    square = [[0.0, 0.0], [2.0, 0.0], [2.0, 2.0], [0.0, 2.0], [0.0, 0.0]]
    back = [[0.0, 0.0], [3.0, 1.0], [0.0, 0.0]]
    series = nc.IrregularSeries.from_list([(range(len(x)), x) for x in (square, back)], dtype=torch.float64)
    path = nc.linear(series.with_channels())
    assert example.squared_area(path).tolist() == [16.0, 0.0]
    assert example.largest_value(path).tolist() == [2.0, 3.0]
    still = nc.IrregularSeries.from_list([([0.0, 0.5, 1.0], torch.zeros(3, 2))], dtype=torch.float64)
    swing = example.pendulum(nc.linear(still.with_channels())).item()
    assert math.isclose(swing, 0.5 * math.cos(1), abs_tol=0.01)  # approximately the small-angle pendulum


def test_ridge_regression_finds_a_linear_map(example):
    generator = np.random.default_rng(0)
    words = generator.standard_normal((40, 5)) * [1, 10, 0.1, 1, 0] + [0, 0, 0, 5, 3]  # the last one is constant
    weights, intercept = example.fit_linear_map(words, words @ [1.0, -0.2, 3.0, 0.5, 0.0] + 7)
    np.testing.assert_allclose(weights[:4], [1.0, -0.2, 3.0, 0.5], rtol=1e-8)
    np.testing.assert_allclose(words @ weights + intercept, words @ [1.0, -0.2, 3.0, 0.5, 0.0] + 7, rtol=1e-8)


def test_leave_one_out_selects_the_best_penalty(example):
    """Compared with refitting the regression once per left-out path."""
    generator = np.random.default_rng(1)
    words = generator.standard_normal((25, 8))
    values = words[:, 0] + generator.standard_normal(25)
    found, _ = example.fit_linear_map(words, values)
    table = (words - words.mean(0)) / words.std(0)

    def ridge(penalty, rows):
        """Ridge regression weights of standardised words, with an unpenalised intercept."""
        x = np.column_stack([np.ones(len(rows)), table[rows]])
        punished = np.diag([0.0, *[penalty] * 8])
        return np.linalg.solve(x.T @ x + punished, x.T @ values[rows])

    def error(penalty):
        left_out = [np.delete(np.arange(25), i) for i in range(25)]
        guesses = [ridge(penalty, rows) @ [1.0, *table[i]] for i, rows in enumerate(left_out)]
        return np.square(guesses - values).mean()

    best = min(example.PENALTIES * 25, key=error)
    assert example.PENALTIES[0] * 25 < best
    np.testing.assert_allclose(found, ridge(best, np.arange(25))[1:] / words.std(0), rtol=1e-6)
