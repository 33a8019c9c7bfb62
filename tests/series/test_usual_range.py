"""Values far outside the usual range: no false alarms on ordinary distributions, and every gross error found."""

import datetime as dt

import numpy as np
import pandas as pd
import pytest
import torch

from neuralcde import IrregularSeries, SeriesScaler
from neuralcde.series.far_values import usual_range

nan = float("nan")
SIZE = 100_000
ORDINARY = {
    "normal": lambda rng: rng.normal(80, 15, SIZE),
    "exponential": lambda rng: rng.exponential(1, SIZE),
    "log-normal": lambda rng: rng.lognormal(0, 1, SIZE),
    "strongly skewed": lambda rng: rng.lognormal(0, 2, SIZE),
    "counts": lambda rng: rng.poisson(0.3, SIZE),
    "rare counts": lambda rng: rng.poisson(0.01, SIZE),
    "overdispersed counts": lambda rng: rng.negative_binomial(0.3, 0.1, SIZE),
    "mostly zero": lambda rng: np.where(rng.random(SIZE) < 0.97, 0.0, rng.lognormal(0, 1, SIZE)),
    "mostly at its maximum": lambda rng: np.minimum(100.0, rng.normal(101, 3, SIZE).round()),
    "two values": lambda rng: (rng.random(SIZE) < 0.3) * 1.0,
    "a rare value": lambda rng: (rng.random(SIZE) < 1e-4) * 1.0,
    "laplace": lambda rng: rng.laplace(0, 1, SIZE),
    "fifty values": lambda rng: rng.lognormal(0, 1, 50),
}


def limits(values):
    return usual_range(torch.from_numpy(np.sort(values.astype(float))))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", ORDINARY)
def test_ordinary_values_cause_no_alarm(kind, seed):
    values = ORDINARY[kind](np.random.default_rng(seed))
    found = limits(values)
    assert found.lowest < values.min()
    assert values.max() < found.highest
    mirrored = limits(-values)
    assert mirrored.highest > (-values).max()


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        ("normal", [999.0, 80e3, -999.0]),
        ("exponential", [700.0]),
        ("log-normal", [1000.0]),
        ("counts", [1000.0]),
        ("mostly zero", [5000.0]),
        ("mostly at its maximum", [1000.0, -1.0]),
        ("two values", [1000.0, -999.0]),
    ],
)
def test_gross_errors_are_found_although_the_limits_are_learnt_with_them(kind, wrong):
    values = np.concatenate([ORDINARY[kind](np.random.default_rng(0)), np.resize(wrong, 50)])
    found = limits(values)
    for value in wrong:
        assert not found.lowest <= value <= found.highest, found


def test_a_ph_of_99_is_found_among_forty_thousand():
    values = np.concatenate([np.random.default_rng(0).normal(7.4, 0.07, 40_000), [99.0]])
    found = limits(values)
    assert found.highest < 14
    assert found.lowest > 4
    assert (found.low, found.high) == pytest.approx((7.24, 7.56), abs=0.01)


@pytest.mark.parametrize("count", [3, 5, 10, 20, 40])
@pytest.mark.parametrize("kind", ["normal", "exponential", "log-normal", "counts", "laplace", "two values"])
def test_few_values_have_wide_limits(kind, count):
    rng, alarms = np.random.default_rng(0), 0
    for _ in range(200):
        known, new = rng.choice(ORDINARY[kind](np.random.default_rng(0)), (2, count))
        found = limits(known)
        if np.ptp(known) == 0:
            assert found is None
            continue
        assert found.lowest < known.min()
        assert known.max() < found.highest
        alarms += int(((new < found.lowest) | (new > found.highest)).sum())
    assert alarms <= 200 * count / 100


@pytest.mark.parametrize("count", [10, 24, 45])
def test_a_gross_error_is_found_beside_few_values(count):
    found = limits(np.random.default_rng(0).normal(80, 15, count))
    assert not found.lowest < 80e3 < found.highest
    assert not found.lowest < -80e3 < found.highest


def test_equal_values_have_no_limits():
    assert limits(np.full(1000, 7.4)) is None
    assert limits(np.array([7.4])) is None


def table():
    """Forty stays of ten hours with a pH, a pulse and an age."""
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "stay": np.repeat([f"stay {k}" for k in range(40)], 10),
            "hour": np.tile(np.arange(10.0), 40),
            "pH": rng.normal(7.4, 0.05, 400),
            "pulse": np.where(rng.random(400) < 0.5, nan, rng.normal(80, 10, 400)),
            "age": np.repeat(rng.integers(20, 90, 40) * 1.0, 10),
        }
    )


def read(frame):
    return IrregularSeries.from_long(frame, id="stay", time="hour", static=["age"])


def test_far_values_are_listed_with_series_time_and_limits():
    scaler = SeriesScaler("robust").fit(read(table()))
    frame = table()
    frame.loc[73, "pH"], frame.loc[75, "pulse"], frame.loc[5, "pH"] = 99.0, -999.0, 12.0
    far = scaler.far_values(read(frame))
    assert far.counts == {"pH": 2, "pulse": 1}
    first, second, third = far.listed()
    assert (first.series, first.time, first.channel, first.value) == ("stay 0", 5.0, "pH", 12.0)
    assert (second.series, second.time, second.channel, second.value) == ("stay 7", 3.0, "pH", 99.0)
    assert (third.series, third.time, third.channel, third.value) == ("stay 7", 5.0, "pulse", -999.0)
    assert second.limits[0] < second.usual[0] < 7.4 < second.usual[1] < second.limits[1] < 12
    assert far.listed(1) == [second] or far.listed(1) == [third]
    assert far.listed(2) != far.listed()
    words = far.described()
    assert words.startswith("channel 'pH': 2 values far outside the usual range 7.")
    assert ", e.g. 99 in series 'stay 7' at hour=3.0; channel 'pulse': 1 value far" in words
    assert "channel 'pulse': 1 value far outside" in words


def test_no_far_values_are_found_in_the_training_series():
    series = read(table())
    far = SeriesScaler().fit(series).far_values(series)
    assert far.counts == {}
    assert far.listed() == []


def test_static_features_have_limits_of_their_own():
    frame = table()
    scaler = SeriesScaler().fit(read(pd.concat([frame.assign(stay=frame.stay + f" {k}") for k in range(3)])))
    frame.loc[frame.stay == "stay 3", "age"] = 5000.0
    (found,) = scaler.far_values(read(frame)).listed()
    assert (found.series, found.time, found.channel, found.value) == ("stay 3", None, "age", 5000.0)
    assert "static feature 'age': 1 value" in scaler.far_values(read(frame)).described()


def test_times_are_shown_as_in_the_table():
    frame = table()
    frame["hour"] = dt.datetime(2026, 1, 1) + pd.to_timedelta(frame["hour"], unit="h")
    scaler = SeriesScaler().fit(read(frame))
    frame.loc[3, "pH"] = 99.0
    assert "at hour=2026-01-01T03" in scaler.far_values(read(frame)).described()


def test_many_channels_are_counted_but_not_all_named():
    values = np.random.default_rng(0).normal(size=(20, 10, 8))
    scaler = SeriesScaler().fit(IrregularSeries.from_padded(values))
    values[3, 4] = 1e6
    words = scaler.far_values(IrregularSeries.from_padded(values)).described()
    assert words.count("far outside") == 5
    assert words.endswith("; and 3 more channels")


def test_indicators_and_the_papers_scaling_have_no_limits():
    frame = table().assign(ward=np.resize(["a", "b", "b"], 400))
    series = read(frame)
    scaler = SeriesScaler("robust").fit(series)
    known = dict(zip(series.channel_names, scaler.usual_, strict=True))
    assert known["ward=a"] is None
    assert known["pH"] is not None
    assert set(SeriesScaler("paper").fit(series).usual_) == {None}
