"""The outputs of a series do not depend on the rest of its batch, on padding, or (on causal paths) on later data."""

import dataclasses

import pytest
import torch
from model_cases import SOLVED, STANDARD, VARIANTS, make, outputs_of, path_of

import neuralcde as nc
from neuralcde._native import kernels
from ragged_cases import random_series
from solve_cases import on_engine, ran_on

ROWS, PRESENT = 9, 4  # rows after PRESENT are the future


def some_batch(dtype, count=19, rows=(1, 7)):
    series = random_series(41, count=count, rows=rows, dtype=dtype)
    static = torch.randn(count, 2, dtype=torch.float64).to(dtype)
    return dataclasses.replace(series, static=static, static_names=("a", "b"))


def rows_of(path, i):
    return slice(int(path.series.offsets[i]), int(path.series.offsets[i + 1]))


@pytest.mark.skipif(kernels is None, reason="the native kernels were not built or are turned off")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", [kind for kind in VARIANTS if kind.split()[0] in SOLVED])
def test_states_alone_or_in_a_batch_are_the_same_bits(kind, dtype, monkeypatch):
    """On the native engine, from the same initial state, in any order of the batch."""
    on_engine(monkeypatch, "native")
    path = path_of(some_batch(dtype), scheme="rectilinear", intensity=True)
    model = make(kind, path.channels, intensity=True, dtype=dtype, initial="zero", hidden=9)
    together = model.solve(path, save="knots")
    assert ran_on(together, "native")
    for i in range(len(path)):
        alone = model.solve(path[i], save="knots")
        assert torch.equal(alone.at_knots, together.at_knots[rows_of(path, i)])
        assert torch.equal(alone.last[0], together.last[i])
    order = torch.randperm(len(path))
    assert torch.equal(model.solve(path[order]).last, together.last[order])


@pytest.mark.parametrize("output", ["mean", "knots"])
@pytest.mark.parametrize("kind", VARIANTS)
def test_outputs_alone_or_in_a_batch(kind, output, engine):
    """Up to rounding, because torch computes the linear maps around the solve, with sums that depend on batch size."""
    path = path_of(some_batch(torch.float64, count=11))
    model = make(kind, path.channels, static=2, initial="both")
    together = outputs_of(model, path, output)
    order = torch.randperm(len(path)).tolist()
    shuffled = outputs_of(model, path[order], output)
    for place, i in list(enumerate(order))[:2]:
        own, other = (rows_of(path, i), rows_of(path[order], place)) if output == "knots" else (i, place)
        alone = outputs_of(model, path[i], output).reshape(together[own].shape)
        torch.testing.assert_close(alone, together[own], rtol=1e-13, atol=1e-13)
        torch.testing.assert_close(shuffled[other], together[own], rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("output", ["mean", "times"])
@pytest.mark.parametrize("kind", VARIANTS)
def test_padding_does_not_matter(kind, output, engine):
    """Bitwise equality."""
    padded = random_series(42, count=6, rows=(1, 7), dtype=torch.float32).to_padded()

    def outputs(extra):
        values = torch.nn.functional.pad(padded.values, (0, 0, 0, extra), value=torch.nan)
        times = torch.nn.functional.pad(padded.times, (0, extra), value=torch.nan)
        path = path_of(nc.IrregularSeries.from_padded(values, times=times, lengths=padded.lengths))
        return outputs_of(make(kind, path.channels, dtype=torch.float32), path, output)

    assert torch.equal(outputs(0), outputs(23))


def with_another_future(series):
    """The same series with other values and other missing values after the present."""
    values = series.values.reshape(len(series), ROWS, -1).clone()
    future = 3 + torch.randn(values[:, PRESENT + 1 :].shape, dtype=torch.float64)
    values[:, PRESENT + 1 :] = future.masked_fill(torch.rand(future.shape) < 0.3, torch.nan)
    return dataclasses.replace(series, values=values.flatten(0, 1))


def cut(series):
    """The series without its future rows."""
    times, values = series.times.reshape(len(series), ROWS), series.values.reshape(len(series), ROWS, -1)
    now = slice(0, PRESENT + 1)
    return nc.IrregularSeries.from_list(list(zip(times[:, now], values[:, now], strict=True)), dtype=torch.float64)


def up_to_now(model, path):
    """Outputs at the rows up to the present, (series, rows, outputs)."""
    return model(path, at="knots").reshape(len(path), -1, model.outputs)[:, : PRESENT + 1]


@pytest.mark.parametrize(
    ("scheme", "intensity"), [("linear-forward", False), ("linear-forward", True), ("rectilinear", True)]
)
@pytest.mark.parametrize("kind", STANDARD)
def test_the_future_does_not_change_the_present(kind, scheme, intensity, engine):
    """On causal paths: bitwise equal with another future, and equal up to rounding without future rows."""
    series = random_series(43, count=5, rows=(ROWS, ROWS))
    path, other, short = (
        path_of(x, scheme=scheme, intensity=intensity) for x in (series, with_another_future(series), cut(series))
    )
    model = make(kind, path.channels, intensity=intensity, initial="linear")
    now = up_to_now(model, path)
    assert torch.equal(up_to_now(model, other), now)
    torch.testing.assert_close(up_to_now(model, short), now, rtol=1e-13, atol=1e-13)
    assert not torch.allclose(model(other), model(path))


@pytest.mark.parametrize("kind", STANDARD)
def test_rectilinear_outputs_between_rows_do_not_depend_on_the_next_row(kind, engine):
    series = random_series(44, count=5, rows=(ROWS, ROWS))
    path, other = (path_of(x, scheme="rectilinear") for x in (series, with_another_future(series)))
    model, times = make(kind, path.channels), series.times.reshape(5, ROWS)
    soon = times[:, PRESENT, None] * 0.1 + times[:, PRESENT + 1, None] * 0.9
    assert torch.equal(model(path, at=soon), model(other, at=soon))
    assert not torch.allclose(model(path, at=times[:, PRESENT + 1 :]), model(other, at=times[:, PRESENT + 1 :]))


@pytest.mark.parametrize("kind", ["GRUDeltaT standard", "GRUD standard", "ODERNN standard"])
def test_standard_cells_are_causal_on_any_path(kind, engine):
    """Their inputs are the observations, not the path."""
    series = random_series(45, count=5, rows=(ROWS, ROWS))
    path, other = (path_of(x, scheme="natural_cubic") for x in (series, with_another_future(series)))
    model = make(kind, path.channels)
    assert torch.equal(up_to_now(model, path), up_to_now(model, other))


@pytest.mark.parametrize("kind", ["NeuralCDE", "GRUODE standard", *(kind for kind in VARIANTS if kind not in STANDARD)])
def test_outputs_on_noncausal_paths_depend_on_the_future(kind, engine):
    """Shows that the tests above can fail: the paper's cells and flows along the path depend on a noncausal path."""
    series = random_series(46, count=5, rows=(ROWS, ROWS))
    path, other = (path_of(x, scheme="linear") for x in (series, with_another_future(series)))
    model = make(kind, path.channels)
    assert not torch.allclose(up_to_now(model, path), up_to_now(model, other))
