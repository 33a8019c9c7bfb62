"""Gradients of every scheme with respect to values, observation times (where supported) and evaluation times."""

import dataclasses

import pytest
import torch

import neuralcde as nc
from neuralcde._native import kernels
from neuralcde.paths.smoothing import _Smooth
from ragged_cases import NAN, SCHEMES, random_series

IN_TIMES = ["natural_cubic", "hermite", "hermite-forward", "linear"]


def ragged_with_gaps():
    """A complete channel, gaps inside and at both ends, a channel never observed, one observed once, a single row."""
    x = torch.randn(9, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    x[1:3, 1] = x[0, 2] = x[4, 2] = x[:, 3] = NAN
    x[7, 0] = x[5:7, 1] = x[8, 2] = NAN
    x[2, 3] = 1.0
    times = torch.tensor([0.0, 0.7, 1.1, 2.0, 2.2, 5.0, 6.0, 6.5, 8.0], dtype=torch.float64)
    template = random_series(0, count=3, channels=4)
    return dataclasses.replace(template, times=times, values=x, offsets=torch.tensor([0, 5, 8, 9]))


def inside(series):
    """Times inside the pieces of the first two series."""
    low, high = series.times[series.offsets[:2]], series.times[series.offsets[1:3] - 1]
    return torch.stack([low.lerp(high, place) for place in (0.03, 0.31, 0.44, 0.77, 0.95)], dim=1)


@pytest.fixture
def gradcheck(engine):
    """torch's gradcheck, with full Jacobians for the kernels and in fast mode for plain torch."""

    def check(function, *inputs):
        torch.manual_seed(0)
        options = {"eps": 1e-6, "atol": 1e-7, "rtol": 1e-5, "nondet_tol": 0.0, "fast_mode": engine == "torch"}
        assert torch.autograd.gradcheck(function, inputs, **options)

    return check


def test_in_the_values(build, gradcheck):
    series = ragged_with_gaps()
    seen = series.observed

    def coefficients(observations):
        values = series.values.masked_scatter(seen, observations)
        return build(dataclasses.replace(series, values=values)).coefficients

    gradcheck(coefficients, series.values[seen].requires_grad_())


@pytest.mark.parametrize("name", IN_TIMES)
def test_in_the_times_and_values(name, gradcheck):
    """Gradients flow through the coefficients, the durations, and the position of a time within its piece."""
    series = ragged_with_gaps()
    seen, asked = series.observed, inside(series)

    def everything(times, observations):
        values = series.values.masked_scatter(seen, observations)
        path = SCHEMES[name](dataclasses.replace(series, times=times, values=values))
        return path.coefficients, path.durations, path[:2].evaluate(asked), path[:2].derivative(asked)

    gradcheck(everything, series.times.clone().requires_grad_(), series.values[seen].requires_grad_())


def test_unobserved_values_get_zero_and_nothing_gets_nan(build):
    series = ragged_with_gaps()
    leaf = series.values.clone().requires_grad_()
    path = build(dataclasses.replace(series, values=leaf))
    asked = inside(series)
    parts = path.coefficients, path[:2].evaluate(asked), path[:2].derivative(asked)
    sum(part.square().sum() for part in parts).backward()
    assert leaf.grad.isfinite().all()
    assert not torch.any(leaf.grad[~series.observed])
    assert torch.all(leaf.grad[series.observed] != 0)


def test_float32_gradients_are_close_to_float64(build):
    gradients = []
    for dtype in (torch.float32, torch.float64):
        series = random_series(41, count=20, rows=(1, 20), dtype=torch.float32).to(dtype)
        leaf = series.values.clone().requires_grad_()
        build(dataclasses.replace(series, values=leaf)).coefficients.square().sum().backward()
        assert leaf.grad.dtype == dtype
        gradients.append(leaf.grad.double())
    scale = gradients[1].abs().max()
    torch.testing.assert_close(gradients[0] / scale, gradients[1] / scale, rtol=0, atol=1e-6)


def test_in_the_times_asked(build, gradcheck):
    path = build(ragged_with_gaps())[:2]
    gradcheck(lambda t: (path.evaluate(t), path.derivative(t)), inside(ragged_with_gaps()).requires_grad_())


def test_gradients_pass_through_slices_and_dtypes(build):
    series = ragged_with_gaps()
    leaf = series.values.clone().requires_grad_()
    path = build(dataclasses.replace(series, values=leaf))
    path[0].to(torch.float32).coefficients.sum().backward()
    assert torch.any(leaf.grad[:5])
    assert not torch.any(leaf.grad[5:])


@pytest.mark.parametrize("scheme", [nc.natural_cubic, nc.hermite])
def test_a_native_gradient_differentiated_again_says_so(scheme):
    """The kernels support first derivatives only; second derivatives raise and are never silently zero."""
    if kernels is None:
        pytest.skip("plain torch differentiates twice")
    values = torch.randn(5, 2, dtype=torch.float64, requires_grad=True)
    series = nc.IrregularSeries.from_list([(torch.arange(5.0).double(), values)])
    (gradient,) = torch.autograd.grad(scheme(series).coefficients.square().sum(), values, create_graph=True)
    with pytest.raises(RuntimeError, match="cannot be differentiated twice; set NEURALCDE_ISA=none"):
        gradient.sum().backward()


def test_smoothing_has_second_derivatives():
    """Smoothing is linear and symmetric, so its backward pass is smoothing again; the series has missing values."""
    series = random_series(3, count=2, channels=2)

    def smooth(values):
        return _Smooth.apply(torch.where(series.observed, values, NAN), series, 0.5)[series.observed]

    values = torch.randn_like(series.values, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda v: smooth(v).square(), (values,))
