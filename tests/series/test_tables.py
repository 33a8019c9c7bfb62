"""Long tables of pandas, polars and pyarrow: reading, writing, and errors about invalid tables."""

import datetime as dt
import uuid
import warnings
from decimal import Decimal
from zoneinfo import ZoneInfo

import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch

from neuralcde import IrregularSeries, SeriesScaler

nan = float("nan")
BERLIN = ZoneInfo("Europe/Berlin")

# two stays with interleaved rows, sorted neither by time nor by id
STAYS = {
    "stay": ["b", "a", "b", "a", "b"],
    "hour": [2.0, 0.5, 0.0, 0.0, 1.0],
    "pulse": [72.0, 91.0, None, 90.0, 71.0],
    "temperature": [None, 36.5, 37.0, None, None],
}


def read(frame, **options):
    return IrregularSeries.from_long(frame, id="stay", time="hour", **options)


def rows_of(frame):
    return nw.from_native(frame).rows(named=True)


def same(a, b):
    return torch.equal(a.nan_to_num(-999.0), torch.tensor(b).to(a).nan_to_num(-999.0))


# reading --------------------------------------------------------------------------------------------------------------


def test_rows_are_sorted_and_series_keep_the_order_of_first_appearance(build):
    series = read(build(STAYS))
    assert series.ids.tolist() == ["b", "a"]
    assert series.offsets.tolist() == [0, 3, 5]
    assert series.times.dtype == torch.float64
    assert series.times.tolist() == [0.0, 1.0, 2.0, 0.0, 0.5]
    assert same(series.values, [[nan, 37.0], [71.0, nan], [72.0, nan], [90.0, nan], [91.0, 36.5]])
    assert series.channel_names == ("pulse", "temperature")
    assert series.static.shape == (2, 0)


def test_ids_and_categories_keep_trailing_null_characters(build):
    frame = build({"stay": ["a\0", "a"], "hour": [0.0, 0.0], "x": [1.0, 2.0], "ward": ["n", "n\0"]})
    series = read(frame, static=["ward"])
    assert series.ids.tolist() == ["a\0", "a"]
    assert series.static_names == ("ward=n", "ward=n\0")


def test_the_order_of_rows_does_not_matter(build):
    columns = {"stay": np.repeat([3, 1, 2], 20), "hour": np.tile(np.arange(20.0), 3), "x": np.arange(60.0)}
    expected = read(build(columns))
    rest = np.random.default_rng(0).permutation(np.arange(1, 60))
    first = [0, 20, 40]  # the order of first appearances is kept
    order = np.array(first + [row for row in rest if row not in first])
    assert read(build({name: column[order] for name, column in columns.items()})) == expected


def test_a_sorted_table_is_copied():
    columns = {"stay": ["a", "a"], "hour": np.array([0.0, 1.0]), "x": np.array([1.0, 2.0])}
    frame = pd.DataFrame(columns, copy=False)
    series = read(frame)
    frame.loc[0, "hour"] = columns["hour"][0] = -5.0
    frame.loc[0, "x"] = columns["x"][0] = -5.0
    assert series.times.tolist() == [0.0, 1.0]
    assert series.values.tolist() == [[1.0], [2.0]]


def test_the_index_of_pandas_is_ignored():
    frame = pd.DataFrame(STAYS)
    assert read(frame.set_axis([7, 7, 1, 0, 7])) == read(frame)
    assert read(frame[frame["hour"] > 0]).times.tolist() == [1.0, 2.0, 0.5]


@pytest.mark.parametrize(("dtype", "digits"), [(torch.float32, 1e-7), (torch.float64, 1e-16)])
def test_values_and_static_features_have_the_given_dtype(build, dtype, digits):
    series = read(build(STAYS | {"pulse": [0.1] * 5, "age": [0.1] * 5}), static=["age"], dtype=dtype)
    assert series.values.dtype == series.static.dtype == series.dtype == dtype
    assert float(series.static[0, 0]) == pytest.approx(0.1, abs=digits)
    assert (float(series.static[0, 0]) == 0.1) == (dtype == torch.float64)


@pytest.mark.parametrize(
    "column",
    [[1, None, 3, 0, 0], [True, None, True, False, False], [Decimal("1.5"), None, Decimal(2), Decimal(0), Decimal(-1)]],
    ids=["int", "bool", "decimal"],
)
@pytest.mark.parametrize("channels", [None, ["x"]])
def test_nullable_columns_are_read(build, column, channels):
    frame = build({"stay": ["a"] * 5, "hour": [0, 1, 2, 3, 4], "x": column})
    assert same(read(frame, channels=channels).values, [[nan if x is None else float(x)] for x in column])


@pytest.mark.parametrize("kind", ["Int64", "UInt8", "boolean", "Float32", "int64[pyarrow]", "bool[pyarrow]"])
def test_nullable_columns_of_pandas_are_read(kind):
    frame = pd.DataFrame({"stay": ["a"] * 3, "hour": [0, 1, 2], "x": pd.array([1, None, 0], dtype=kind)})
    assert same(read(frame).values, [[1.0], [nan], [0.0]])


def test_an_empty_channel_is_read_if_named(build):
    series = read(build(STAYS | {"lactate": [None] * 5}), channels=["lactate", "pulse"])
    assert series.values[:, 0].isnan().all()
    assert series.channel_names == ("lactate", "pulse")


def test_channels_select_and_order_columns(build):
    frame = build(STAYS | {"note": ["x"] * 5, "ventilated": [True, False, True, False, None]})
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # no warning about columns left out
        series = read(frame, channels=np.array(["ventilated", "pulse"]))
    assert series.channel_names == ("ventilated", "pulse")
    assert same(series.values[:, 0], [1.0, nan, 1.0, 0.0, 0.0])


def test_columns_that_are_neither_numbers_nor_text_are_left_out_with_a_warning(build):
    frame = build(STAYS | {"gap": [dt.timedelta(1)] * 5, "day": [dt.datetime(2020, 1, 1)] * 5})
    with pytest.warns(UserWarning, match=r"'gap' \(Duration.*, 'day' \(Datetime.*name text in static .* with channels"):
        series = read(frame)
    assert series.channel_names == ("pulse", "temperature")


@pytest.mark.parametrize("ids", [[7, 3, 7, 3, 7], ["7", "3", "7", "3", "7"], [1.5, 0.5, 1.5, 0.5, 1.5]])
def test_ids_keep_their_type(build, ids):
    series = read(build(STAYS | {"stay": ids}))
    assert series.ids.tolist() == ids[:2]
    assert isinstance(series.ids.tolist()[0], type(ids[0]))


@pytest.mark.parametrize(
    "column",
    [
        pd.Series(STAYS["stay"], dtype="category"),
        pd.Series(STAYS["stay"], dtype=object),
        pl.Series(STAYS["stay"], dtype=pl.Categorical),
        pl.Series(STAYS["stay"], dtype=pl.Enum(["a", "b", "c"])),
        pa.array(STAYS["stay"]).dictionary_encode(),
    ],
    ids=["pandas category", "pandas object", "polars categorical", "polars enum", "pyarrow dictionary"],
)
def test_categorical_ids_equal_text_ids(column):
    build = {"pandas": pd.DataFrame, "polars": pl.DataFrame}.get(type(column).__module__.split(".")[0], pa.table)
    series = read(build(STAYS | {"stay": column}))
    assert series == read(build(STAYS))


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ([7, 3], [7, 3]),
        ([dt.date(2020, 1, 2), dt.date(2020, 1, 1)], ["2020-01-02", "2020-01-01"]),
        ([uuid.UUID(int=2), uuid.UUID(int=1)], [str(uuid.UUID(int=2)), str(uuid.UUID(int=1))]),
    ],
    ids=["int", "date", "uuid"],
)
def test_ids_may_be_python_objects(items, expected):
    series = read(pd.DataFrame({"stay": pd.Series(items, dtype=object), "hour": [0.0, 0.0], "x": [1.0, 2.0]}))
    assert series.ids.tolist() == expected


# static columns -------------------------------------------------------------------------------------------------------


def test_static_numbers_and_booleans_become_features(build):
    frame = build(STAYS | {"age": [30, 50, None, 50, 30], "smoker": [True, None, True, None, True]})
    series = read(frame, static=["smoker", "age"])
    assert series.static_names == ("smoker", "age")
    assert same(series.static, [[1.0, 30.0], [nan, 50.0]])
    assert series.channel_names == ("pulse", "temperature")


def test_static_text_becomes_indicators(build):
    columns = {"stay": ["p", "q", "r", "s", "s"], "hour": [0, 0, 0, 0, 1], "x": [1.0] * 5}
    frame = build(columns | {"ward": ["south", "", None, "north", None], "age": [1, 2, 3, 4, 4]})
    series = read(frame, static=["ward", "age"])
    assert series.static_names == ("ward=", "ward=north", "ward=south", "age")
    assert series.static.tolist() == [[0, 0, 1, 1], [1, 0, 0, 2], [0, 0, 0, 3], [0, 1, 0, 4]]


@pytest.mark.parametrize(
    ("build", "ward"),
    [
        (pd.DataFrame, pd.Categorical(["s", None, "n"], categories=["w", "s", "n"])),
        (pl.DataFrame, pl.Series(["s", None, "n"], dtype=pl.Categorical)),
        (pl.DataFrame, pl.Series(["s", None, "n"], dtype=pl.Enum(["w", "s", "n"]))),
        (pa.table, pa.array(["s", None, "n"]).dictionary_encode()),
    ],
    ids=["pandas category", "polars categorical", "polars enum", "pyarrow dictionary"],
)
def test_static_categories_become_indicators(build, ward):
    series = read(build({"stay": [1, 2, 3], "hour": [0.0] * 3, "x": [1.0] * 3, "ward": ward}), static=["ward"])
    assert series.static_names == ("ward=n", "ward=s")
    assert series.static.tolist() == [[0, 1], [0, 0], [1, 0]]


def test_integer_categories_stay_the_same_when_some_are_missing():
    frame = pd.DataFrame({"stay": [1, 2], "hour": [0.0, 0.0], "x": [1.0, 2.0], "ward": pd.Categorical([4, 5])})
    whole = read(frame, static=["ward"])
    part = IrregularSeries.from_long(frame.assign(ward=pd.Categorical([4, None], categories=[4, 5])), like=whole)
    assert whole.static_names == ("ward=4", "ward=5")
    assert part.static.tolist() == [[1, 0], [0, 0]]


# times ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("times", "unit", "expected"),
    [
        ([dt.datetime(1970, 1, 2), dt.datetime(1970, 1, 1, 0, 0, 0, 250_000)], None, [0.25, 86400.0]),
        ([dt.datetime(1970, 1, 2), dt.datetime(1969, 12, 31)], "D", [-1.0, 1.0]),
        ([dt.date(1970, 1, 3), dt.date(1970, 1, 2)], "h", [24.0, 48.0]),
        ([dt.timedelta(hours=2), dt.timedelta(minutes=-30)], "h", [-0.5, 2.0]),
        ([dt.timedelta(milliseconds=3), dt.timedelta(microseconds=1)], "us", [1.0, 3000.0]),
        ([dt.timedelta(minutes=3), dt.timedelta(seconds=30)], "min", [0.5, 3.0]),
        ([dt.timedelta(seconds=3), dt.timedelta(seconds=1)], "ms", [1000.0, 3000.0]),
        ([dt.timedelta(microseconds=3), dt.timedelta(microseconds=1)], "ns", [1000.0, 3000.0]),
    ],
    ids=["datetime", "before 1970", "date", "duration", "us", "min", "ms", "ns"],
)
def test_datetimes_and_durations_are_read_in_the_given_unit(build, times, unit, expected):
    frame = build({"stay": ["a", "a"], "hour": times, "x": [2.0, 1.0]})
    series = read(frame, unit=unit)
    assert series.times.tolist() == expected
    assert series.values.tolist() == [[1.0], [2.0]]


def test_datetimes_with_a_time_zone_are_converted_to_utc(build):
    # clocks in Berlin go forward at 1:00 UTC, so 3 hours of local time are 2 hours
    times = [dt.datetime(2024, 3, 31, hour, tzinfo=BERLIN) for hour in (4, 1)]
    series = read(build({"stay": ["a", "a"], "hour": times, "x": [2.0, 1.0]}))
    assert series.times.tolist() == [dt.datetime(2024, 3, 31, hour, tzinfo=dt.UTC).timestamp() for hour in (0, 2)]


@pytest.mark.parametrize("kind", ["datetime64", "timedelta64"])
@pytest.mark.parametrize(("resolution", "expected"), [("ns", 0.123456), ("us", 0.123456), ("ms", 0.123)])
def test_every_resolution_is_read_to_the_microsecond(build, kind, resolution, expected):
    stamps = np.array(["1970-01-01T00:00:00.123456789", "2023-11-14T22:13:20.123456789"], dtype="datetime64[ns]")
    times = stamps.astype(f"datetime64[{resolution}]").astype(f"{kind}[{resolution}]")
    series = read(build({"stay": [1, 1], "hour": times, "x": [1.0, 2.0]}))
    assert series.times.tolist() == [expected, 1_700_000_000 + expected]
    assert IrregularSeries.from_long(series.to_long(), like=series) == series


def test_unknown_units_are_refused(build):
    frame = build({"stay": ["a"], "hour": [dt.timedelta(1)], "x": [1.0]})
    with pytest.raises(ValueError, match=r"unit='hours' is not known; choose one of.*'h'"):
        read(frame, unit="hours")


def test_a_unit_for_numeric_times_is_refused(build):
    with pytest.raises(ValueError, match=r"unit='h'.*'hour' \(time\) holds Float64.*leave unit out"):
        read(build(STAYS), unit="h")


# like -----------------------------------------------------------------------------------------------------------------


def test_like_reads_the_same_columns_and_categories(build):
    first = read(
        build(STAYS | {"ward": ["s", "n", "s", "n", "s"]}), static=["ward"], channels=["pulse"], dtype=torch.float64
    )
    frame = build({"pulse": [1, 2], "ward": ["n", "west"], "other": [1, 1], "hour": [0, 0], "stay": ["x", "y"]})
    series = IrregularSeries.from_long(frame, like=first)
    assert series.channel_names == ("pulse",)
    assert series.static_names == ("ward=n", "ward=s")
    assert series.static.tolist() == [[1, 0], [0, 0]]
    assert series.dtype == torch.float64
    assert IrregularSeries.from_long(frame, like=first, dtype=torch.float32).dtype == torch.float32


def test_like_ignores_added_channels(build):
    first = read(build(STAYS))
    assert IrregularSeries.from_long(build(STAYS), like=first.with_channels(counts="shared")) == first


def test_like_uses_the_same_unit(build):
    times = [dt.timedelta(hours=1), dt.timedelta(hours=3)]
    frame = build({"stay": ["a", "a"], "hour": times, "x": [2.0, 1.0]})
    assert IrregularSeries.from_long(frame, like=read(frame, unit="min")).times.tolist() == [60.0, 180.0]


def test_like_accepts_a_static_column_that_is_all_missing(build):
    columns = STAYS | {"ward": ["s", "n", "s", "n", "s"], "age": [1, 2, 1, 2, 1]}
    first = read(build(columns), static=["ward", "age"])
    series = IrregularSeries.from_long(build(columns | {"ward": [None] * 5, "age": [None] * 5}), like=first)
    assert same(series.static, [[0, 0, nan], [0, 0, nan]])


def test_like_accepts_a_table_without_a_static_column_that_had_missing_values(build):
    columns = STAYS | {"age": [1, None, 1, None, 1], "height": [2, 3, 2, 3, 2]}
    first = read(build(columns), static=["age", "height"])
    new = {name: column for name, column in columns.items() if name != "age"}
    with pytest.warns(UserWarning, match=r"the table has no column 'age': its values are not observed"):
        series = IrregularSeries.from_long(build(new), like=first)
    assert same(series.static, [[nan, 2], [nan, 3]])
    assert series.channel_names == first.channel_names
    with pytest.raises(ValueError, match=r"static: the table has no column 'height'"):
        IrregularSeries.from_long(
            build({name: new[name] for name in new if name != "height"} | {"age": [1] * 5}), like=first
        )


@pytest.mark.parametrize(
    "given",
    [
        {"id": "stay"},
        {"time": "hour"},
        {"static": ["ward"]},
        {"static": ("ward",)},
        {"channels": ["pulse"]},
        {"channels": ("pulse",)},
        {"static": np.array(["ward"]), "channels": np.array(["pulse"])},
        {"unit": "h"},
        {"id": "stay", "time": "hour", "static": ["ward"], "channels": ["pulse"], "unit": "h"},
    ],
    ids=str,
)
def test_like_accepts_arguments_that_agree_with_it(given):
    hours = [dt.timedelta(hours=hour) for hour in STAYS["hour"]]
    frame = pd.DataFrame(STAYS | {"hour": hours, "ward": [1.0] * 5})
    first = read(frame, static=["ward"], channels=["pulse"], unit="h")
    assert IrregularSeries.from_long(frame, like=first, **given) == first


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"id": "hour"}, "id='hour' differs from like=, which has id='stay'; leave id out"),
        ({"time": "pulse"}, "time='pulse' differs from like=, which has time='hour'"),
        ({"static": ["pulse"]}, r"static=\['pulse'\] differs from like=, which has static=\[\]"),
        (
            {"channels": ["pulse"]},
            r"channels=\['pulse'\] differs from like=, which has channels=\['pulse', 'temperature'\]",
        ),
        ({"channels": ["temperature", "pulse"]}, r"channels=\['temperature', 'pulse'\] differs"),
        ({"channels": np.array(["temperature", "pulse"])}, r"channels=\['temperature', 'pulse'\] differs"),
        ({"unit": "s"}, "unit='s' differs from like=, which has unit=None"),
        ({"id": "stay", "time": "day"}, "time='day' differs"),
    ],
    ids=str,
)
def test_like_refuses_arguments_that_differ_from_it(given, found):
    frame = pd.DataFrame(STAYS)
    with pytest.raises(ValueError, match=found):
        IrregularSeries.from_long(frame, like=read(frame), **given)


def test_like_refuses_another_kind_of_time(build):
    numbers, dates = build(STAYS), build(STAYS | {"hour": [dt.datetime(2020, 1, d) for d in range(1, 6)]})
    with pytest.raises(TypeError, match=r"'hour' \(time\) holds Datetime.*like= held numbers; convert"):
        IrregularSeries.from_long(dates, like=read(numbers))
    with pytest.raises(TypeError, match=r"'hour' \(time\) holds Float64.*like= held datetimes; convert"):
        IrregularSeries.from_long(numbers, like=read(dates, unit="h"))


def test_like_refuses_another_kind_of_static_column(build):
    numbers, text = build(STAYS | {"ward": [1] * 5}), build(STAYS | {"ward": ["n"] * 5})
    with pytest.raises(TypeError, match=r"static column 'ward' holds String, but like= held numbers; convert"):
        IrregularSeries.from_long(text, like=read(numbers, static=["ward"]))
    with pytest.raises(
        TypeError, match=r"static column 'ward' holds Int64, but like= held text, one of \['n'\]; convert"
    ):
        IrregularSeries.from_long(numbers, like=read(text, static=["ward"]))


# writing --------------------------------------------------------------------------------------------------------------

TIMES = {
    "numbers": ([2.0, 0.5, 0.0, 0.0, 1.0], None),
    "datetimes": ([dt.datetime(2020, 1, 1, hour, 0, 0, 1) for hour in (3, 2, 1, 1, 2)], "h"),
    "time zone": ([dt.datetime(2024, 3, 31, hour, tzinfo=dt.UTC).astimezone(BERLIN) for hour in (3, 2, 0, 0, 1)], "D"),
    "dates": ([dt.date(1960, 1, day) for day in (3, 2, 1, 1, 2)], "D"),
    "durations": ([dt.timedelta(minutes=x, microseconds=7) for x in (2, 3, -1, 0, 1)], "s"),
}


@pytest.mark.parametrize("target", [None, "pandas", "polars", "pyarrow"])
@pytest.mark.parametrize("kind", TIMES)
def test_tables_survive_a_round_trip(build, backend, kind, target):
    times, unit = TIMES[kind]
    static = {"ward": ["n", None, "n", None, "n"], "age": [1.5, 2, 1.5, 2, 1.5]}
    series = read(build(STAYS | {"hour": times} | static), static=list(static), unit=unit)
    frame = series.to_long(target)
    assert type(frame).__module__.split(".")[0] == (target or backend)
    assert IrregularSeries.from_long(frame, like=series) == series
    assert nw.from_native(frame).columns == ["stay", "hour", "pulse", "temperature", "ward", "age"]
    found = [row["hour"] for row in rows_of(frame)]
    expected = [times[row] for row in (2, 4, 0, 3, 1)]
    if kind == "dates":
        expected = [dt.datetime.combine(day, dt.time()) for day in expected]
    assert found == expected
    if kind == "time zone":
        assert nw.from_native(frame).schema["hour"].time_zone == "Europe/Berlin"


@pytest.mark.parametrize("ids", [["b", "a", "b", "a", "b"], [2, 1, 2, 1, 2]], ids=["text", "int"])
def test_ids_survive_a_round_trip(build, ids):
    series = read(build(STAYS | {"stay": ids}))
    assert [row["stay"] for row in rows_of(series.to_long())] == ids[:1] * 3 + ids[1:2] * 2
    assert IrregularSeries.from_long(series.to_long(), like=series) == series


def test_float64_values_survive_a_round_trip(build):
    series = read(build(STAYS | {"pulse": [1 / 3] * 5}), dtype=torch.float64)
    assert IrregularSeries.from_long(series.to_long(), like=series) == series


def test_unobserved_values_are_written_as_null(build):
    column = nw.from_native(read(build(STAYS)).to_long())["temperature"]
    assert column.null_count() == 3


def test_missing_text_is_written_as_null(build):
    frame = read(build(STAYS | {"ward": ["n", None, "n", None, "n"]}), static=["ward"]).to_long()
    assert nw.from_native(frame)["ward"].is_null().to_list() == [False] * 3 + [True] * 2


def test_added_channels_are_not_written(build):
    series = read(build(STAYS))
    frame = series.with_channels(counts="per_channel", start=True).to_long()
    assert nw.from_native(frame).columns == ["stay", "hour", "pulse", "temperature"]
    assert IrregularSeries.from_long(frame, like=series) == series


def test_an_empty_table_keeps_its_column_types(build):
    frame = nw.from_native(read(build(STAYS | {"ward": ["n"] * 5}), static=["ward"])[:0].to_long())
    assert len(frame) == 0
    assert frame.schema == {
        "stay": nw.String,
        "hour": nw.Float64,
        "pulse": nw.Float32,
        "temperature": nw.Float32,
        "ward": nw.String,
    }


def test_series_from_arrays_can_be_written(backend):
    series = IrregularSeries.from_list(
        [([0, 1], [[1.0], [nan]]), ([5], [[2.0]])], static=[[1.0, 2.0], [nan, 0.0]], static_names=["age", "weight"]
    )
    frame = series.to_long(backend)
    assert nw.from_native(frame).columns == ["id", "time", "x0", "age", "weight"]
    assert IrregularSeries.from_long(frame, like=series) == series


def test_series_with_gradients_can_be_written():
    times, values = torch.arange(2.0, requires_grad=True), torch.ones(2, 1, requires_grad=True)
    assert IrregularSeries.from_list([(times, values)]).to_long("pandas")["x0"].tolist() == [1.0, 1.0]


def test_repeated_ids_cannot_be_written(build):
    with pytest.raises(ValueError, match=r"'a' occurs 2 times.*ids=np.arange"):
        read(build(STAYS))[[0, 1, 1]].to_long()


@pytest.mark.parametrize(
    ("names", "repeated"), [({"channels": ["time"]}, "time"), ({"channels": ["age"], "static_names": ["age"]}, "age")]
)
def test_equal_names_cannot_be_written(backend, names, repeated):
    series = IrregularSeries.from_list([([0.0], [[1.0]])], static=[[2.0]], **names)
    with pytest.raises(ValueError, match=rf"two columns '{repeated}'.*Rename"):
        series.to_long(backend)


def test_scaled_datetimes_cannot_be_written(build):
    series = read(build(STAYS | {"hour": [dt.datetime(2020, 1, day) for day in range(1, 6)]}))
    scaler = SeriesScaler().fit(series)
    with pytest.raises(ValueError, match=r"times are scaled.*inverse_transform"):
        scaler.transform(series).to_long()
    back = scaler.inverse_transform(scaler.transform(series)).to_long()
    assert [row["hour"] for row in rows_of(back)] == [row["hour"] for row in rows_of(series.to_long())]


# errors ---------------------------------------------------------------------------------------------------------------


def test_tables_without_rows_are_refused(build):
    frame = build({"stay": pa.array([], pa.string()).to_numpy(False), "hour": np.empty(0), "x": np.empty(0)})
    with pytest.raises(ValueError, match=r"frame has no rows; expected at least one"):
        read(frame)


def test_id_and_time_are_required(build):
    with pytest.raises(TypeError, match=r"needs the names of the id and time columns, e.g. id='stay'"):
        IrregularSeries.from_long(build(STAYS), id="stay")


@pytest.mark.parametrize(
    ("argument", "options"),
    [
        ("id", {"id": "sty", "time": "hour"}),
        ("time", {"id": "stay", "time": "sty"}),
        ("static", {"id": "stay", "time": "hour", "static": ["sty"]}),
        ("channels", {"id": "stay", "time": "hour", "channels": ["pulse", "sty"]}),
    ],
)
def test_unknown_columns_are_refused(build, argument, options):
    with pytest.raises(
        ValueError, match=rf"{argument}: the table has no column 'sty'; its columns are \['stay', 'hour'"
    ):
        IrregularSeries.from_long(build(STAYS), **options)


def test_the_error_about_a_column_in_the_index_suggests_reset_index():
    with pytest.raises(ValueError, match=r"no column 'stay'.*reset_index"):
        read(pd.DataFrame(STAYS).set_index("stay"))


def test_column_names_that_are_not_text_are_refused():
    frame = pd.DataFrame(STAYS).rename(columns={"pulse": 0})
    with pytest.raises(TypeError, match=r"columns named \[0\].*astype\(str\)"):
        read(frame)


@pytest.mark.parametrize("argument", ["static", "channels"])
def test_text_instead_of_a_list_is_refused(build, argument):
    with pytest.raises(TypeError, match=rf"{argument} must be a list of column names.*write \['pulse'\]"):
        read(build(STAYS), **{argument: "pulse"})


def test_a_column_named_twice_is_refused(build):
    with pytest.raises(ValueError, match=r"'pulse' is named twice.*name it once"):
        read(build(STAYS), static=["pulse"], channels=["pulse"])


def test_an_empty_list_of_channels_is_refused(build):
    with pytest.raises(ValueError, match=r"channels is empty; name at least one column"):
        read(build(STAYS), channels=[])


def test_tables_without_a_channel_are_refused(build):
    with pytest.raises(
        ValueError, match=r"no column for the channels \(numbers, or text.*only 'day' \(Datetime.*Convert"
    ):
        read(build({"stay": ["a"], "hour": [0.0], "day": [dt.datetime(2020, 1, 1)]}))
    with pytest.raises(ValueError, match=r"no column for the channels.*add one"):
        read(build({"stay": ["a"], "hour": [0.0]}))


@pytest.mark.parametrize(
    "frame",
    [STAYS, np.zeros((3, 3)), [STAYS], pd.Series([1.0]), None],
    ids=["dict", "numpy", "list", "pandas series", "none"],
)
def test_other_types_of_tables_are_refused(frame):
    kind = f"{type(frame).__module__}.{type(frame).__name__}"
    with pytest.raises(TypeError, match=rf"frame must be a pandas, polars or pyarrow table, got {kind}.*from_list"):
        read(frame)


def test_the_error_about_a_lazy_frame_suggests_collect():
    with pytest.raises(TypeError, match=r"LazyFrame. Call .collect\(\) first"):
        read(pl.LazyFrame(STAYS))


@pytest.mark.parametrize("missing", [None, nan])
def test_missing_ids_are_refused(build, missing):
    text = ["a", None, "b", "b", None] if missing is None else [1.0, nan, 2.0, 2.0, nan]
    with pytest.raises(ValueError, match=r"'stay' \(id\) has missing values, 2 of 5, the first in row 1;.*Drop"):
        read(build(STAYS | {"stay": text}))


@pytest.mark.parametrize(
    "build", [pd.Series, lambda items, dtype: pl.Series(items, dtype=pl.Object)], ids=["pandas", "polars"]
)
def test_ids_of_mixed_types_are_refused(build):
    column = build([1, "a", 1, "a", 1.5], dtype=object)
    frame = (pd.DataFrame if isinstance(column, pd.Series) else pl.DataFrame)(STAYS | {"stay": column})
    with pytest.raises(TypeError, match=r"'stay' \(id\) mixes types \['float', 'int', 'str'\].*astype\(str\)"):
        read(frame)


@pytest.mark.parametrize("time", [nan, float("inf"), -float("inf")])
def test_times_that_are_not_finite_are_refused(build, time):
    with pytest.raises(ValueError, match=rf"series 'a' has hour={time} in row 3.*finite. Drop"):
        read(build(STAYS | {"hour": [2.0, 0.5, 0.0, time, 1.0]}))


@pytest.mark.parametrize("times", [[None, dt.datetime(2020, 1, 1)], [None, dt.timedelta(1)], [None, 1], [None, None]])
def test_missing_times_are_refused(build, times):
    with pytest.raises(ValueError, match=r"series 7 has hour=nan in row 0.*Drop"):
        read(build({"stay": [7, 7], "hour": times, "x": [1.0, 2.0]}))


def test_text_as_time_is_refused(build):
    with pytest.raises(
        TypeError, match=r"'hour' \(time\) holds String, e.g. '08:00'; expected .*datetimes.*Convert it"
    ):
        read(build(STAYS | {"hour": ["08:00"] * 5}))


@pytest.mark.parametrize(
    ("build", "column"),
    [
        (pd.DataFrame, np.ones(5, dtype=np.float16)),
        (pl.DataFrame, pl.Series(np.ones(5, dtype=np.float16))),
        (pa.table, pa.array(np.ones(5, dtype=np.float16))),
        (pd.DataFrame, np.ones(5, dtype=np.complex64)),
        (pl.DataFrame, pl.Series([1j] * 5, dtype=pl.Object)),
        (pl.DataFrame, [[1.0]] * 5),
        (pa.table, [dt.datetime(2020, 1, 1)] * 5),
    ],
    ids=["pandas half", "polars half", "pyarrow half", "pandas complex", "polars complex", "list", "datetime"],
)
def test_half_complex_and_other_types_are_refused_if_named(build, column):
    frame = build(STAYS | {"x": column})
    with pytest.raises(TypeError, match=r"'x' \(channels\) holds .*expected a numeric column or text. Convert it\."):
        read(frame, channels=["x"])
    with pytest.raises(TypeError, match=r"'x' \(static\) holds .*expected a numeric column or text. Convert"):
        read(frame, static=["x"])
    with pytest.warns(UserWarning, match=r"left out, because they are not numbers, or text .*: 'x' \(.*Convert"):
        assert read(frame).channel_names == ("pulse", "temperature")


@pytest.mark.parametrize(
    ("column", "found"),
    [([30, 50, 31, 50, 30], "30.0 and 31.0"), (["m", "f", "f", None, None], "'f' and 'm'")],
    ids=["number", "text"],
)
def test_static_values_that_vary_are_refused(build, column, found):
    with pytest.raises(
        ValueError, match=rf"static column 'age' varies within series 'b': {found}.*one value per series"
    ):
        read(build(STAYS | {"age": column}), static=["age"])


def test_an_empty_static_text_column_is_refused():
    frame = pd.DataFrame(STAYS | {"ward": pd.Series([None] * 5, dtype="str")})
    with pytest.raises(ValueError, match=r"static column 'ward' is empty; leave it out"):
        read(frame, static=["ward"])


@pytest.mark.parametrize(("age", "dtype"), [(float("inf"), torch.float64), (1e300, torch.float32)])
def test_infinite_static_values_are_refused(build, age, dtype):
    frame = build(STAYS | {"age": [1.0, age, 1.0, age, 1.0]})
    with pytest.raises(ValueError, match=r"series 'a' has the static feature age=inf.*NaN"):
        read(frame, static=["age"], dtype=dtype)


def test_infinite_values_are_refused(build):
    with pytest.raises(ValueError, match=r"series 'a' has pulse=-inf at hour=0.5; .*float32.*NaN"):
        read(build(STAYS | {"pulse": [1.0, -float("inf"), 3.0, 4.0, 5.0]}))


def test_values_too_large_for_float32_are_refused(build):
    frame = build(STAYS | {"pulse": [1.0, 1e39, 3.0, 4.0, 5.0]})
    with pytest.raises(ValueError, match=r"series 'a' has pulse=inf at hour=0.5.*dtype=torch.float64"):
        read(frame)
    assert read(frame, dtype=torch.float64).values[-1, 0] == 1e39


@pytest.mark.parametrize(
    ("times", "shown"),
    [
        ([2.0, 7.5, 0.0, 7.5, 1.0], "hour=7.5"),
        ([1700000001, 1700000000, 1700000003, 1700000000, 1700000004], "hour=1700000000.0"),
        ([dt.datetime(2020, 1, 1, 12, 30) for _ in range(5)], "hour=2020-01-01T12:30"),
        ([dt.datetime(2020, 1, 1, 12, 30, tzinfo=BERLIN) for _ in range(5)], "hour=2020-01-01T11:30Z"),
        ([dt.timedelta(minutes=90) for _ in range(5)], "hour=1.5 h"),
    ],
    ids=["number", "unix", "datetime", "time zone", "duration"],
)
def test_rows_at_the_same_time_are_refused(build, times, shown):
    unit = None if isinstance(times[0], (int, float)) else "h"
    frame = build({"stay": [1, 2, 3, 2, 4], "hour": times, "x": [1.0] * 5})
    with pytest.raises(ValueError, match=rf'series 2 has two rows at {shown}; times must increase.*duplicates="mean"'):
        read(frame, unit=unit)


def test_rows_at_the_same_time_can_be_merged(build):
    columns = {"stay": ["a", "b", "a", "a"], "hour": [1.0, 1.0, 1.0, 0.0]}
    frame = build(columns | {"x": [2.0, 7.0, 4.0, 0.0], "y": [1.0, None, None, None]})
    mean, last = read(frame, duplicates="mean"), read(frame, duplicates="last")
    assert mean.times.tolist() == last.times.tolist() == [0.0, 1.0, 1.0]
    assert same(mean.values, [[0.0, nan], [3.0, 1.0], [7.0, nan]])
    assert same(last.values, [[0.0, nan], [4.0, 1.0], [7.0, nan]])


@pytest.mark.wrong_types
@pytest.mark.parametrize("dtype", [torch.float16, torch.int64, "float32"])
def test_unsupported_dtypes_are_refused(dtype):
    with pytest.raises(TypeError, match=r"dtype must be torch.float32 or torch.float64, got"):
        read(pd.DataFrame(STAYS), dtype=dtype)


def test_object_columns_of_python_datetimes_are_read():
    stamps = [dt.datetime(2020, 1, 1, 12), dt.datetime(2020, 1, 1, 12, 30), None]
    frame = pd.DataFrame({"stay": [1, 1, 1], "at": pd.Series(stamps, dtype=object), "x": [0.0, 1.0, 2.0]})[:2]
    series = IrregularSeries.from_long(frame, id="stay", time="at", unit="min")
    assert series.times.diff().tolist() == [30.0]


@pytest.mark.parametrize("zone", ["America/New_York", "Etc/GMT+5", "Europe/Berlin"])
@pytest.mark.parametrize("backend", ["pandas", "polars"])
def test_time_zones_of_any_name_are_read_and_written(zone, backend):
    stamps = pd.to_datetime(["2024-01-01 00:00", "2024-07-01 12:00"]).tz_localize(zone)
    frame = pd.DataFrame({"stay": [1, 1], "hour": stamps, "pulse": [1.0, 2.0]})
    series = read(frame)
    assert series.times.tolist() == [stamp.timestamp() for stamp in stamps]
    assert series.format.time_zone == zone
    again = series.to_long(backend)
    assert IrregularSeries.from_long(again, like=series) == series
    assert pd.Series(again["hour"].to_list()).tolist() == stamps.tolist()


def test_time_zones_unknown_to_polars_are_written_in_utc():
    stamps = pd.to_datetime(["2024-01-01T00:00+01:00", "2024-01-01T01:00+01:00"])
    series = read(pd.DataFrame({"stay": [1, 1], "hour": stamps, "pulse": [1.0, 2.0]}))
    assert IrregularSeries.from_long(series.to_long("polars"), like=series) == series


def test_concat_of_different_kinds_of_time_is_refused():
    naive = pd.to_datetime(["2024-01-01 00:00", "2024-01-01 01:00"])
    kinds = [naive, naive.tz_localize("Asia/Tokyo"), pd.to_timedelta(["1h", "2h"]), [0.0, 1.0]]
    parts = [read(pd.DataFrame({"stay": [k, k], "hour": times, "pulse": [1.0, 2.0]})) for k, times in enumerate(kinds)]
    for k in (1, 2, 3):
        with pytest.raises(ValueError, match=r"parts\[1\] has times that are"):
            IrregularSeries.concat([parts[0], parts[k]])
    assert len(IrregularSeries.concat([parts[1], parts[1]])) == 2


def test_series_remember_whether_their_table_was_sorted():
    sorted_table = pl.DataFrame({"stay": [0, 0, 1], "hour": [0.0, 1.0, 0.0], "pulse": [1.0, 2.0, 3.0]})
    mixed_table = pl.DataFrame({"stay": [2, 3, 2], "hour": [0.0, 1.0, 1.0], "pulse": [1.0, 2.0, 3.0]})
    ordered, mixed = read(sorted_table), read(mixed_table)
    assert ordered.format.in_order
    assert not mixed.format.in_order
    assert not IrregularSeries.concat([ordered, mixed]).format.in_order
    assert not IrregularSeries.concat([ordered[1:], ordered[:1]]).format.in_order
    assert IrregularSeries.from_list([([0.0], [[1.0]])] * 2)[[1, 0]].format.in_order
    assert ordered[[0, 1]].format.in_order
    assert not ordered[[1, 0]].format.in_order
    assert not ordered[::-1].format.in_order
