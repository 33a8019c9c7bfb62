"""Text columns that vary in time: one indicator channel per category, NaN where nothing was observed."""

import dataclasses

import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from neuralcde import IrregularSeries, SeriesScaler

nan = float("nan")

# two stays with interleaved rows, sorted neither by time nor by id
STAYS = {
    "stay": ["b", "a", "b", "a", "b"],
    "hour": [2.0, 0.5, 0.0, 0.0, 1.0],
    "pulse": [72.0, 91.0, None, 90.0, 71.0],
    "ascites": ["Yes", None, "No", "No", ""],
    "temperature": [None, 36.5, 37.0, None, None],
}
NAMES = ("pulse", "ascites=", "ascites=No", "ascites=Yes", "temperature")
INDICATORS = [[0, 1, 0], [1, 0, 0], [0, 0, 1], [0, 1, 0], [nan, nan, nan]]  # sorted by series and time


def read(frame, **options):
    return IrregularSeries.from_long(frame, id="stay", time="hour", **options)


def same(a, b):
    return torch.equal(a.nan_to_num(-999.0), torch.tensor(b).to(a).nan_to_num(-999.0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_text_becomes_indicators_in_the_order_of_the_columns(build, dtype):
    series = read(build(STAYS), dtype=dtype)
    assert series.channel_names == NAMES
    assert same(series.values[:, 1:4], INDICATORS)
    assert same(series.values[:, 0], [nan, 71.0, 72.0, 90.0, 91.0])
    assert same(series.values[:, 4], [37.0, nan, nan, nan, 36.5])
    assert series.dtype == dtype
    assert series.format.indicator_channels == {"ascites=", "ascites=No", "ascites=Yes"}


def test_named_text_columns_become_channels_in_the_order_given(build):
    series = read(build(STAYS), channels=["temperature", "ascites"])
    assert series.channel_names == ("temperature", "ascites=", "ascites=No", "ascites=Yes")
    assert same(series.values[:, 1:], INDICATORS)


def test_a_table_may_have_text_channels_alone(build):
    frame = build({name: STAYS[name] for name in ("stay", "hour", "ascites")})
    series = read(frame)
    assert same(series.values, INDICATORS)
    assert IrregularSeries.from_long(series.to_long(), like=series) == series


@pytest.mark.parametrize(
    ("build", "ward"),
    [
        (pd.DataFrame, pd.Categorical(["s", None, "n"], categories=["w", "s", "n"])),
        (pd.DataFrame, np.array(["s", None, "n"], dtype=object)),
        (pd.DataFrame, pd.array(["s", None, "n"], dtype="string[pyarrow]")),
        (pl.DataFrame, pl.Series(["s", None, "n"], dtype=pl.Categorical)),
        (pl.DataFrame, pl.Series(["s", None, "n"], dtype=pl.Enum(["w", "s", "n"]))),
        (pa.table, pa.array(["s", None, "n"]).dictionary_encode()),
    ],
    ids=[
        "pandas category",
        "pandas object",
        "pandas string",
        "polars categorical",
        "polars enum",
        "pyarrow dictionary",
    ],
)
def test_every_type_of_text_is_read(build, ward):
    series = read(build({"stay": [1, 1, 1], "hour": [0.0, 1.0, 2.0], "ward": ward}))
    assert series.channel_names == ("ward=n", "ward=s")
    assert same(series.values, [[0, 1], [nan, nan], [1, 0]])


def test_booleans_stay_one_channel(build):
    series = read(build(STAYS | {"ascites": [True, None, False, False, True]}))
    assert series.channel_names == ("pulse", "ascites", "temperature")
    assert same(series.values[:, 1], [0, 1, 1, 0, nan])
    assert series.format.indicator_channels == frozenset()


def test_static_text_is_no_channel(build):
    series = read(build(STAYS | {"ascites": ["x", "y", "x", "y", "x"]}), static=["ascites"])
    assert series.channel_names == ("pulse", "temperature")
    assert series.static_names == ("ascites=x", "ascites=y")


def many(count):
    return {
        "stay": ["a"] * count,
        "hour": np.arange(count),
        "x": np.arange(count),
        "note": [f"n{k}" for k in range(count)],
    }


def test_text_with_too_many_categories_is_left_out_or_refused_if_named(build):
    with pytest.warns(
        UserWarning, match=r"left out.*at most 20 different values: 'note' \(String, 21 different values\)"
    ):
        assert read(build(many(21))).channel_names == ("x",)
    with pytest.raises(
        ValueError, match=r"'note' \(channels\) is text with 21 different values.*at most 20.*Leave it out"
    ):
        read(build(many(21)), channels=["x", "note"])
    assert read(build(many(20))).channels == 21


def test_empty_text_is_left_out_or_never_observed_if_named():
    frame = pl.DataFrame(STAYS).with_columns(note=pl.Series([None] * 5, dtype=pl.String))
    with pytest.warns(UserWarning, match=r"left out.*'note' \(String\)"):
        assert read(frame).channel_names == NAMES
    named = read(frame, channels=["pulse", "note"])
    assert named.channel_names == ("pulse", "note")
    assert named.values[:, 1].isnan().all()


def test_equal_names_of_channels_are_refused(build):
    with pytest.raises(ValueError, match=r"two channels are called 'ascites=No'"):
        read(build(STAYS | {"ascites=No": [1.0] * 5}))


# like -----------------------------------------------------------------------------------------------------------------


def test_like_keeps_categories_and_unknown_ones_have_no_indicator(build):
    first = read(build(STAYS))
    new = {"temperature": [1.0] * 4, "ascites": ["Yes", "perhaps", None, "never"], "pulse": [2.0] * 4}
    series = IrregularSeries.from_long(build(new | {"stay": ["x"] * 4, "hour": [0, 1, 2, 3]}), like=first)
    assert series.channel_names == NAMES
    assert same(series.values[:, 1:4], [[0, 0, 1], [0, 0, 0], [nan] * 3, [0, 0, 0]])
    assert IrregularSeries.from_long(build(STAYS), like=first.with_channels(counts="per_channel")) == first


def test_like_accepts_any_number_of_unknown_categories(build):
    first = read(build(STAYS | {"note": ["n1"] * 5}), channels=["note"])
    series = IrregularSeries.from_long(build(many(30)), like=first)
    assert series.values[:, 0].tolist() == [float(k == 1) for k in range(30)]


def test_like_accepts_text_that_is_all_missing(build):
    first = read(build(STAYS))
    series = IrregularSeries.from_long(build(STAYS | {"ascites": [None] * 5}), like=first)
    assert series.values[:, 1:4].isnan().all()


def test_like_accepts_the_names_of_the_columns(build):
    first = read(build(STAYS), channels=["ascites", "pulse"])
    assert IrregularSeries.from_long(build(STAYS), like=first, channels=["ascites", "pulse"]) == first
    with pytest.raises(ValueError, match=r"differs from like=, which has channels=\['ascites', 'pulse'\]"):
        IrregularSeries.from_long(build(STAYS), like=first, channels=["pulse"])


def test_like_refuses_another_kind_of_channel(build):
    text, numbers = build(STAYS), build(STAYS | {"ascites": [1.0] * 5})
    with pytest.raises(
        TypeError, match=r"column 'ascites' holds Float64, but like= held text, one of \['', 'No', 'Yes'\]"
    ):
        IrregularSeries.from_long(numbers, like=read(text))
    with pytest.raises(TypeError, match=r"column 'ascites' holds String, but like= held numbers; convert"):
        IrregularSeries.from_long(text, like=read(numbers))


# writing --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["pandas", "polars", "pyarrow"])
def test_text_is_written_back(build, target):
    series = read(build(STAYS))
    frame = nw.from_native(series.to_long(target))
    assert frame.columns == ["stay", "hour", "pulse", "ascites", "temperature"]
    assert frame["ascites"].drop_nulls().to_list() == ["No", "", "Yes", "No"]
    assert frame["ascites"].is_null().to_list() == [False] * 4 + [True]
    assert IrregularSeries.from_long(frame.to_native(), like=series) == series
    assert read(frame.to_native()) == series


@given(
    st.lists(st.sampled_from(["a", "b", "other", "other category"]), min_size=1, max_size=5),
    st.lists(st.one_of(st.none(), st.text(max_size=3), st.sampled_from(["a", "other"])), min_size=1, max_size=6),
)
def test_series_survive_a_round_trip_with_unknown_categories(known, new):
    def table(cells):
        column = pl.Series(cells, dtype=pl.String)
        return pl.DataFrame({"stay": [1] * len(cells), "hour": range(len(cells)), "x": column})

    series = IrregularSeries.from_long(table(new), like=read(table(known)))
    assert IrregularSeries.from_long(series.to_long(), like=series) == series


def test_rows_at_the_same_time_are_merged(build):
    frame = build({"stay": ["a"] * 4, "hour": [0, 0, 0, 1], "x": ["low", None, "high", "low"]})
    assert same(read(frame, duplicates="last").values, [[1, 0], [0, 1]])
    assert same(read(frame, duplicates="mean").values, [[0.5, 0.5], [0, 1]])  # shares of the observed rows


def test_single_indicators_are_written_as_numbers(build):
    series = read(build(STAYS))
    part = dataclasses.replace(series, values=series.values[:, 2:3], channel_names=NAMES[2:3], roles=("data",))
    assert nw.from_native(part.to_long()).columns == ["stay", "hour", "ascites=No"]


# scaling --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", ["standard", "paper"])
def test_scaling_keeps_indicators(build, scale):
    series = read(build(STAYS))
    scaler = SeriesScaler(scale=scale).fit(series)
    scaled = scaler.transform(series)
    assert same(scaled.values[:, 1:4], INDICATORS)
    assert not same(scaled.values[:, 0], series.values[:, 0].tolist())
