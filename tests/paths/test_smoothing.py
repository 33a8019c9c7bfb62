"""Smoothing paths compared with scipy's smoothing spline, and for penalties of zero and infinity."""

import numpy as np
import pytest
import torch
from scipy.interpolate import make_smoothing_spline

import neuralcde as nc
from ragged_cases import in_every_piece, random_series


@pytest.mark.parametrize("penalty", [1e-3, 0.5, 20.0])
def test_equals_scipy(penalty, engine):
    series = random_series(11, count=60, rows=(5, 30), channels=2, missing=0.3)
    path = nc.smoothing(series, penalty=penalty)
    asked, _ = in_every_piece(series)
    ours = torch.stack([path.evaluate(asked), path.derivative(asked), path.derivative(asked, 2)]).numpy()
    compared = 0
    for i, one in enumerate(series):
        for c, values in enumerate(one.values.numpy().T):
            seen = ~np.isnan(values)
            if seen.sum() < 5:  # scipy needs at least five
                continue
            times = one.times.numpy()[seen]
            spline = make_smoothing_spline(times, values[seen], lam=penalty)
            inside = (times[0] < asked[i].numpy()) & (asked[i].numpy() < times[-1])
            for order in range(3):
                expected = spline(asked[i].numpy()[inside], order)
                np.testing.assert_allclose(ours[order, i, inside, c], expected, rtol=1e-8, atol=1e-8)
            compared += 1
    assert compared > 80


def test_penalty_zero_is_natural_cubic(engine):
    series = random_series(2)
    smooth, natural = nc.smoothing(series, penalty=0).coefficients, nc.natural_cubic(series).coefficients
    torch.testing.assert_close(smooth, natural, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_large_penalty_is_the_line_of_least_squares(engine, dtype):
    series = random_series(4, count=1, rows=(12, 12), channels=1, missing=0.2, dtype=dtype)
    seen = series.observed[:, 0]
    slope, intercept = np.polyfit(series.times[seen].numpy(), series.values[seen, 0].double().numpy(), 1)
    line = torch.from_numpy(intercept + slope * series.times[seen].numpy()).to(dtype)
    smooth = nc.smoothing(series, penalty=1e7).evaluate(series.times[seen])[0, :, 0]
    torch.testing.assert_close(smooth, line, rtol=1e-5, atol=1e-5)


def test_two_observations_are_kept(engine):
    """Two observations are not smoothed: a straight line has no roughness."""
    series = nc.IrregularSeries.from_list([([0.0, 1.0, 2.0], [1.0, float("nan"), 5.0])])
    assert nc.smoothing(series, penalty=10.0).evaluate([0.0, 1.0, 2.0]).flatten().tolist() == [1.0, 3.0, 5.0]


def test_only_data_are_smoothed(engine):
    series = random_series(6, rows=(5, 9), missing=0.2).with_channels(counts="per_channel", start=True)
    smooth, natural = nc.smoothing(series, penalty=3.0).coefficients, nc.natural_cubic(series).coefficients
    data = torch.tensor([role == "data" for role in series.roles])
    assert torch.equal(smooth[:, :, ~data], natural[:, :, ~data])
    assert not torch.allclose(smooth[:, :, data], natural[:, :, data])


def test_keeps_the_observations():
    series = random_series(6)
    assert nc.smoothing(series, penalty=3.0).series is series


@pytest.mark.wrong_types
@pytest.mark.parametrize("penalty", [-1.0, float("nan"), float("inf"), "1", None])
def test_refuses_bad_penalties(penalty):
    with pytest.raises(ValueError, match=r"penalty must be a number in \[0, inf\), got"):
        nc.smoothing(random_series(0), penalty=penalty)


def test_refuses_times_that_need_a_gradient():
    series = nc.IrregularSeries.from_list([(torch.arange(3.0, dtype=torch.float64).requires_grad_(), [1.0, 2.0, 0.0])])
    with pytest.raises(ValueError, match="not differentiable in the times"):
        nc.smoothing(series, penalty=1.0)
