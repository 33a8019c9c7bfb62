"""IrregularSeries: slicing, concat, equality, repr, dtypes and devices, and use in scikit-learn."""

import copy
import dataclasses
import datetime as dt
import pickle
from itertools import pairwise

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.utils import resample

from neuralcde import IrregularSeries, SeriesScaler
from ragged_cases import random_series

nan = float("nan")
SERIES = dataclasses.replace(
    random_series(0, count=6),
    static=torch.tensor([[i, nan] for i in range(6)], dtype=torch.float64),
    static_names=("a", "b"),
)


def parts_of(series):
    """Every series as plain lists, the reference for slicing."""
    offsets = series.offsets.tolist()
    return [
        (id, series.times[i:j].tolist(), series.values[i:j].nan_to_num(-9.0).tolist(), static.nan_to_num(-9.0).tolist())
        for id, i, j, static in zip(series.ids.tolist(), offsets[:-1], offsets[1:], series.static, strict=True)
    ]


# slicing --------------------------------------------------------------------------------------------------------------

CHOICES = {
    "int": (2, [2]),
    "negative int": (-1, [5]),
    "numpy int": (np.int64(3), [3]),
    "array of no dimension": (np.array(3), [3]),
    "tensor of no dimension": (torch.tensor(-2), [4]),
    "slice": (slice(1, 4), [1, 2, 3]),
    "open slice": (slice(None), [0, 1, 2, 3, 4, 5]),
    "slice from the end": (slice(-2, None), [4, 5]),
    "slice beyond the end": (slice(4, 99), [4, 5]),
    "step": (slice(0, 6, 2), [0, 2, 4]),
    "backwards": (slice(None, None, -1), [5, 4, 3, 2, 1, 0]),
    "empty slice": (slice(3, 3), []),
    "slice the wrong way": (slice(4, 2), []),
    "empty step": (slice(4, 2, 3), []),
    "list": ([4, 0], [4, 0]),
    "negative list": ([-1, 0], [5, 0]),
    "repeated": ([1, 1, 1], [1, 1, 1]),
    "empty list": ([], []),
    "array": (np.array([3, 1]), [3, 1]),
    "small unsigned array": (np.array([3, 1], dtype=np.uint8), [3, 1]),
    "tensor": (torch.tensor([0, 5]), [0, 5]),
    "range": (range(2, 5), [2, 3, 4]),
    "mask": (np.arange(6) % 2 == 1, [1, 3, 5]),
    "mask of bools": ([True, False, False, False, False, True], [0, 5]),
    "mask tensor": (torch.arange(6) > 3, [4, 5]),
    "empty mask": (np.zeros(6, dtype=bool), []),
    "with ellipsis": ((np.array([2, 0]), ...), [2, 0]),
    "int with ellipsis": ((1, ...), [1]),
}


@pytest.mark.parametrize("index", CHOICES)
def test_every_kind_of_index_selects_the_right_series(index):
    chosen, expected = CHOICES[index]
    part, whole = SERIES[chosen], parts_of(SERIES)
    assert isinstance(part, IrregularSeries)
    assert parts_of(part) == [whole[i] for i in expected]
    assert len(part) == len(expected)
    assert part.shape == (len(expected),)
    assert part.offsets.dtype == torch.int64
    assert (part.channel_names, part.static_names) == (SERIES.channel_names, SERIES.static_names)


def test_iteration_gives_series_of_length_one():
    assert [parts_of(one) for one in SERIES] == [[part] for part in parts_of(SERIES)]


@pytest.mark.wrong_types
@pytest.mark.parametrize(
    ("index", "message"),
    [
        (6, "index 6 is out of range for 6 series"),
        (-7, "index -7 is out of range for 6 series"),
        ([0, 6], r"out of range for 6 series: 0 \.\. 6"),
        ([-7], r"out of range for 6 series: -7 \.\. -7"),
        ([True, False], r"mask of shape \(2,\) does not fit 6 series; expected \(6,\)"),
        (True, r"mask of shape \(\) does not fit 6 series"),
        (1.0, "cannot index series with float"),
        ([0.0, 1.0], "dtype float64.*use an int, a slice, a list of positions or a boolean mask"),
        ([[0, 1]], r"shape \(1, 2\).*use an int"),
        (None, "cannot index series with NoneType"),
        ("s0", r"cannot index series with str .*for an id, series\[series.ids == id\]"),
        ((0, 1), r"one axis: use series\[index\]"),
        ((..., 0), r"one axis: use series\[index\]"),
        ((0, ..., 0), r"one axis: use series\[index\]"),
    ],
)
def test_invalid_indices_are_refused(index, message):
    with pytest.raises(IndexError, match=message):
        SERIES[index]


def test_series_can_be_selected_by_id():
    assert SERIES[SERIES.ids == "s3"] == SERIES[3]


def test_an_empty_container_can_be_used():
    none = SERIES[:0]
    assert none.values.shape == (0, 3)
    assert none.static.shape == (0, 2)
    assert none.offsets.tolist() == [0]
    assert none.to_padded().values.shape == (0, 0, 3)
    assert none.with_channels(counts="per_channel", start=True).channels == 10
    assert list(none) == []
    assert parts_of(none[[]]) == []


def test_slicing_keeps_gradients():
    values = torch.ones(3, 1, requires_grad=True)
    series = IrregularSeries.from_list([([0, 1, 2], values), ([0], [[5.0]])])
    series[[0, 0, 1]].values.sum().backward()
    assert values.grad.flatten().tolist() == [2.0, 2.0, 2.0]


@st.composite
def ragged(draw):
    """Up to eight series of up to five rows and two channels, some values missing."""
    lengths = draw(st.lists(st.integers(1, 5), max_size=8))
    values = np.random.default_rng(len(lengths)).choice([nan, 1.0, 2.0, 3.0], (sum(lengths) + 1, 2))
    rows = np.split(np.arange(sum(lengths) + 1), np.cumsum(lengths))
    pairs = [
        (own + 0.5, values[own]) for own in rows
    ]  # from_list needs at least one series, so the last is added and then removed
    return IrregularSeries.from_list(pairs, static=np.arange(len(pairs)))[:-1]


@settings(max_examples=50)
@given(ragged(), st.data())
def test_concatenated_slices_equal_the_whole(series, data):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(series)), max_size=3)))
    bounds = [0, *cuts, len(series)]
    parts = [series[i:j] for i, j in pairwise(bounds)]
    assert IrregularSeries.concat(parts) == series


@settings(max_examples=50)
@given(ragged(), st.data())
def test_slicing_equals_a_loop_over_series(series, data):
    anywhere = st.slices(len(series))
    if len(series):
        anywhere |= st.lists(st.integers(-len(series), len(series) - 1))
        anywhere |= st.lists(st.booleans(), min_size=len(series), max_size=len(series))
    index = data.draw(anywhere)
    whole = parts_of(series)
    assert parts_of(series[index]) == [whole[i] for i in np.arange(len(series))[index]]


# concat ---------------------------------------------------------------------------------------------------------------


def test_concat_joins_series():
    joined = IrregularSeries.concat([SERIES[4:], SERIES[:2], SERIES[2:2], SERIES[4]])
    assert parts_of(joined) == [parts_of(SERIES)[i] for i in (4, 5, 0, 1, 4)]
    assert IrregularSeries.concat(iter(SERIES)) == SERIES


def test_concat_of_nothing_is_refused():
    with pytest.raises(ValueError, match="parts is empty; concat needs at least one"):
        IrregularSeries.concat([])


def test_concat_of_other_types_is_refused():
    with pytest.raises(TypeError, match=r"parts\[1\] is a int; expected IrregularSeries"):
        IrregularSeries.concat([SERIES, 3])


ONE = IrregularSeries.from_list([([0], [[1.0]])])


@pytest.mark.parametrize(
    ("other", "field"),
    [
        (IrregularSeries.from_list([([0], [[1.0]])], channels=["y"]), "channel_names"),
        (IrregularSeries.from_list([([0], [[1.0]])], static=[[1.0]]), "static_names"),
        (SeriesScaler().fit(ONE).transform(ONE), "scales"),
        (IrregularSeries.from_list([([0], [[1.0]])], dtype=torch.float64), "dtype"),
        (dataclasses.replace(ONE, roles=("time",)), "roles"),
    ],
)
def test_concat_of_incompatible_series_is_refused(other, field):
    with pytest.raises(ValueError, match=rf"parts\[1\] has {field} .*, but parts\[0\] has .*make them agree"):
        IrregularSeries.concat([ONE, other])


def test_concat_of_ids_of_different_types_is_refused():
    with pytest.raises(TypeError, match=r"parts\[1\] has ids like 'a', but parts\[0\] like 0; make them"):
        IrregularSeries.concat([ONE, IrregularSeries.from_list([([0], [[1.0]])], ids=["a"])])


# equality, repr, frozen -----------------------------------------------------------------------------------------------


def test_equal_content_means_equality():
    pairs = [([0, 1], [[1.0, nan], [2.0, 3.0]])]
    series = IrregularSeries.from_list(pairs, static=[[nan]])
    assert series == IrregularSeries.from_list(pairs, static=[[nan]])
    assert series == copy.deepcopy(series)
    assert series == pickle.loads(pickle.dumps(series))
    assert series != pairs
    assert series != series[:0]
    assert series != series[[0, 0]]
    assert series != series.to(torch.float64)
    assert series != series.with_channels()


@pytest.mark.parametrize(
    "change",
    [
        {"times": torch.tensor([0.0, 2.0], dtype=torch.float64)},
        {"values": torch.tensor([[1.0, nan], [2.0, nan]])},
        {"values": torch.tensor([[1.0, 0.0], [2.0, 3.0]])},
        {"static": torch.tensor([[1.0]])},
        {"ids": np.array([1])},
        {"ids": np.array(["0"], dtype=object)},
        {"channel_names": ("x0", "y")},
        {"static_names": ("t",)},
    ],
)
def test_any_difference_means_inequality(change):
    series = IrregularSeries.from_list([([0, 1], [[1.0, nan], [2.0, 3.0]])], static=[[nan]])
    assert series != dataclasses.replace(series, **change)


def test_the_same_rows_divided_differently_are_not_equal():
    whole = IrregularSeries.from_list([([0, 1, 2], [[1.0]] * 3), ([3], [[1.0]])])
    other = IrregularSeries.from_list([([0], [[1.0]]), ([1, 2, 3], [[1.0]] * 3)])
    assert whole != other


def test_series_are_not_hashable():
    with pytest.raises(TypeError, match="unhashable"):
        hash(SERIES)


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(IrregularSeries)])
def test_attributes_cannot_be_set(field):
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(SERIES, field, None)


def test_repr_is_short_and_useful():
    big = IrregularSeries.from_padded(np.ones((1200, 2, 50)), times=[1.7e9, 1.7e9 + 3600], static=np.ones((1200, 3)))
    assert repr(big) == (
        "IrregularSeries(1,200 series, 2,400 rows, 50 channels: 'x0', 'x1', 'x2', 'x3', ..., 3 static features; "
        "lengths 2 .. 2, times 1.7e+09 .. 1.7e+09, 100 % observed, float32)"
    )
    assert repr(big[:0]) == "IrregularSeries(0 series, 50 channels)"
    assert ", 1 static feature; " in repr(IrregularSeries.from_padded(np.ones((2, 2, 1)), static=np.ones((2, 1))))


def test_repr_shows_dates():
    frame = {"id": ["a", "a"], "at": [dt.datetime(2026, 1, 1, 12), dt.datetime(2026, 1, 31)], "x": [1.0, 2.0]}
    series = IrregularSeries.from_long(pl.DataFrame(frame), id="id", time="at")
    assert "times 2026-01-01 12:00 .. 2026-01-31, 100 %" in repr(series)
    scaled = SeriesScaler().fit(series).transform(series)
    assert "times 2026" not in repr(scaled)  # scaled times count gaps


def test_repr_works_with_gradients():
    times, values = torch.arange(2.0, requires_grad=True), torch.ones(2, 1, requires_grad=True)
    assert "times 0 .. 1, 100 % observed" in repr(IrregularSeries.from_list([(times, values)]))


# types and devices ----------------------------------------------------------------------------------------------------


def test_to_changes_the_dtype_of_values_but_not_of_times():
    single = SERIES.to(torch.float32)
    assert single.dtype == single.values.dtype == single.static.dtype == torch.float32
    assert single.times.dtype == torch.float64
    assert single.to(torch.float64).values.allclose(SERIES.values, atol=1e-6, equal_nan=True)
    with pytest.raises(TypeError, match=r"dtype must be torch.float32 or torch.float64, got torch.int64"):
        SERIES.to(torch.int64)


@pytest.mark.parametrize("device", ["cpu", torch.device("cpu")])
def test_to_the_same_device_changes_nothing(device):
    assert SERIES.to(device) == SERIES
    assert SERIES.to(device).device == torch.device("cpu")


def test_to_another_device_moves_every_tensor():
    moved = SERIES.to("meta")
    assert {getattr(moved, name).device.type for name in ("times", "values", "offsets", "static")} == {"meta"}


def test_properties_are_right():
    series = IrregularSeries.from_list([([0, 1], [[1.0, nan], [nan, nan]]), ([0], [[nan, 2.0]])])
    assert series.lengths.tolist() == [2, 1]
    assert series.observed.tolist() == [[True, False], [False, False], [False, True]]
    assert (series.channels, len(series), series.shape) == (2, 2, (2,))


# scikit-learn ---------------------------------------------------------------------------------------------------------


class Threshold(ClassifierMixin, BaseEstimator):
    """Predict 1 if the mean of a series is above the threshold; accepts only an IrregularSeries."""

    def __init__(self, threshold=0.0):
        self.threshold = threshold

    def fit(self, X, y):
        assert isinstance(X, IrregularSeries)
        assert len(X) == len(y)
        self.classes_ = np.unique(y)
        return self

    def predict(self, X):
        assert isinstance(X, IrregularSeries)
        return np.array([int(one.values.nanmean() > self.threshold) for one in X])


def labelled(count=24):
    levels = np.tile([1.0, -1.0], count // 2) + 5.0
    pairs = [(np.arange(1 + i % 4), np.full((1 + i % 4, 2), level)) for i, level in enumerate(levels)]
    return IrregularSeries.from_list(pairs, ids=[f"s{i}" for i in range(count)]), (levels > 5).astype(int)


def test_train_test_split_accepts_series():
    X, y = labelled()
    parts = train_test_split(X, y, test_size=0.25, random_state=0, stratify=y)
    train, test, y_train, _ = parts
    assert isinstance(train, IrregularSeries)
    assert (len(train), len(test)) == (18, 6)
    assert sorted([*train.ids, *test.ids]) == sorted(X.ids)
    assert [int(one.values[0, 0] > 5) for one in train] == y_train.tolist()


def test_splitters_and_resample_accept_series():
    X, y = labelled()
    for train, test in KFold(3).split(X, y):
        assert set(X[train].ids).isdisjoint(X[test].ids)
    assert isinstance(resample(X, n_samples=30, random_state=0), IrregularSeries)


def test_cross_validation_accepts_series():
    X, y = labelled()
    assert cross_val_score(Threshold(5.0), X, y, cv=3, error_score="raise").tolist() == [1.0, 1.0, 1.0]
    assert cross_val_score(Threshold(7.0), X, y, cv=3, error_score="raise").tolist() == [0.5, 0.5, 0.5]


def test_grid_search_works_over_a_pipeline_with_the_scaler():
    X, y = labelled()
    search = GridSearchCV(
        make_pipeline(SeriesScaler(), Threshold()),
        {"threshold__threshold": [-9.0, 0.0, 9.0], "seriesscaler__scale": ["standard", "paper"]},
        cv=3,
        error_score="raise",
    ).fit(X, y)
    assert search.best_params_["threshold__threshold"] == 0.0
    assert search.best_score_ == search.score(X, y) == 1.0


def test_ids_beyond_63_bits_stay_distinct():
    ids = np.array([7, 2**63 + 1, 2**63 + 2], dtype=np.uint64)
    series = IrregularSeries.from_list([([0.0], [[1.0]])] * 3, ids=ids)
    assert series.ids.tolist() == ids.tolist()
    assert IrregularSeries.concat([series[:1], series[1:]]).ids.tolist() == ids.tolist()
    few = IrregularSeries.from_list([([0.0], [[1.0]])], ids=[7])
    assert IrregularSeries.concat([few, series[1:]]).ids.tolist() == ids.tolist()
    mixed = IrregularSeries.from_list([([0.0], [[1.0]])] * 2, ids=[-1, 2**63 + 1])
    assert mixed.ids.tolist() == ["-1", str(2**63 + 1)]


def test_missing_ids_of_pandas_are_refused():
    with pytest.raises(ValueError, match="ids has missing values"):
        IrregularSeries.from_list([([0.0], [[1.0]])] * 2, ids=pd.array([1, None], dtype="Int64"))


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.uint64])
def test_indices_may_have_any_integer_dtype(kind):
    series = IrregularSeries.from_list([([0.0], [[float(k)]]) for k in range(300)])
    assert series[np.array([1, 2], dtype=kind)].values[:, 0].tolist() == [1.0, 2.0]


def test_static_features_do_not_share_memory_with_their_source():
    static = torch.ones(1, 1, dtype=torch.float64)
    series = IrregularSeries.from_list([([0.0], [[1.0]])], static=static, dtype=torch.float64)
    static[:] = 7
    assert series.static.item() == 1.0
