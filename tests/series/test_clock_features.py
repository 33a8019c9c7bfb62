"""Hat functions and their knots."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from neuralcde.series.clock_features import clock_knots, hat_functions


@given(st.lists(st.integers(-50, 50), min_size=1, max_size=8, unique=True).map(sorted))
def test_hats_interpolate(points):
    """Values at the knots, weighted by the hats, give numpy's linear interpolation."""
    knots, times = torch.tensor(points, dtype=torch.float64), torch.linspace(-60, 60, 241, dtype=torch.float64)
    hats = hat_functions(times, knots)
    assert hats.shape == (241, len(points))
    torch.testing.assert_close(hats.sum(1), torch.ones(241, dtype=torch.float64))
    assert (hats >= 0).all()
    heights = torch.randn(len(points), dtype=torch.float64)
    expected = torch.from_numpy(np.interp(times.numpy(), knots.numpy(), heights.numpy()))
    torch.testing.assert_close(hats @ heights, expected)


def test_knots_are_quantiles():
    times = torch.rand(101, dtype=torch.float64)
    expected = torch.from_numpy(np.quantile(times.numpy(), np.linspace(0, 1, 6)))
    torch.testing.assert_close(clock_knots(times, 6), expected)


def test_knots_increase_where_times_repeat():
    assert clock_knots(torch.tensor([0.0, 0, 0, 0, 1, 2]), 10).diff().min() > 0
    assert clock_knots(torch.zeros(5), 4).tolist() == [0.0]


def test_wrong_knots_are_refused():
    for wrong in ([], [1.0, 1.0], [2.0, 1.0]):
        with pytest.raises(ValueError, match="increase strictly"):
            hat_functions(torch.zeros(3), torch.tensor(wrong))
    with pytest.raises(ValueError, match="at least 1"):
        clock_knots(torch.zeros(3), 0)
    with pytest.raises(ValueError, match="at least one training row"):
        clock_knots(torch.zeros(0), 3)
