"""Row features compared with a loop in plain Python, their gradients, and what they must not depend on."""

import math
import statistics

import pytest
import torch

from neuralcde._native import kernels
from neuralcde.series import row_features as module
from neuralcde.series.row_features import FAMILIES, INTENSITY_FAMILIES, row_features
from ragged_cases import random_series

DIFFERENTIABLE = [name for name in FAMILIES if name not in INTENSITY_FAMILIES]


@pytest.fixture(params=["native", "torch"], autouse=True)
def engine(request, monkeypatch):
    """Run every test with the native kernel and in plain torch."""
    if request.param == "torch":
        monkeypatch.setattr(module, "kernels", None)
    elif kernels is None:
        pytest.skip("the native kernels were not built or are turned off")


def naive(times, values, offsets, families):
    """One channel of one row at a time."""
    rows = []
    for start, stop in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
        for row in range(start, stop):
            by_family = {name: [] for name in families}
            for channel in range(values.shape[1]):
                seen = [r for r in range(start, row + 1) if not math.isnan(values[r, channel])]
                x = [float(values[r, channel]) for r in seen]
                since = float(times[row] - times[seen[-1] if seen else start])
                found = {
                    "last": x[-1] if x else 0.0,
                    "mean": statistics.fmean(x) if x else 0.0,
                    "deviation": statistics.pstdev(x) if len(x) > 1 else 0.0,
                    "minimum": min(x, default=0.0),
                    "maximum": max(x, default=0.0),
                    "observed": float(row in seen),
                    "seen": float(bool(seen)),
                    "count": math.log(1 + len(x)),
                    "elapsed": math.log(1 + since),
                }
                for name in families:
                    by_family[name].append(found[name])
            rows.append([x for name in families for x in by_family[name]])
    return torch.tensor(rows, dtype=torch.float64).reshape(len(values), len(families) * values.shape[1])


def features(series, families=FAMILIES):
    return row_features(series.times, series.values, series.offsets, families)


@pytest.mark.parametrize("families", [FAMILIES, FAMILIES[::-1], *[(name,) for name in FAMILIES], ()])
@pytest.mark.parametrize("shape", [{}, {"count": 20, "missing": 0.48}, {"rows": (1, 1)}, {"start": 1.7e9}])
def test_equal_to_a_loop(families, shape):
    series = random_series(5, **shape)
    expected = naive(series.times, series.values, series.offsets, families)
    torch.testing.assert_close(features(series, families), expected, rtol=1e-12, atol=1e-12)


def test_float32_keeps_its_dtype():
    series = random_series(6, dtype=torch.float32)
    found = features(series)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, features(series.to(torch.float64)).float(), rtol=1e-6, atol=1e-6)


def test_a_large_mean_does_not_spoil_the_deviation():
    times, offsets = torch.arange(4, dtype=torch.float64), torch.tensor([0, 4])
    values = 1e8 + torch.tensor([[0.0], [0.5], [1.0], [0.5]], dtype=torch.float64)
    found = row_features(times, values, offsets, ["deviation"]).flatten()
    expected = torch.tensor([0.0, 0.25, math.sqrt(1 / 6), math.sqrt(1 / 8)], dtype=torch.float64)
    torch.testing.assert_close(found, expected, rtol=1e-7, atol=0)


@pytest.mark.parametrize("family", DIFFERENTIABLE)
def test_gradients(family):
    series = random_series(7, count=4, rows=(1, 7), channels=2)
    seen = series.observed

    def from_observations(x):
        values = torch.full_like(series.values, torch.nan).masked_scatter(seen, x)
        return row_features(series.times, values, series.offsets, [family])

    assert torch.autograd.gradcheck(from_observations, series.values[seen].clone().requires_grad_())


def test_gradients_at_ties_and_without_deviation():
    times, offsets = torch.arange(3, dtype=torch.float64), torch.tensor([0, 3])
    for family, expected in (("minimum", [3.0, 0, 0]), ("maximum", [3.0, 0, 0]), ("deviation", [0.0, 0, 0])):
        values = torch.full((3, 1), 2.0, dtype=torch.float64, requires_grad=True)
        row_features(times, values, offsets, [family]).sum().backward()
        assert values.grad.flatten().tolist() == expected


def test_missing_values_get_no_gradient():
    series = random_series(8)
    values = series.values.clone().requires_grad_()
    row_features(series.times, values, series.offsets, FAMILIES).sum().backward()
    assert torch.equal(values.grad[~series.observed], torch.zeros_like(values)[~series.observed])
    assert values.grad.isfinite().all()


def test_later_rows_change_nothing_earlier():
    series = random_series(9, count=1, rows=(12, 12))
    before = features(series)
    for cut in range(1, 12):
        values = series.values.clone()
        values[cut:] = 1e6 * torch.randn_like(values[cut:])
        times = torch.cat([series.times[:cut], series.times[cut:] + 5])
        after = row_features(times, values, series.offsets, FAMILIES)
        assert torch.equal(after[:cut], before[:cut])
        assert not torch.equal(after[cut:], before[cut:])


def test_a_series_does_not_depend_on_its_batch():
    series = random_series(10, count=9)
    alone = torch.cat([features(one) for one in series])
    assert torch.equal(alone, features(series))


def test_empty_batches():
    series = random_series(11)[:0]
    assert features(series).shape == (0, 27)
    assert features(series, ()).shape == (0, 0)
    no_channels = row_features(torch.zeros(2, dtype=torch.float64), torch.zeros(2, 0), torch.tensor([0, 2]), FAMILIES)
    assert no_channels.shape == (2, 0)


@pytest.mark.parametrize(
    ("families", "message"),
    [(["last", "median"], "unknown name 'median'"), (["last", "mean", "last"], "has 'last' twice"), ("last", "a list")],
)
def test_wrong_families_are_refused(families, message):
    with pytest.raises(ValueError, match=message) as caught:
        features(random_series(12), families)
    assert all(name in str(caught.value) for name in FAMILIES)
