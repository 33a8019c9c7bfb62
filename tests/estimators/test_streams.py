"""Streams of estimators: they say what a prediction on the same rows says, and keep time."""

import dataclasses
import datetime

import numpy as np
import pandas as pd
import pytest
import torch

import neuralcde as nc
from neuralcde._native import kernels
from neuralcde.estimators.streams import OldTimeError, UnknownStreamError
from neuralcde.models import PathModel
from neuralcde.series import FarValueWarning
from registered import members
from solve_cases import on_engine

QUICK = {"max_epochs": 1, "hidden": 5, "width": 6, "depth": 1, "validation_fraction": 0, "random_state": 0}
MODELS = list(members(PathModel.registry))
CAUSAL = [nc.Linear(), nc.Hermite(), nc.Rectilinear()]


def table(seed=0, count=30):
    """Stays with numbers, text, missing values, a constant column and static columns, one of them with blanks."""
    rng = np.random.default_rng(seed)
    rows = []
    for stay in range(count):
        size = rng.integers(1, 7)
        age, sex = float(rng.normal(60, 9)), str(rng.choice(["f", "m"]))
        for hour in np.sort(rng.choice(np.arange(0, 24, 0.5), size, replace=False)):
            pulse, lactate = rng.normal(80, 20), np.exp(rng.normal())
            rows.append(
                {
                    "stay": f"s{stay}",
                    "hour": hour,
                    "pulse": pulse if rng.random() < 0.6 else None,
                    "lactate": lactate if rng.random() < 0.3 else None,
                    "ascites": str(rng.choice(["Yes", "No"])) if rng.random() < 0.5 else None,
                    "flat": 1.0,
                    "age": age if stay % 4 else None,
                    "sex": sex,
                }
            )
    return pd.DataFrame(rows)


FRAME = table()
SERIES = nc.IrregularSeries.from_long(FRAME, id="stay", time="hour", static=["age", "sex"])
Y = np.arange(len(SERIES)) % 2
pytestmark = pytest.mark.filterwarnings("ignore:the channels")


def given(row):
    """Values and static features of a row of the table, as a user writes them."""
    values = {name: row[name] for name in ("pulse", "lactate", "ascites", "flat") if not pd.isna(row[name])}
    return values, {name: row[name] for name in ("age", "sex") if not pd.isna(row[name])}


def fitted(model="neural_cde", kind=nc.NeuralCDEClassifier, y=Y, members=1, **options):
    """A fitted estimator. The members of an ensemble are fitted here, without processes of their own."""
    first, *others = [kind(model, **QUICK | {"random_state": k}, **options).fit(SERIES, y) for k in range(members)]
    first.members_ += [other.members_[0] for other in others]
    first.members = first._fitted_params["members"] = members
    return first


def replayed(clf, streams=None):
    """The predictions that pushes gave, at every row of the table."""
    streams = clf.stream() if streams is None else streams
    found = []
    for _, row in FRAME.iterrows():
        values, static = given(row)
        first = row["stay"] not in streams
        found.append(streams.push(row["stay"], row["hour"], values, static=static if first else None))
    return np.array(found), streams


def at_rows(clf):
    """The predictions at every row, by `predict_*_at`."""
    predict = clf.predict_proba_at if hasattr(clf, "predict_proba_at") else clf.predict_at
    found = [predict(one, one.times)[0] for one in SERIES]
    return np.concatenate(found)


@pytest.mark.parametrize("path", CAUSAL, ids=lambda t: repr(t)[:9])
@pytest.mark.parametrize("model", MODELS)
def test_pushes_give_the_predictions_of_the_rows_so_far(model, path):
    clf = fitted(model, path=path)
    found, streams = replayed(clf)
    np.testing.assert_allclose(found, at_rows(clf), rtol=1e-5, atol=1e-5)
    final = np.array([streams.peek(id, None) for id in SERIES.ids])
    np.testing.assert_allclose(final, clf.predict_proba(SERIES), rtol=1e-5, atol=1e-5)
    later = np.array([streams.peek(id, 27.5) for id in SERIES.ids])
    np.testing.assert_allclose(later, clf.predict_proba_at(SERIES, [27.5])[:, 0], rtol=1e-5, atol=1e-5)
    if kernels is not None:
        assert streams._stepper.engine.startswith("native")


ENSEMBLES = {
    "encoder and summaries": {"encoder": "mlp", "readout": "summary"},
    "robust scaling": {"scale": "robust"},
    "an ensemble": {"members": 2},
    "with boosting": {"members": 2, "boosting": True, "encoder": "mlp", "readout": "summary"},
    "boosting without intensity": {"boosting": True, "intensity": False},
    "per row": {"per_row": True},
}


@pytest.mark.parametrize("case", ENSEMBLES)
def test_they_do_for_encoders_and_ensembles(case, engine):
    options = ENSEMBLES[case]
    y = np.arange(len(SERIES.times)) % 2 if options.get("per_row") else Y
    clf = fitted(y=y, **options)
    found, _ = replayed(clf)
    np.testing.assert_allclose(found, at_rows(clf), rtol=1e-5, atol=1e-5)


def test_they_do_for_numbers_and_several_classes():
    for kind, y in (
        (nc.NeuralCDERegressor, Y * 3.0),
        (nc.NeuralCDERegressor, np.stack([Y, 2.0 * Y], axis=1)),
        (nc.NeuralCDEClassifier, np.arange(len(Y)) % 3),
    ):
        clf = fitted(kind=kind, y=y)
        np.testing.assert_allclose(replayed(clf)[0], at_rows(clf), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("options", [{}, {"encoder": "mlp", "readout": "summary", "boosting": True}], ids=str)
def test_a_peek_is_the_prediction_until_then_and_changes_nothing(options):
    clf = fitted(**options)
    _, streams = replayed(clf)
    before = streams.to_bytes()
    for t in (30.0, 24.5):
        found = np.array([streams.peek(id, t) for id in SERIES.ids])
        np.testing.assert_allclose(found, clf.predict_proba_at(SERIES, [t])[:, 0], rtol=1e-5, atol=1e-5)
    assert streams.to_bytes() == before


def test_a_row_without_observations_is_recorded():
    clf = fitted(pool="mean")
    _, streams = replayed(clf)
    pushed = streams.push("s1", 40.0, {})
    one = SERIES[1:2].until(40.0)
    np.testing.assert_allclose(pushed, clf.predict_proba(one)[0], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(streams.peek("s1", 41.0), clf.predict_proba(one.until(41.0))[0], rtol=1e-5, atol=1e-5)


def test_many_at_once_equal_one_by_one():
    clf = fitted(encoder="mlp", boosting=True)
    one_by_one, single = replayed(clf)
    many, found = clf.stream(), np.full(one_by_one.shape, np.nan)
    for step in range(int(SERIES.lengths.max())):
        at = np.flatnonzero((SERIES.lengths > step).numpy())
        rows = SERIES.offsets[at] + step
        static = SERIES.static[at].numpy()
        found[rows] = many.push_many(SERIES.ids[at], SERIES.times[rows].numpy(), SERIES.values[rows], static=static)
    np.testing.assert_allclose(found, one_by_one, rtol=1e-6, atol=1e-6)
    assert many.ids == SERIES.ids.tolist()
    ends = SERIES.offsets[1:] - 1
    again = many.push_many(SERIES.ids, SERIES.times[ends].numpy(), SERIES.values[ends])  # counts once
    np.testing.assert_array_equal(again, found[ends])
    assert many.push_many(SERIES.ids, np.full(len(SERIES), 50.0), SERIES.values[ends], predict=False) is None
    assert len(single) == len(many) == len(SERIES)


def test_time_rules():
    streams = fitted().stream()
    first = streams.push("a", 1.0, {"pulse": 80}, static={"age": 60})
    state = streams.to_bytes()
    assert (streams.push("a", 1, {"pulse": 80.0}) == first).all()
    assert (streams.push("a", 1, {"pulse": 80.0, "lactate": None}, static={"age": 60.0}) == first).all()
    for t, values in ((1.0, {"pulse": 81}), (1.0, {}), (0.5, {"pulse": 80})):
        with pytest.raises(OldTimeError, match=r"stream 'a' has a row at hour=1.0 already, and times must increase"):
            streams.push("a", t, values)
    with pytest.raises(OldTimeError, match=r"stream 'a' has a row at hour=1.0 already"):
        streams.peek("a", 0.0)
    with pytest.raises(OldTimeError, match="stream 'a' has a row"):
        streams.push_many(["b", "a"], [1.0, 1.0], np.zeros((2, 5)))
    with pytest.raises(ValueError, match="stream 'a' has other static features"):
        streams.push("a", 2.0, {}, static={"age": 61})
    assert streams.to_bytes() == state
    assert "b" not in streams
    assert streams.last_time("a") == 1.0


def test_ids_may_be_numbers_and_streams_can_be_removed():
    streams = fitted().stream()
    for id in (*range(40), "text", 2.5, np.int64(40)):
        streams.push(id, 0.0, {"pulse": 60.0 + float(len(streams))})
    assert streams.ids[-3:] == ["text", 2.5, 40]
    kept = streams.peek(7, 3.0)
    streams.remove(3)
    assert 3 not in streams
    with pytest.raises(UnknownStreamError, match="there is no stream 3; push its first row"):
        streams.peek(3, 1.0)
    fresh = streams.push("new", 0.0, {"pulse": 63.0})
    np.testing.assert_array_equal(fresh, fitted().stream().push("x", 0.0, {"pulse": 63.0}))
    np.testing.assert_array_equal(streams.peek(7, 3.0), kept)
    for wrong in (True, None, float("nan"), "", [1], "x" * 300):
        with pytest.raises(ValueError, match="id"):
            streams.push(wrong, 0.0, {})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"pluse": 1.0}, r"stream 'a': there is no channel 'pluse'; the model knows 'pulse', 'lactate', 'ascites'"),
        ({"pulse": "high"}, r"stream 'a': channel 'pulse' is 'high'; expected a number"),
        ({"pulse": float("inf")}, r"stream 'a': channel 'pulse' is inf; leave it out"),
        ({"pulse": 1e300}, r"stream 'a': channel 'pulse' is 1e\+300"),
        ({"pulse": 10**400}, r"stream 'a': channel 'pulse' is inf"),
        ({"ascites": 1}, r"stream 'a': channel 'ascites' is text, such as 'No', got 1"),
        ([1.0], r"expected a channel -> value dictionary, got list"),
    ],
)
def test_rows_that_do_not_fit_are_refused(values, message):
    streams = fitted().stream()
    with pytest.raises(ValueError, match=message):
        streams.push("a", 0.0, values)
    assert "a" not in streams


@pytest.mark.parametrize("t", [float("nan"), float("inf"), "noon", None, 10**400], ids=lambda t: repr(t)[:9])
def test_times_that_are_not_times_are_refused(t):
    with pytest.raises((ValueError, TypeError), match="stream 'a': t="):
        fitted().stream().push("a", t, {})


def test_dates():
    frame = FRAME.assign(hour=pd.Timestamp("2026-01-01", tz="UTC") + pd.to_timedelta(FRAME["hour"], unit="h"))
    series = nc.IrregularSeries.from_long(frame, id="stay", time="hour", static=["age", "sex"], unit="h")
    clf = nc.NeuralCDEClassifier(**QUICK).fit(series, Y)
    streams = clf.stream()
    for _, row in frame[frame.stay == "s1"].iterrows():
        values, static = given(row)
        found = streams.push("s1", row["hour"].to_pydatetime(), values, static=None if "s1" in streams else static)
    np.testing.assert_allclose(found, clf.predict_proba(series[1:2])[0], rtol=1e-5, atol=1e-5)
    later = datetime.datetime(2026, 1, 2, 12, tzinfo=datetime.UTC)
    expected = clf.predict_proba_at(series[1:2], [later])[0, 0]
    np.testing.assert_allclose(streams.peek("s1", later), expected, rtol=1e-5, atol=1e-5)
    with pytest.raises(OldTimeError, match="hour=2026-01-01T"):
        streams.push("s1", datetime.datetime(2025, 1, 1, tzinfo=datetime.UTC), {})


@pytest.mark.parametrize("options", [{}, {"members": 2, "boosting": True, "encoder": "mlp"}], ids=str)
def test_saved_states_go_on(options, tmp_path):
    clf = fitted(**options)
    _, streams = replayed(clf)
    streams.push(7, 0.0, {"pulse": 70.0})
    streams.save(tmp_path / "states.safetensors")
    clf.save(tmp_path / "model")
    again = nc.load(tmp_path / "model").stream(tmp_path / "states.safetensors")
    assert again.ids == streams.ids
    for id in again.ids:
        np.testing.assert_array_equal(again.push(id, 99.0, {"lactate": 2}), streams.push(id, 99.0, {"lactate": 2}))


def test_states_of_other_models_and_damaged_files_are_refused(tmp_path):
    clf, other = fitted(), fitted("gru_d")
    _, streams = replayed(clf)
    file = tmp_path / "states.safetensors"
    streams.save(file)
    with pytest.raises(ValueError, match="its states are those of another model"):
        other.stream(file)
    content = file.read_bytes()
    for damaged in (b"", content[:-1], content[:40], b"\0" * 100):
        file.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"states.safetensors is damaged"):
            clf.stream(file)
    with pytest.raises(FileNotFoundError, match="there are no states"):
        clf.stream(tmp_path / "none")


def test_models_that_look_ahead_have_no_streams():
    with pytest.raises(ValueError, match=r"NaturalCubic\(\) cannot run on streams"):
        fitted(path="natural_cubic").stream()
    with pytest.raises(ValueError, match="not fitted"):
        nc.NeuralCDEClassifier().stream()


def test_values_that_break_the_model_leave_the_stream_as_it_was():
    clf = fitted()
    streams = clf.stream()
    streams.push("a", 0.0, {"pulse": 80})
    state = streams.to_bytes()
    with torch.no_grad():
        clf.module_.readout.linear.bias.fill_(torch.inf)
    with pytest.raises(ValueError, match="the model's output for stream 'a' is not finite"):
        streams.push("a", 1.0, {"pulse": 80})
    with torch.no_grad():
        clf.module_.readout.linear.bias.fill_(0.0)
    assert streams.last_time("a") == 0.0
    assert len(streams.to_bytes()) == len(state)


@pytest.mark.parametrize(
    "options", [{"scale": "standard"}, {"scale": "robust"}, {"scale": "standard", "boosting": True}], ids=str
)
@pytest.mark.filterwarnings("ignore::neuralcde.series.FarValueWarning")
def test_far_values_are_treated_as_in_predictions(options, engine):
    frame = table(1, 80)
    series = nc.IrregularSeries.from_long(frame, id="stay", time="hour", static=["age", "sex"])
    clf = nc.NeuralCDEClassifier(**QUICK, **options).fit(series, np.arange(80) % 2)
    frame["pulse"] *= np.where(np.arange(len(frame)) % 5 == 1, 1000.0, 1.0)
    frame["age"] *= np.where(frame["stay"] == "s6", 100.0, 1.0)
    series, streams, found = clf.read_long(frame), clf.stream(), {}
    for _, row in frame.iterrows():
        values, static = given(row)
        first = row["stay"] not in streams
        found[row["stay"]] = streams.push(row["stay"], row["hour"], values, static=static if first else None)
    np.testing.assert_allclose(list(found.values()), clf.predict_proba(series), rtol=1e-5, atol=1e-5)
    assert streams.far_values == clf.preparation_.scaler.far_values(series).counts
    assert streams.far_values["pulse"] > 10
    assert streams.far_values["age"] == 1


def test_far_values_are_counted_and_warned_of():
    clf = fitted(scale="standard")
    streams = clf.stream()
    streams.push("a", 0.0, {"pulse": 80}, static={"age": 60})
    words = r"stream 'a': 'pulse' is 8000, far outside the range of the training series; .* treated as not observed"
    with pytest.warns(FarValueWarning, match=words):
        streams.push("a", 1.0, {"pulse": 8000})
    before = streams.to_bytes()
    streams.push("a", 1.0, {"pulse": 8000})  # the same row again is neither counted nor warned of
    assert streams.to_bytes() == before
    row = np.array([[8000.0, 1.0, 1.0, 0.0, 1.0]])
    with pytest.warns(FarValueWarning, match=r"stream 'b': 'pulse' is 8000, and 1 more, far outside"):
        streams.push_many(["a", "b", "c"], [2.0, 0.0, 0.0], np.concatenate([row * np.nan, row, row]))
    assert streams.far_values == {"pulse": 3}


def test_many_rows_are_taken_all_or_none():
    clf = fitted("gru_ode")
    clf.module_.steps = nc.FixedSteps(1e-4)
    streams = clf.stream()
    streams.push("a", 0.0, {"pulse": 80})
    before = streams.to_bytes()
    with pytest.raises(ValueError, match=r"a gap of .* takes .* steps"):
        streams.push_many(["new", "a"], [0.0, 1e4], np.zeros((2, 5)))
    with pytest.raises(
        ValueError, match=r"static has shape \(1, 1\); expected \(1, 3\): one row per id, with age, sex=f, sex=m"
    ):
        streams.push_many(["new"], [0.0], np.zeros((1, 5)), static=[[1.0]])
    assert streams.to_bytes() == before


def test_calibration_learnt_from_whole_series_is_left_out():
    clf = nc.NeuralCDEClassifier(**QUICK, calibrate="temperature").fit(SERIES, Y)
    with pytest.warns(UserWarning, match="predictions at given times are not calibrated"):
        found = clf.stream().push("s", 0.0, {"pulse": 80})
    unknown = dict.fromkeys(("lactate", "ascites", "flat", "age", "sex"))
    one = clf.read_long(pd.DataFrame([{"stay": "s", "hour": 0.0, "pulse": 80.0} | unknown]))
    with pytest.warns(UserWarning, match="predictions at given times are not calibrated"):
        np.testing.assert_allclose(found, clf.predict_proba_at(one, [0.0])[0, 0], rtol=1e-5, atol=1e-5)
    assert abs(found - clf.predict_proba(one)[0]).max() > 1e-4


def test_scaling_natively_equals_plain(monkeypatch):
    """Robust and standard scaling, values far outside and exactly at knots; plain equals what is fitted on."""
    if kernels is None:
        pytest.skip("the native kernels were not built or are turned off")
    for options in ({"scale": "robust"}, {"scale": "standard"}):
        clf = fitted(**options)
        rows = np.concatenate([SERIES.values.numpy(), SERIES.values.numpy() * 1e4, -SERIES.values.numpy()])
        ids, times = list(range(len(rows))), np.zeros(len(rows))
        streams = clf.stream()
        with pytest.warns(FarValueWarning):
            native = streams.push_many(ids, times, rows)
        on_engine(monkeypatch, "torch")
        with pytest.warns(FarValueWarning):
            plain = clf.stream().push_many(ids, times, rows)
        np.testing.assert_allclose(plain, native, rtol=1e-6, atol=1e-6)
        wide = dataclasses.replace(SERIES, values=SERIES.values * 1e4)
        prepared = torch.cat([clf.preparation_.series(one).values[:, -5:] for one in (SERIES, wide)])
        scaled = clf.preparation_.row_scaling().values(torch.from_numpy(rows[: len(prepared)]).double(), torch.float32)
        torch.testing.assert_close(scaled, prepared, rtol=1e-6, atol=1e-6, equal_nan=True)
        monkeypatch.undo()
