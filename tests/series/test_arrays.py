"""Lists of pairs and padded arrays: reading, padding, merging rows, and errors about invalid input."""

import datetime as dt

import numpy as np
import pandas as pd
import pytest
import torch

from neuralcde import IrregularSeries
from ragged_cases import random_series

nan, inf = float("nan"), float("inf")
PAIR = ([0.0, 1.0], [[1.0, 2.0], [3.0, 4.0]])


def as_pairs(series):
    return [(one.times, one.values) for one in series]


# lists ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("convert", [list, np.array, torch.tensor, pd.Series], ids=["list", "numpy", "torch", "pandas"])
def test_from_list_reads_pairs_of_any_array_type(convert):
    series = IrregularSeries.from_list(
        [(convert([0, 2]), [[1, 2], [nan, 3]]), (convert([5]), [[4, 5]])],
        ids=convert([7, 3]),
        static=[[1.0], [nan]],
        channels=["pulse", "pressure"],
        static_names=["age"],
    )
    assert series.times.tolist() == [0.0, 2.0, 5.0]
    assert series.values.nan_to_num(-1.0).tolist() == [[1.0, 2.0], [-1.0, 3.0], [4.0, 5.0]]
    assert series.offsets.tolist() == [0, 2, 3]
    assert series.static.nan_to_num(-1.0).tolist() == [[1.0], [-1.0]]
    assert series.ids.tolist() == [7, 3]
    assert series.channel_names == ("pulse", "pressure")
    assert series.static_names == ("age",)
    assert series.roles == ("data", "data")


def test_default_names_are_numbered():
    series = IrregularSeries.from_list([PAIR, PAIR], static=np.zeros((2, 2)))
    assert series.ids.tolist() == [0, 1]
    assert series.channel_names == ("x0", "x1")
    assert series.static_names == ("s0", "s1")


def test_one_channel_and_one_feature_may_be_flat():
    series = IrregularSeries.from_list([([0, 1], [5, 6])], static=[3])
    assert series.values.tolist() == [[5.0], [6.0]]
    assert series.static.tolist() == [[3.0]]


def test_any_iterable_of_pairs_is_accepted():
    assert IrregularSeries.from_list(pair for pair in [PAIR, PAIR]) == IrregularSeries.from_list([PAIR, PAIR])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_lists_survive_a_round_trip(dtype):
    series = random_series(0, dtype=dtype)
    assert IrregularSeries.from_list(as_pairs(series), ids=series.ids, dtype=dtype) == series
    assert series.dtype == dtype
    assert series.times.dtype == torch.float64


def test_masked_values_are_missing():
    values = np.ma.masked_array([[1], [2]], mask=[[False], [True]])
    assert IrregularSeries.from_list([([0, 1], values)]).values.isnan().tolist() == [[False], [True]]


def test_series_do_not_share_memory_with_their_source():
    times, values = torch.zeros(1, dtype=torch.float64), torch.zeros(1, 1)
    series = IrregularSeries.from_list([(times, values)])
    times += 1
    values += 1
    assert series.times.item() == series.values.item() == 0.0


@pytest.mark.parametrize("duplicates", ["error", "mean", "last"])
def test_gradients_reach_the_tensors_of_a_list(duplicates):
    times = torch.tensor([0.0, 1.0], requires_grad=True)
    values = torch.tensor([[1.0, nan], [2.0, 3.0]], requires_grad=True)
    static = torch.ones(1, 2, requires_grad=True)
    series = IrregularSeries.from_list([(times, values)], static=static, dtype=torch.float64, duplicates=duplicates)
    (series.times.sum() + 2 * series.values.nansum() + 3 * series.static.sum()).backward()
    assert times.grad.tolist() == [1.0, 1.0]
    assert values.grad.tolist() == [[2.0, 0.0], [2.0, 2.0]]
    assert static.grad.tolist() == [[3.0, 3.0]]


# padded arrays --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_padded_arrays_survive_a_round_trip(dtype):
    series = random_series(1, count=20, dtype=dtype)
    padded = series.to_padded()
    assert padded.values.shape == (20, int(series.lengths.max()), 3)
    assert padded.values.dtype == dtype
    assert padded.lengths.tolist() == series.lengths.tolist()
    for i, one in enumerate(series):
        assert padded.times[i, : len(one.times)].equal(one.times)
        assert padded.times[i, len(one.times) :].isnan().all()
        assert padded.values[i, len(one.times) :].isnan().all()
    assert IrregularSeries.from_padded(*padded, ids=series.ids, dtype=dtype) == series


def test_only_trailing_empty_rows_are_removed():
    block = torch.full((3, 4, 2), nan)
    block[0, 1, 1] = 5.0  # keeps rows 0 (empty, before an observation) and 1
    block[1, 3, 0] = 6.0  # keeps all rows; series 2 is never observed, and keeps one row
    series = IrregularSeries.from_padded(block)
    assert series.lengths.tolist() == [2, 4, 1]
    assert series.times.tolist() == [0.0, 1.0, 0.0, 1.0, 2.0, 3.0, 0.0]
    assert series[2].values.isnan().all()


def test_lengths_keep_trailing_empty_rows():
    block = torch.full((2, 4, 2), nan)
    assert IrregularSeries.from_padded(block, lengths=[3, 1]).lengths.tolist() == [3, 1]
    assert IrregularSeries.from_padded(block, lengths=np.array([4.0, 2.0])).lengths.tolist() == [4, 2]


def test_times_may_be_shared_or_per_series():
    block = np.ones((2, 3, 1))
    assert IrregularSeries.from_padded(block, [1, 2, 4]).times.tolist() == [1, 2, 4, 1, 2, 4]
    assert IrregularSeries.from_padded(block, [[1, 2, 4], [0, 5, 6]]).times.tolist() == [1, 2, 4, 0, 5, 6]


def test_times_of_padded_rows_are_ignored():
    series = IrregularSeries.from_padded(np.ones((2, 3, 1)), [[0, 1, nan], [0, -1, inf]], lengths=[2, 1])
    assert series.times.tolist() == [0.0, 1.0, 0.0]


def test_gradients_pass_through_padded_arrays():
    block = torch.tensor([[[1.0], [nan]], [[2.0], [3.0]]], requires_grad=True)
    times = torch.tensor([0.0, 1.0], requires_grad=True)
    padded = IrregularSeries.from_padded(block, times).to_padded()
    (padded.values.nansum() + padded.times.nansum()).backward()
    assert block.grad.flatten().tolist() == [1.0, 0.0, 1.0, 1.0]
    assert times.grad.tolist() == [2.0, 1.0]


def test_an_array_with_swapped_axes_is_refused():
    block = np.zeros((5, 3, 100))
    with pytest.raises(
        ValueError, match=r"3 steps of 100 channels.*\(series, channels, steps\). Pass values.swapaxes\(1, 2\)"
    ):
        IrregularSeries.from_padded(block)
    assert IrregularSeries.from_padded(block.swapaxes(1, 2)).channels == 3
    assert IrregularSeries.from_padded(block, times=[0, 1, 2]).channels == 100
    assert IrregularSeries.from_padded(block, lengths=[3] * 5).channels == 100
    assert IrregularSeries.from_padded(block, channels=[str(k) for k in range(100)]).channels == 100


@pytest.mark.parametrize("shape", [(100,), (5, 100)])
def test_times_of_an_array_with_swapped_axes_are_refused(shape):
    with pytest.raises(
        ValueError, match=r"times of shape \(.*expected \(3,\) or \(5, 3\).*pass values.swapaxes\(1, 2\)"
    ):
        IrregularSeries.from_padded(np.zeros((5, 3, 100)), np.zeros(shape))


def test_a_pair_with_swapped_axes_is_refused():
    with pytest.raises(
        ValueError, match=r"series 'a' has times of shape \(4,\) and values of shape \(2, 4\).*pass values.T"
    ):
        IrregularSeries.from_list([(np.arange(4), np.zeros((2, 4)))], ids=["a"])


@pytest.mark.parametrize(
    ("block", "message"),
    [
        (np.zeros((2, 3)), r"shape \(series, steps, channels\), got \(2, 3\).*pass values\[:, :, None\]"),
        (np.zeros(3), r"shape \(series, steps, channels\), got \(3,\)\.$"),
        (np.zeros((0, 3, 1)), r"\(0, 3, 1\).*hold no rows"),
        (np.zeros((2, 0, 1)), r"\(2, 0, 1\).*hold no rows"),
        (np.zeros((2, 3, 0)), "no channels; expected at least one"),
        ([[[1.0]], [[1.0], [2.0]]], "values: expected numbers .*in one array, got a list"),
    ],
)
def test_padded_arrays_of_the_wrong_shape_are_refused(block, message):
    with pytest.raises(ValueError, match=message):
        IrregularSeries.from_padded(block)


def test_times_of_the_wrong_shape_are_refused():
    with pytest.raises(
        ValueError, match=r"times of shape \(4,\) do not fit.*\(2, 3, 1\).*expected \(3,\) or \(2, 3\)\.$"
    ):
        IrregularSeries.from_padded(np.zeros((2, 3, 1)), np.arange(4))


@pytest.mark.parametrize("lengths", [[0, 1], [1, 4], [1], [[1, 1]], [1.5, 1], [nan, 1], np.full(1000, 1)])
def test_invalid_lengths_are_refused(lengths):
    with pytest.raises(
        ValueError, match=r"lengths must be 2 integers between 1 and 3 for .*\(2, 3, 1\).*, got .*"
    ) as e:
        IrregularSeries.from_padded(np.zeros((2, 3, 1)), lengths=lengths)
    assert len(str(e.value)) < 250


# invalid input --------------------------------------------------------------------------------------------------------


def test_series_of_one_row_are_accepted():
    series = IrregularSeries.from_list([([3.0], [[1.0]])])
    assert series.lengths.tolist() == [1]


@pytest.mark.parametrize("pairs", [[], ()])
def test_an_empty_list_is_refused(pairs):
    with pytest.raises(ValueError, match="pairs is empty; expected at least one"):
        IrregularSeries.from_list(pairs)


def test_a_pair_without_rows_is_refused():
    with pytest.raises(ValueError, match="series 'b' has no rows; leave it out"):
        IrregularSeries.from_list([PAIR, ([], np.zeros((0, 2)))], ids=["a", "b"])


@pytest.mark.wrong_types
@pytest.mark.parametrize("pair", ["ab", np.zeros((2, 3)), (1, 2, 3), {"times": [0.0]}])
def test_elements_that_are_not_pairs_are_refused(pair):
    with pytest.raises(TypeError, match=rf"series 1 is a {type(pair).__name__}; expected a pair \(times, values\)"):
        IrregularSeries.from_list([PAIR, pair])


@pytest.mark.parametrize(
    ("times", "values"),
    [([0, 1, 2], np.zeros((2, 1))), ([[0, 1]], np.zeros((2, 1))), (0.0, [[1.0]]), ([0.0], [[[1.0]]])],
)
def test_mismatched_shapes_are_refused(times, values):
    with pytest.raises(ValueError, match=r"series 9 has times of shape .* expected \(n,\) and \(n, channels\)"):
        IrregularSeries.from_list([(times, values)], ids=[9])


def test_different_numbers_of_channels_are_refused():
    with pytest.raises(ValueError, match="series 'b' has 3 channels, but the first series has 2; add columns of NaN"):
        IrregularSeries.from_list([PAIR, ([0], [[1.0, 2.0, 3.0]])], ids=["a", "b"])


def test_values_without_channels_are_refused():
    with pytest.raises(ValueError, match="values have no channels; expected at least one"):
        IrregularSeries.from_list([([0, 1], np.zeros((2, 0)))])


@pytest.mark.parametrize("convert", [np.array, torch.tensor])
def test_decreasing_times_are_refused(convert):
    with pytest.raises(ValueError, match=r"series 'b' goes back in time, from time=2.0 to time=1.0.*times.argsort\(\)"):
        IrregularSeries.from_list([PAIR, (convert([0.0, 2.0, 1.0]), np.zeros((3, 2)))], ids=["a", "b"])


def test_decreasing_times_are_refused_when_merging_rows():
    with pytest.raises(ValueError, match="series 0 goes back in time"):
        IrregularSeries.from_list([([0, 1, 0], np.zeros((3, 1)))], duplicates="mean")


@pytest.mark.parametrize("time", [nan, inf, -inf])
@pytest.mark.parametrize("duplicates", ["error", "mean", "last"])
def test_times_that_are_not_finite_are_refused(time, duplicates):
    with pytest.raises(ValueError, match=rf"series 'b' has a time of {time}; times must be finite. Drop"):
        IrregularSeries.from_list([PAIR, ([time], [[1.0, 2.0]])], ids=["a", "b"], duplicates=duplicates)


@pytest.mark.parametrize("duplicates", ["error", "mean", "last"])
def test_infinite_values_are_refused(duplicates):
    pair = torch.tensor([0.0, 3.5, 3.5], requires_grad=True), torch.tensor([[1.0], [-inf], [inf]], requires_grad=True)
    with pytest.raises(ValueError, match=r"series 4 has pulse=-inf at time=3.5; .*float32.*Replace infinities by NaN"):
        IrregularSeries.from_list([pair], ids=[4], channels=["pulse"], duplicates=duplicates)


@pytest.mark.parametrize("convert", [np.array, torch.tensor])
def test_values_too_large_for_float32_are_refused(convert):
    pair = ([0.0], convert([[1e39]]).astype(float) if convert is np.array else convert([[1e39]], dtype=torch.float64))
    with pytest.raises(ValueError, match=r"series 0 has x0=inf at time=0.0.*dtype=torch.float64"):
        IrregularSeries.from_list([pair])
    assert IrregularSeries.from_list([pair], dtype=torch.float64).values.item() == 1e39


def test_infinite_static_features_are_refused():
    with pytest.raises(ValueError, match=r"series 'b' has the static feature age=inf; .*float32.*NaN"):
        IrregularSeries.from_list([PAIR, PAIR], ids=["a", "b"], static=[1.0, inf], static_names=["age"])


@pytest.mark.parametrize(
    ("bad", "fix"),
    [
        (np.array([[1j]]), "real and .imag parts two channels"),
        (torch.tensor([[1j]]), "real and .imag parts two channels"),
        (np.array([[1]], dtype=np.float16), "astype"),
        (torch.ones(1, 1, dtype=torch.float16), "torch.float32"),
        (torch.ones(1, 1, dtype=torch.bfloat16), "torch.float32"),
        ([["text"]], "Convert"),
        ([[None]], "NaN for None"),
        ([[dt.datetime(2020, 1, 1)]], "astype"),
    ],
    ids=["complex", "complex tensor", "half", "half tensor", "bfloat", "text", "none", "datetime"],
)
def test_unsupported_dtypes_are_refused(bad, fix):
    message = rf"expected numbers \(booleans, integers, float32 or float64\), got dtype .*{fix}"
    with pytest.raises(TypeError, match=rf"values of series 'a': {message}"):
        IrregularSeries.from_list([([0.0], bad)], ids=["a"])
    with pytest.raises(TypeError, match=rf"times of series 'a': {message}"):
        IrregularSeries.from_list([(bad[0], [[0.0]])], ids=["a"])
    with pytest.raises(TypeError, match=f"static: {message}"):
        IrregularSeries.from_list([PAIR], static=bad)
    with pytest.raises(TypeError, match=f"values: {message}"):
        IrregularSeries.from_padded(bad)


def test_ragged_values_are_refused():
    with pytest.raises(ValueError, match=r"values of series 0: expected numbers .*in one array, got a list"):
        IrregularSeries.from_list([([0, 1], [[1.0], [1.0, 2.0]])])


@pytest.mark.parametrize(
    ("ids", "error", "message"),
    [
        (["a", 1], TypeError, r"ids mixes types \['int', 'str'\].*ids=\[str\(name\) for name in ids\]"),
        ([1, 2.5], TypeError, "ids mixes types"),
        (["a", None], ValueError, "ids has missing values; every series needs an id"),
        ([1.0, nan], ValueError, "ids has missing values"),
        (["a"], ValueError, "ids has 1 names for 2 series; give one each"),
    ],
)
def test_invalid_ids_are_refused(ids, error, message):
    with pytest.raises(error, match=message):
        IrregularSeries.from_list([PAIR, PAIR], ids=ids)


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        (np.array(["a", "b"]), ["a", "b"]),
        ([np.int64(4), 5], [4, 5]),
        ([(1, 2), (1, 3)], ["(1, 2)", "(1, 3)"]),
        ([dt.date(2020, 1, 1), dt.date(2020, 1, 2)], ["2020-01-01", "2020-01-02"]),
    ],
)
def test_ids_become_numbers_or_text(ids, expected):
    series = IrregularSeries.from_list([PAIR, PAIR], ids=ids)
    assert series.ids.tolist() == expected
    assert series.ids.shape == (2,)


@pytest.mark.parametrize("shape", [(3, 1), (2, 1, 1), ()])
def test_static_features_of_the_wrong_shape_are_refused(shape):
    with pytest.raises(ValueError, match=r"static must have shape \(2, features\), one row per series, got"):
        IrregularSeries.from_list([PAIR, PAIR], static=np.zeros(shape))


@pytest.mark.parametrize(
    ("names", "error", "message"),
    [
        ({"channels": ["a"]}, ValueError, r"channels has 1 names \['a'\] for 2 columns; give one each"),
        ({"channels": ["a", "a"]}, ValueError, "two channels are called 'a'; names must differ"),
        ({"channels": "ab"}, TypeError, r"channels must be a list of names.*write \['ab'\]"),
        ({"static_names": ["s", "t"]}, ValueError, "static_names has 2 names .* for 1 columns"),
        ({"static_names": "s"}, TypeError, r"static_names must be a list of names.*write \['s'\]"),
    ],
)
def test_invalid_names_are_refused(names, error, message):
    with pytest.raises(error, match=message):
        IrregularSeries.from_list([PAIR], static=[[1.0]], **names)


# rows at the same time ------------------------------------------------------------------------------------------------

TWICE = ([0, 1, 1, 1, 2], [[0.0, 1.0], [1.0, nan], [2.0, nan], [6.0, 5.0], [nan, nan]])


def test_rows_at_the_same_time_are_refused():
    with pytest.raises(ValueError, match=r'series 1 has two rows at time=1.0;.*duplicates="mean" or duplicates="last"'):
        IrregularSeries.from_list([PAIR, TWICE])


@pytest.mark.parametrize(("duplicates", "merged"), [("mean", [3.0, 5.0]), ("last", [6.0, 5.0])])
def test_rows_at_the_same_time_can_be_merged(duplicates, merged):
    # the last row of one series and the first row of the next have the same time and are not merged
    series = IrregularSeries.from_list([TWICE, ([2], [[7.0, 8.0]])], duplicates=duplicates)
    assert series.times.tolist() == [0.0, 1.0, 2.0, 2.0]
    assert series.offsets.tolist() == [0, 3, 4]
    assert series.values.nan_to_num(-1.0).tolist() == [[0.0, 1.0], merged, [-1.0, -1.0], [7.0, 8.0]]


def test_last_keeps_the_last_observation_of_each_channel():
    series = IrregularSeries.from_list([([0, 0], [[1.0, 2.0], [3.0, nan]])], duplicates="last")
    assert series.values.tolist() == [[3.0, 2.0]]


def test_the_mean_of_large_numbers_does_not_overflow():
    series = IrregularSeries.from_list([([0, 0], [[3e38], [1e38]])], duplicates="mean")
    assert series.values.item() == pytest.approx(2e38)


@pytest.mark.parametrize("duplicates", ["mean", "last"])
def test_merging_changes_nothing_without_repeated_times(duplicates):
    series = random_series(2, count=10)
    merged = IrregularSeries.from_list(as_pairs(series), ids=series.ids, dtype=torch.float64, duplicates=duplicates)
    assert merged == series


def test_gradients_of_merged_rows_are_right():
    values = torch.tensor([[1.0], [3.0], [nan]], requires_grad=True)
    for duplicates, expected in (("mean", [0.5, 0.5, 0.0]), ("last", [0.0, 1.0, 0.0])):
        (grad,) = torch.autograd.grad(
            IrregularSeries.from_list([([0, 0, 0], values)], duplicates=duplicates).values.sum(), values
        )
        assert grad.flatten().tolist() == expected


@pytest.mark.wrong_types
def test_unknown_values_of_duplicates_are_refused():
    with pytest.raises(ValueError, match='duplicates must be "error", "mean" or "last", got \'first\''):
        IrregularSeries.from_list([PAIR], duplicates="first")
