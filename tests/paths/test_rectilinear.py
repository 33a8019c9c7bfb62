"""Rectilinear paths: which channels move on which piece."""

import torch

import neuralcde as nc
from ragged_cases import NAN


def path():
    data = ([0.0, 1.0, 4.0], [[3.0, NAN], [5.0, 1.0], [NAN, 2.0]])
    series = nc.IrregularSeries.from_list([data, ([7.0], [[1.0, 1.0]])], dtype=torch.float64)
    return nc.rectilinear(series.with_channels(counts="shared", start=True))


def test_time_moves_first_then_the_data():
    """Columns: time, count, time times first value (two channels), data (two channels)."""
    corners = [
        [0, 1, 0, 0, 3, 0],
        [1, 1, 3, 0, 3, 0],
        [1, 2, 3, 0, 5, 1],
        [4, 2, 12, 0, 5, 1],
        [4, 3, 12, 0, 5, 2],
    ]
    pieces = path()[0].coefficients
    assert pieces[:, 0].tolist() == corners[:-1]
    assert pieces.sum(1).tolist() == corners[1:]
    assert path().durations.tolist() == [1.0, 0.0, 3.0, 0.0, 0.0]


def test_sides_of_a_jump():
    one = path()[0]
    assert one.evaluate([1.0, 4.0], side="left")[0, :, 4:].tolist() == [[3, 0], [5, 1]]
    assert one.evaluate([1.0, 4.0], side="right")[0, :, 4:].tolist() == [[5, 1], [5, 2]]
    assert one.evaluate([0.0, 0.5, 2.0])[0, :, [0, 4]].tolist() == [[0, 3], [0.5, 3], [2, 5]]


def test_derivative_is_that_of_the_running_channels():
    derivative = path()[0].derivative([0.0, 0.5, 1.0, 4.0])[0]
    assert derivative.tolist() == [[1, 0, 3, 0, 0, 0]] * 4
