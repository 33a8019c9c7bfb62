"""The row-feature kernels: equal to plain torch, equal bits with any number of threads, checked input."""

import pytest
import torch

from neuralcde._native import kernels
from neuralcde.series.row_features import FAMILIES, in_torch
from ragged_cases import random_series


@pytest.mark.parametrize("level", kernels.supported_levels() if kernels else ["none"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-6)])
def test_equal_to_plain_torch(level, dtype, tolerance):
    series, before = random_series(3, count=30, channels=19, dtype=dtype), kernels.level()
    values = series.values.clone().requires_grad_()
    expected = in_torch(series.times, values, series.offsets, FAMILIES)
    found, gradient, to_values = torch.empty_like(expected), torch.randn_like(expected), torch.empty_like(values)
    arguments = (series.times, series.values, series.offsets, list(range(9)))
    kernels.use_level(level)
    kernels.row_features(*arguments, found, 1)
    kernels.row_features_backward(*arguments, gradient, to_values, 1)
    kernels.use_level(before)
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)
    (pulled_back,) = torch.autograd.grad(expected, values, gradient)
    torch.testing.assert_close(to_values, pulled_back, rtol=tolerance, atol=10 * tolerance)


def test_threads_give_equal_bits():
    series = random_series(4, count=900, rows=(1, 40))
    results = []
    for threads in (1, 2, 3, 64):
        found = torch.empty(len(series.values), 27, dtype=torch.float64)
        kernels.row_features(series.times, series.values, series.offsets, list(range(9)), found, threads)
        results.append(found)
    assert len(series.values) > 4 * 4096
    assert all(torch.equal(found, results[0]) for found in results)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"families": [9]}, "numbers from 0 to 8"),
        ({"families": [-1]}, "numbers from 0 to 8"),
        ({"families": [0, 1]}, "features must have shape"),
        ({"features": torch.empty(2, 1)}, "features must have shape"),
        ({"values": torch.zeros(2, 1)}, "one row for each time"),
        ({"offsets": torch.tensor([0, 2**62, 3])}, "must increase"),
        ({"offsets": torch.tensor([0])}, "end at the number of rows"),
        ({"features": torch.empty(3, 1, dtype=torch.float64)}, None),
        ({"times": torch.zeros(3)}, None),
        ({"families": ["last"]}, None),
        ({"features": torch.empty(1, 1).expand(3, 1)}, None),
    ],
)
def test_wrong_calls_raise(wrong, message):
    arguments = {
        "times": torch.arange(3, dtype=torch.float64),
        "values": torch.zeros(3, 1),
        "offsets": torch.tensor([0, 3]),
        "families": [0],
        "features": torch.empty(3, 1),
        "threads": 1,
    }
    kernels.row_features(**arguments)
    with pytest.raises(ValueError if message else TypeError, match=message):
        kernels.row_features(**(arguments | wrong))
