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


def test_knots_are_quantiles_and_evenly_spaced_times():
    times = torch.rand(101, dtype=torch.float64) ** 4
    quantiles = np.quantile(times.numpy(), [0, 0.25, 0.5, 0.75, 1])
    even = np.linspace(float(times.min()), float(times.max()), 5)
    expected = np.unique(np.concatenate([quantiles, even]).round(12))
    np.testing.assert_allclose(np.unique(clock_knots(times, 10).numpy().round(12)), expected)


def test_few_distinct_times_are_the_knots():
    assert clock_knots(torch.tensor([2.0, 0, 0, 0, 1, 2]), 10).tolist() == [0.0, 1.0, 2.0]
    assert clock_knots(torch.zeros(5), 4).tolist() == [0.0]


@given(st.lists(st.floats(0, 100, width=32), min_size=1, max_size=50), st.integers(1, 12))
def test_knots_increase_and_are_at_most_as_many_as_asked(times, count):
    knots = clock_knots(torch.tensor(times, dtype=torch.float64), count)
    assert (knots.diff() > 0).all()
    assert len(knots) <= count


def test_wrong_knots_are_refused():
    for wrong in ([], [1.0, 1.0], [2.0, 1.0]):
        with pytest.raises(ValueError, match="increase strictly"):
            hat_functions(torch.zeros(3), torch.tensor(wrong))
    with pytest.raises(ValueError, match="at least 1"):
        clock_knots(torch.zeros(3), 0)
    with pytest.raises(ValueError, match="at least one training row"):
        clock_knots(torch.zeros(0), 3)
