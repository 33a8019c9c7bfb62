"""Added channels equal a plain loop: time, observational intensity, and time multiplied by the first value."""

import numpy as np
import pytest
import torch

from neuralcde import IrregularSeries, SeriesScaler
from ragged_cases import random_series

nan = float("nan")
ALL = {"time": True, "counts": "per_channel", "start": True}


def reference(times, values, *, counts):
    """Time, counts and t x0 of one series, row by row."""
    first = [0.0 if np.isnan(x) else x for x in values[0]]
    each, any_ = [0] * len(first), 0
    rows = []
    for time, row in zip(times, values, strict=True):
        seen = [not np.isnan(x) for x in row]
        each = [count + new for count, new in zip(each, seen, strict=True)]
        any_ += any(seen)
        since = time - times[0]
        rows.append([since, *([any_] if counts == "shared" else each), *(since * x for x in first), *row])
    return rows


@pytest.mark.parametrize("counts", ["shared", "per_channel"])
@pytest.mark.parametrize("seed", range(3))
def test_added_channels_equal_a_plain_loop(counts, seed):
    series = random_series(seed, missing=0.45)
    found = series.with_channels(counts=counts, start=True)
    expected = [row for one in series for row in reference(one.times.tolist(), one.values.tolist(), counts=counts)]
    torch.testing.assert_close(found.values, torch.tensor(expected, dtype=torch.float64), equal_nan=True)
    assert series.observed.any(1).logical_not().any(), "some rows hold nothing"


def test_added_channels_come_first_with_names_and_roles():
    series = IrregularSeries.from_list([([0, 1], [[1.0, 2.0], [3.0, nan]])], channels=["a", "b"])
    full = series.with_channels(**ALL)
    assert full.channel_names == ("time", "count of a", "count of b", "time x first a", "time x first b", "a", "b")
    assert full.roles == ("time", "count", "count", "start", "start", "data", "data")
    shared = series.with_channels(counts="shared")
    assert shared.channel_names == ("time", "count", "a", "b")
    assert shared.roles == ("time", "count", "data", "data")


def test_only_time_is_added_by_default():
    series = random_series(0)
    added = series.with_channels()
    assert added.roles == ("time", "data", "data", "data")
    torch.testing.assert_close(added.values[:, 1:], series.values, rtol=0, atol=0, equal_nan=True)
    assert added.times is series.times


def test_nothing_is_added_when_everything_is_off():
    series = random_series(0)
    assert series.with_channels(time=False) == series
    assert series.with_channels(time=False, counts="shared").roles == ("count", "data", "data", "data")


def test_rows_without_any_observation_do_not_count():
    series = IrregularSeries.from_padded([[[nan, nan], [1.0, nan], [nan, nan], [2.0, 3.0]]])
    assert series.with_channels(time=False, counts="shared").values[:, 0].tolist() == [0, 1, 1, 2]
    each = series.with_channels(time=False, counts="per_channel").values[:, :2]
    assert each.tolist() == [[0, 0], [1, 0], [1, 0], [2, 1]]


def test_start_is_zero_where_the_first_row_is_not_observed():
    series = IrregularSeries.from_list([([1, 3], [[nan, 2.0], [5.0, nan]])])
    assert series.with_channels(time=False, start=True).values[:, :2].tolist() == [[0.0, 0.0], [0.0, 4.0]]


def test_unix_seconds_keep_their_digits_in_single_precision():
    times = 1_700_000_000 + np.array([0.0, 0.125, 7.5, 86400.25])
    series = IrregularSeries.from_list([(times, np.ones((4, 1)))], dtype=torch.float32)
    assert series.with_channels().values[:, 0].tolist() == [0.0, 0.125, 7.5, 86400.25]
    scaled = SeriesScaler().fit(series).transform(series).with_channels().values[:, 0].double()
    np.testing.assert_allclose(scaled / scaled[-1], (times - times[0]) / 86400.25, rtol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_dtype_is_kept(dtype):
    assert random_series(0, dtype=dtype).with_channels(**ALL).values.dtype == dtype


def test_adding_commutes_with_slicing():
    series = random_series(4)
    assert series.with_channels(**ALL)[[3, 1]] == series[[3, 1]].with_channels(**ALL)


def test_gradients_of_time_and_start_are_right():
    times = torch.tensor([0.0, 2.0, 3.0], dtype=torch.float64, requires_grad=True)
    values = torch.tensor([[5.0], [nan], [1.0]], dtype=torch.float64, requires_grad=True)
    series = IrregularSeries.from_list([(times, values)], dtype=torch.float64).with_channels(start=True)
    series.values[:, :2].sum().backward()
    assert values.grad.flatten().tolist() == [5.0, 0.0, 0.0]  # the sum of the times for the first value
    assert times.grad.tolist() == [-12.0, 6.0, 6.0]  # 1 + x0 per later row, and their negative sum for the first


def test_a_second_call_is_refused():
    with pytest.raises(ValueError, match=r"added channels already: .*'time'.*Call with_channels once"):
        random_series(0).with_channels().with_channels(counts="shared")


@pytest.mark.wrong_types
def test_unknown_values_of_counts_are_refused():
    with pytest.raises(ValueError, match=r'counts must be None, "shared" or "per_channel", got \'each\''):
        random_series(0).with_channels(counts="each")
