"""SeriesScaler: values, static features and times, its inverse, its saved state, and errors."""

import datetime as dt
import json

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline

from neuralcde import IrregularSeries, SeriesScaler
from neuralcde.series.channels import time_since_start
from ragged_cases import random_series

nan = float("nan")


def observed(values):
    return [column[~column.isnan()].double() for column in values.T]


def shifted(seed=0, *, count=40, dtype=torch.float64):
    """Random series whose channels have mean 100 and standard deviations 1, 10 and 100."""
    series = random_series(seed, count=count)
    block = series.to_padded()
    values = block.values * torch.tensor([1.0, 10.0, 100.0]) + 100
    static = np.column_stack([np.arange(count) * 3.0, np.where(np.arange(count) % 3, 5.0, nan)])
    return IrregularSeries.from_padded(values, block.times, block.lengths, static=static, dtype=dtype)


# values and static features -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "digits"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_observed_values_get_mean_zero_and_variance_one(dtype, digits):
    series = shifted(dtype=dtype)
    scaled = SeriesScaler().fit_transform(series)
    assert scaled.dtype == dtype
    assert scaled.values.isnan().equal(series.values.isnan())
    for column in observed(scaled.values):
        assert column.mean().item() == pytest.approx(0, abs=digits)
        assert column.var(correction=0).item() == pytest.approx(1, abs=digits)
    assert scaled.static[:, 0].mean().item() == pytest.approx(0, abs=digits)
    assert scaled.static[:, 0].var(correction=0).item() == pytest.approx(1, abs=digits)


def test_statistics_come_from_the_training_data():
    train, test = shifted(0), shifted(1)
    scaler = SeriesScaler().fit(train)
    columns = observed(train.values)
    np.testing.assert_allclose(scaler.mean_, [float(column.mean()) for column in columns])
    np.testing.assert_allclose(scaler.scale_, [float(column.std(correction=0)) for column in columns])
    expected = (test.values - scaler.mean_) / scaler.scale_
    torch.testing.assert_close(scaler.transform(test).values, expected, equal_nan=True)


def test_constant_channels_become_zero_and_unobserved_ones_stay_missing():
    values = [[7.3, nan, 1.0], [7.3, nan, 3.0]]
    series = IrregularSeries.from_list([([0, 1], values), ([0, 1], values)], static=[[4.0, nan], [4.0, nan]])
    scaled = SeriesScaler().fit_transform(series)
    assert scaled.values[:, 0].tolist() == [0.0] * 4
    assert scaled.values[:, 1].isnan().all()
    assert scaled.values[:, 2].tolist() == [-1.0, 1.0] * 2
    assert scaled.static[:, 0].tolist() == [0.0, 0.0]
    assert scaled.static[:, 1].isnan().all()


def test_channels_that_vary_only_by_rounding_cause_a_warning():
    values = np.float32(1e6) + np.array([0, 0.0625, 0, 0.0625], dtype=np.float32)
    series = IrregularSeries.from_list([(np.arange(4), values)])
    with pytest.warns(UserWarning, match=r"\['x0'\] vary so little relative to their size"):
        assert SeriesScaler().fit_transform(series).values.abs().max() < 0.1


def test_channels_not_observed_in_training_are_not_scaled():
    scaler = SeriesScaler().fit(IrregularSeries.from_list([([0], [[nan]])]))
    assert scaler.transform(IrregularSeries.from_list([([0], [[5.0]])])).values.item() == 5.0


def test_indicators_stay_zero_and_one():
    frame = pd.DataFrame({"id": [1, 2, 3], "time": 0.0, "x": 1.0, "ward": ["n", "n", "s"], "age": [1.0, 2.0, 3.0]})
    series = IrregularSeries.from_long(frame, id="id", time="time", static=["ward", "age"])
    for scale in ("standard", "paper"):
        scaled = SeriesScaler(scale).fit_transform(series)
        assert scaled.static[:, :2].tolist() == [[1, 0], [1, 0], [0, 1]]
        assert scaled.static[1, 2] == 0.0


def test_padding_does_not_affect_the_statistics():
    block = shifted().to_padded()
    wide = torch.cat([block.values, torch.full_like(block.values, nan)], 1)
    times = torch.cat([block.times, torch.full_like(block.times, nan)], 1)
    plain = SeriesScaler().fit(IrregularSeries.from_padded(*block)).to_state()
    assert SeriesScaler().fit(IrregularSeries.from_padded(wide, times, block.lengths)).to_state() == plain


def test_gradients_flow_through_scaling_but_not_through_the_statistics():
    values = torch.tensor([[0.0], [4.0]], requires_grad=True)
    times = torch.tensor([0.0, 5.0], requires_grad=True)
    scaled = SeriesScaler().fit_transform(IrregularSeries.from_list([(times, values)]))
    (scaled.values.sum() + scaled.times.sum()).backward()
    assert values.grad.flatten().tolist() == [0.5, 0.5]
    assert times.grad.tolist() == pytest.approx([0.2, 0.2])


# times ----------------------------------------------------------------------------------------------------------------


def test_gaps_are_one_on_average_and_counts_have_about_unit_variance():
    series = shifted()
    scaled = SeriesScaler().fit_transform(series)
    gaps = torch.cat([one.times.diff() for one in scaled])
    assert gaps.mean().item() == pytest.approx(1)
    shared, each = (scaled.with_channels(counts=counts).values for counts in ("shared", "per_channel"))
    np.testing.assert_allclose(shared[:, 0], time_since_start(scaled.times, scaled.offsets), rtol=1e-6)
    np.testing.assert_allclose(shared[:, 1].std(0, correction=0), 1.0, rtol=1e-6)
    np.testing.assert_allclose(each[:, 1:4].std(0, correction=0), [1.0] * 3, rtol=1e-6)


def test_the_mean_duration_is_at_most_200():
    lengths = (301, 901)
    series = IrregularSeries.from_list([(60.0 * np.arange(n), np.zeros(n)) for n in lengths])
    scaled = SeriesScaler().fit_transform(series)
    assert scaled.times.diff().max().item() == 1.0
    ends = scaled.with_channels().values[scaled.offsets[1:] - 1, 0]
    assert ends.mean().item() == pytest.approx(200)
    assert (ends[1] / ends[0]).item() == pytest.approx(3)


@pytest.mark.parametrize("counts", ["shared", "per_channel"])
def test_one_observation_changes_a_count_by_at_most_one(counts):
    rare = IrregularSeries.from_list([([0, 1, 2], [[1.0], [nan], [nan]])] * 5)
    added = SeriesScaler().fit_transform(rare).with_channels(time=False, counts=counts)
    assert added.values[:, 0].tolist() == [1.0] * 15


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_unit_and_origin_of_times_do_not_matter(dtype):
    hours = shifted()
    block = hours.to_padded()

    def scaled(times):
        series = IrregularSeries.from_padded(block.values, times, block.lengths, dtype=dtype)
        series = SeriesScaler().fit_transform(series)
        gaps = torch.cat([one.times.diff() for one in series])
        return gaps, series.with_channels(counts="per_channel", start=True).values

    starts = torch.arange(len(hours), dtype=torch.float64)[:, None] * 86400
    for times in (block.times * 3600, block.times * 3600 + 1.7e9 + starts):
        for expected, found in zip(scaled(block.times), scaled(times), strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5, equal_nan=True)


def test_the_unit_of_datetimes_does_not_matter():
    times = [dt.datetime(2024, 1, 1, hour) for hour in (0, 2, 9)]
    frame = pd.DataFrame({"id": 1, "time": times, "x": [1.0, 2.0, 4.0]})
    first, *others = (
        SeriesScaler().fit_transform(IrregularSeries.from_long(frame, id="id", time="time", unit=unit)).with_channels()
        for unit in ("D", "h", "ms")
    )
    for other in others:
        torch.testing.assert_close(other.values, first.values)
        torch.testing.assert_close(other.times.diff(), first.times.diff())


def test_series_of_one_row_can_be_scaled():
    series = IrregularSeries.from_list([([5.0], [[1.0]]), ([9.0], [[3.0]])])
    scaled = SeriesScaler().fit_transform(series).with_channels(counts="per_channel", start=True)
    assert scaled.times.tolist() == [5.0, 9.0]
    assert scaled.values.tolist() == [[0.0, 1.0, 0.0, -1.0], [0.0, 1.0, 0.0, 1.0]]


def test_scale_paper_does_not_scale_time_and_counts():
    series = IrregularSeries.from_list([([10, 14, 30], [[1.0], [nan], [3.0]])])
    scaled = SeriesScaler(scale="paper").fit_transform(series)
    assert scaled.times.tolist() == [10.0, 14.0, 30.0]
    added = scaled.with_channels(counts="shared").values
    assert added[:, :2].tolist() == [[10.0, 1.0], [14.0, 1.0], [30.0, 2.0]]
    assert added[0, 2].item() == pytest.approx(-1 / (1 + 1e-5), rel=1e-6)


# inverse and state ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", ["standard", "robust", "paper"])
def test_inverse_transform_undoes_transform(scale):
    series = shifted()
    scaler = SeriesScaler(scale).fit(series)
    back = scaler.inverse_transform(scaler.transform(series))
    for name in ("times", "values", "static"):
        torch.testing.assert_close(getattr(back, name), getattr(series, name), equal_nan=True)
    assert back.scales == series.scales
    assert back.ids.tolist() == series.ids.tolist()


@pytest.mark.parametrize("scale", ["standard", "robust", "paper"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_state_survives_json(scale, dtype):
    series, other = shifted(dtype=dtype), shifted(7, dtype=dtype)
    scaler = SeriesScaler(scale).fit(series)
    loaded = SeriesScaler.from_state(json.loads(json.dumps(scaler.to_state())))
    assert loaded.get_params() == scaler.get_params()
    assert loaded.to_state() == scaler.to_state()
    assert loaded.transform(other) == scaler.transform(other)
    for counts in ("shared", "per_channel"):
        assert loaded.transform(other).with_channels(counts=counts) == scaler.transform(other).with_channels(
            counts=counts
        )
    assert loaded.inverse_transform(other) == scaler.inverse_transform(other)


def test_an_incomplete_state_is_refused():
    state = SeriesScaler().fit(shifted()).to_state()
    del state["mean_"]
    with pytest.raises(ValueError, match=r"not the state of a SeriesScaler: it lacks \['mean_'\]"):
        SeriesScaler.from_state(state)


# scikit-learn ---------------------------------------------------------------------------------------------------------


def test_clone_copies_parameters_only():
    scaler = SeriesScaler(scale="paper").fit(shifted())
    copy = clone(scaler)
    assert copy.get_params() == {"scale": "paper"}
    assert not hasattr(copy, "mean_")
    assert copy.set_params(scale="standard").scale == "standard"


def test_scalers_work_in_a_pipeline():
    series = shifted()
    pipeline = make_pipeline(SeriesScaler(), SeriesScaler())
    once, twice = SeriesScaler().fit_transform(series), pipeline.fit_transform(series)
    assert isinstance(twice, IrregularSeries)
    torch.testing.assert_close(twice.values, once.values, equal_nan=True)
    torch.testing.assert_close(twice.with_channels().values, once.with_channels().values, equal_nan=True)
    torch.testing.assert_close(pipeline.inverse_transform(twice).values, series.values, equal_nan=True)


# errors ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["transform", "inverse_transform"])
def test_use_before_fit_is_refused(method):
    with pytest.raises(NotFittedError):
        getattr(SeriesScaler(), method)(shifted())
    with pytest.raises(NotFittedError):
        SeriesScaler().to_state()


@pytest.mark.wrong_types
def test_unknown_values_of_scale_are_refused():
    with pytest.raises(ValueError, match='scale must be "standard", "robust" or "paper", got \'minmax\''):
        SeriesScaler(scale="minmax").fit(shifted())


def test_fit_on_no_series_is_refused():
    with pytest.raises(ValueError, match="cannot be fitted on no series; expected at least one"):
        SeriesScaler().fit(shifted()[:0])


def test_no_series_can_be_transformed():
    series = shifted()
    assert len(SeriesScaler().fit(series).transform(series[:0])) == 0


@pytest.mark.wrong_types
def test_other_types_are_refused():
    with pytest.raises(TypeError, match=r"series must be an IrregularSeries, got ndarray; build one with"):
        SeriesScaler().fit(np.zeros((2, 3, 1)))
    with pytest.raises(TypeError, match=r"series must be an IrregularSeries, got list; build one with"):
        SeriesScaler().fit(shifted()).transform([1.0])


@pytest.mark.parametrize("method", ["fit", "transform", "inverse_transform"])
def test_series_with_added_channels_are_refused(method):
    scaler = SeriesScaler().fit(shifted())
    with pytest.raises(ValueError, match=r"scale first, then add channels: .*transform\(series\).with_channels"):
        getattr(scaler, method)(shifted().with_channels())


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"channels": ["y"]}, r"channels \['x0'\], got \['y'\].*like=training"),
        ({"static_names": ["t"]}, r"static features \['s0'\], got \['t'\].*like=training"),
    ],
)
def test_other_columns_than_in_training_are_refused(names, message):
    pairs = [([0], [[1.0]])]
    scaler = SeriesScaler().fit(IrregularSeries.from_list(pairs, static=[[1.0]]))
    other = IrregularSeries.from_list(pairs, static=[[1.0]], **names)
    for method in (scaler.transform, scaler.inverse_transform):
        with pytest.raises(ValueError, match=message):
            method(other)


def test_values_whose_squares_overflow_are_refused():
    values = np.ones((4, 1))
    values[2] = np.finfo(np.float64).max
    series = IrregularSeries.from_list([(np.arange(4.0), values)], channels=["pulse"], dtype=torch.float64)
    with pytest.raises(ValueError, match=r"'pulse' holds 1\.79769e\+308"):
        SeriesScaler().fit(series)


def test_shared_counts_keep_their_precision():
    series = IrregularSeries.from_list([(np.arange(10.0), np.ones((10, 1)))], dtype=torch.float64)
    scaled = SeriesScaler().fit(series).transform(series)
    shared, own = (scaled.with_channels(counts=kind).values[:, 1] for kind in ("shared", "per_channel"))
    torch.testing.assert_close(shared, own, rtol=1e-14, atol=0)
