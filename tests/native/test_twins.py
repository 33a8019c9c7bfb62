"""Every kernel compared with its specification in plain torch, at every instruction-set level of this machine."""

import dataclasses
from importlib import import_module

import pytest
import torch

from neuralcde._native import kernels
from neuralcde.paths.cubic import cubic_pieces
from neuralcde.paths.cubic import in_torch as cubic_in_torch
from neuralcde.paths.hermite import backward_slopes
from neuralcde.paths.natural_cubic import natural_slopes
from ragged_cases import even_gaps, random_series, wild_gaps

linear = import_module("neuralcde.paths.linear")  # the functions hide the modules of the same name
smoothing = import_module("neuralcde.paths.smoothing")

SLOPES = {"natural": natural_slopes, "backward": backward_slopes}
LEVELS = kernels.supported_levels() if kernels else ["none"]


@pytest.fixture(params=LEVELS)
def level(request):
    before = kernels.level()
    kernels.use_level(request.param)
    yield request.param
    kernels.use_level(before)


@pytest.fixture(params=["ragged", "complete", "wild gaps", "many channels", "mostly missing", "single rows", "empty"])
def series(request):
    shapes = {
        "ragged": {"count": 40},
        "complete": {"count": 20, "missing": 0, "rows": (1, 25)},
        "wild gaps": {"count": 40, "gaps": wild_gaps, "rows": (2, 30)},
        "many channels": {"count": 10, "channels": 37, "gaps": even_gaps},
        "mostly missing": {"count": 40, "rows": (1, 60), "missing": 0.48},
        "single rows": {"count": 5, "rows": (1, 1)},
        "empty": {"count": 3},
    }
    drawn = random_series(51, **shapes[request.param])
    return drawn[:0] if request.param == "empty" else drawn


def close(native, twin):
    """Whether results agree to 1e-10, relative to each number or to the largest number."""
    assert native.dtype == twin.dtype
    scale = twin.abs().nan_to_num().max() if twin.numel() else 1.0
    torch.testing.assert_close(native, twin, rtol=1e-10, atol=1e-10 * float(scale), equal_nan=True)


def pulled_back(function, series):
    """Gradients of a random combination of the outputs with respect to times and values."""
    times, values = series.times.clone().requires_grad_(), series.values.clone().requires_grad_()
    result = function(dataclasses.replace(series, times=times, values=values))
    weights = torch.randn(result.shape, dtype=result.dtype, generator=torch.Generator().manual_seed(2))
    return torch.autograd.grad(result, (times, values), weights)


@pytest.mark.parametrize("kind", SLOPES)
def test_cubic(level, series, kind):
    def native(part):
        return cubic_pieces(part, kind, SLOPES[kind])

    def twin(part):
        return cubic_in_torch(part, SLOPES[kind])

    close(native(series), twin(series))
    for ours, theirs in zip(pulled_back(native, series), pulled_back(twin, series), strict=True):
        close(ours, theirs)


def test_linear(level, series):
    close(linear.linear(series).coefficients, linear.in_torch(series))


@pytest.mark.parametrize("penalty", [0.0, 0.1, 30.0])
def test_smooth(level, series, penalty):
    close(smoothing.smooth(series, penalty), smoothing.in_torch(series, penalty))


@pytest.mark.parametrize("penalty", [0.1, 30.0])
def test_smooth_is_its_own_adjoint(level, penalty):
    """<S x, y> = <x, S y> on the observations, which is why one kernel serves both passes."""
    series = random_series(52, count=10, missing=0.3)
    seen = series.observed
    y = torch.where(seen, torch.randn_like(series.values), torch.nan)
    smooth_x, smooth_y = (
        smoothing.smooth(series, penalty),
        smoothing.smooth(dataclasses.replace(series, values=y), penalty),
    )
    left, right = (smooth_x * y)[seen].sum(), (series.values * smooth_y)[seen].sum()
    torch.testing.assert_close(left, right, rtol=1e-10, atol=1e-10)


def test_float32_rounds_once(level):
    """The kernels compute in float64: the float32 result is the rounded float64 result."""
    series = random_series(53, count=30, dtype=torch.float32)
    wide = series.to(torch.float64)
    for kind, slopes in SLOPES.items():
        assert torch.equal(cubic_pieces(series, kind, slopes), cubic_pieces(wide, kind, slopes).float())
    assert torch.equal(linear.linear(series).coefficients, linear.linear(wide).coefficients.float())
    seen = series.observed
    assert torch.equal(smoothing.smooth(series, 0.3)[seen], smoothing.smooth(wide, 0.3).float()[seen])
