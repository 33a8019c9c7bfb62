"""The map through quantiles: normal scores, monotone, bounded, invertible, differentiable."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm, rankdata

from neuralcde import IrregularSeries, SeriesScaler
from neuralcde.series import scaling
from neuralcde.series.quantile_scale import BEYOND, KNOTS, LARGEST_SCORE, QuantileScale

nan = float("nan")
NUMBERS = st.floats(-1e6, 1e6).map(lambda x: 0.0 if abs(x) < 1e-100 else x) | st.integers(-3, 3).map(float)
SAMPLES = st.lists(NUMBERS, min_size=2, max_size=300).filter(lambda sample: max(sample) - min(sample) > 1e-6)


def fitted(sample):
    return QuantileScale.fit(torch.tensor(sorted(sample), dtype=torch.float64))


def skewed(size=20_000, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).lognormal(0, 1, size))


def test_a_large_sample_gets_normal_scores():
    values = skewed(100_000)
    scores, expected = fitted(values.tolist()).transform(values), norm.ppf((rankdata(values) - 0.5) / len(values))
    inner = np.abs(expected) < 2.5
    np.testing.assert_allclose(scores.numpy()[inner], expected[inner], atol=0.03)
    assert float(scores.mean()) == pytest.approx(0, abs=1e-12)
    assert float(scores.std(correction=0)) == pytest.approx(1, abs=1e-12)


def test_knots_have_the_normal_score_of_their_mid_rank():
    """Seven values, three of them tied: by hand."""
    scale = fitted([1.0, 2.0, 2.0, 2.0, 4.0, 8.0, 9.0])
    raw = norm.ppf(np.array([0.5, 2.5, 4.5, 5.5, 6.5]) / 7)
    training = raw[[0, 1, 1, 1, 2, 3, 4]]
    assert scale.knots.tolist() == [1.0, 2.0, 4.0, 8.0, 9.0]
    np.testing.assert_allclose(scale.scores, (raw - training.mean()) / training.std(), rtol=1e-12)


@given(SAMPLES)
def test_the_map_is_strictly_increasing_bounded_and_standardised(sample):
    scale, values = fitted(sample), torch.tensor(sorted(sample), dtype=torch.float64)
    assert 2 <= len(scale.knots) <= KNOTS
    assert bool((scale.knots.diff() > 0).all())
    assert bool((scale.scores.diff() > 0).all())
    assert (scale.knots[0], scale.knots[-1]) == (values[0], values[-1])
    reach = float(values[-1] - values[0])
    outside = reach * torch.logspace(-6, 12, 40, dtype=torch.float64)
    line = torch.cat([values[0] - outside.flip(0), values, values[-1] + outside])
    scores = scale.transform(line)
    assert bool((scores.diff() >= -1e-12).all())
    assert scores[0] == pytest.approx(scale.scores[0] - BEYOND)
    assert scores[-1] == pytest.approx(scale.scores[-1] + BEYOND)
    assert scores.abs().max() <= LARGEST_SCORE + BEYOND + 1e-9
    training = scale.transform(values)
    assert float(training.mean()) == pytest.approx(0, abs=1e-9)
    assert float(training.std(correction=0)) <= 1 + 1e-9


@given(SAMPLES)
def test_values_inside_the_training_range_are_recovered(sample):
    scale = fitted(sample)
    inside = torch.linspace(float(scale.knots[0]), float(scale.knots[-1]), 200, dtype=torch.float64)
    inside = torch.cat([inside, scale.knots])
    back = scale.inverse(scale.transform(inside))
    # a rounding error of the score grows with the slope of the inverse
    slope = float((scale.knots.diff() / scale.scores.diff()).max())
    np.testing.assert_allclose(back, inside, atol=1e-13 * slope, rtol=1e-12)


def test_values_a_little_outside_are_recovered_and_lost_ones_are_finite():
    values = skewed()
    scale = fitted(values.tolist())
    low, high = float(values.min()), float(values.max())
    near = torch.tensor([low - 0.001, high + 5, high + 60], dtype=torch.float64)
    np.testing.assert_allclose(scale.inverse(scale.transform(near)), near, rtol=1e-9)
    far = scale.inverse(scale.transform(torch.tensor([-1e30, 1e30], dtype=torch.float64)))
    assert bool(far.isfinite().all())
    assert far[0] < low - 0.001
    assert far[1] > high + 60


def test_an_extreme_training_value_does_not_flatten_the_tail():
    values = torch.cat([skewed(), torch.tensor([1e9], dtype=torch.float64)])
    before, after = fitted(values[:-1].tolist()), fitted(values.tolist())
    for share in (0.5, 0.95, 0.99, 0.997):
        x = values.quantile(share).reshape(1)
        assert float(after.transform(x)) == pytest.approx(float(before.transform(x)), abs=0.02)
    assert float(after.transform(torch.tensor([1e9], dtype=torch.float64))) < 4


@pytest.mark.parametrize("sample", [[5.0, 7.0], [1.0] * 99 + [2.0], [0.0] * 100_000 + [1.0], [0.0, 0.0, 1.0, 1.0]])
def test_two_different_values_are_enough(sample):
    scale = fitted(sample)
    low, high = scale.transform(torch.tensor([min(sample), max(sample)], dtype=torch.float64)).tolist()
    assert low < high <= LARGEST_SCORE
    if len(sample) < 100:
        assert (low, high) == pytest.approx((-1.0, 1.0))


@pytest.mark.parametrize("sample", [[], [3.0], [3.0, 3.0, 3.0]])
def test_fewer_different_values_give_no_map(sample):
    assert fitted(sample) is None


def test_the_gradient_is_that_of_the_map():
    scale = fitted(skewed(500).tolist())
    middle = (scale.knots[1:] + scale.knots[:-1])[::7] / 2
    x = torch.cat([middle, scale.knots[-1:] + 3, scale.knots[:1] - 0.01]).requires_grad_()
    assert torch.autograd.gradcheck(scale.transform, x)
    assert torch.autograd.gradcheck(scale.inverse, scale.transform(x).detach().requires_grad_())
    ends = scale.knots[[0, -1]].clone().requires_grad_()
    scale.transform(ends).sum().backward()
    slopes = (scale.scores.diff() / scale.knots.diff())[[0, -1]]
    torch.testing.assert_close(ends.grad, slopes)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("few", [scaling.FEW_VALUES, 0], ids=["columns at once", "one by one"])
def test_the_scaler_maps_each_channel_keeps_nan_and_the_dtype(dtype, few, monkeypatch):
    monkeypatch.setattr(scaling, "FEW_VALUES", few)
    rng = np.random.default_rng(1)
    values = np.stack([rng.lognormal(0, 1, 400), rng.normal(40, 2, 400), np.full(400, 7.0), np.full(400, nan)], 1)
    values[rng.random(values.shape) < 0.4] = nan
    static = np.stack([np.arange(40.0) ** 3, np.ones(40)], 1)
    series = IrregularSeries.from_padded(values.reshape(40, 10, 4), static=static, dtype=dtype)
    scaler = SeriesScaler("robust").fit(series)
    scaled, plain = scaler.transform(series), SeriesScaler().fit_transform(series)
    assert scaled.dtype == scaled.static.dtype == dtype
    assert scaled.values.isnan().equal(series.values.isnan())
    for k in (0, 1):
        column = series.values[:, k]
        column = column[~column.isnan()]
        expected = fitted(column.double().tolist()).transform(column)
        assert scaled.values[:, k][~series.values[:, k].isnan()].equal(expected)
    assert scaled.values[:, 2].nan_to_num().equal(torch.zeros_like(scaled.values[:, 2]))
    assert scaled.times.equal(plain.times)
    assert scaled.scales == plain.scales
    assert float(scaled.static[:, 0].double().std(correction=0)) == pytest.approx(1, abs=1e-6)
    assert not scaled.static[:, 0].allclose(plain.static[:, 0], atol=0.1)
    assert scaled.static[:, 1].tolist() == [0.0] * 40


def test_gradients_reach_the_values_of_series():
    series = IrregularSeries.from_list([([0, 1, 2, 3], [[1.0], [nan], [3.0], [8.0]])], dtype=torch.float64)
    scaler = SeriesScaler("robust").fit(series)
    values = torch.tensor([[2.0], [nan], [5.0], [20.0]], dtype=torch.float64, requires_grad=True)
    scaled = scaler.transform(dataclasses.replace(series, values=values)).values
    scaled[~scaled.isnan()].sum().backward()
    assert bool((values.grad[[0, 2, 3]] > 0).all())
    assert values.grad[1].item() == 0
