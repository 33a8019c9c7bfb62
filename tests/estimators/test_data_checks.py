"""Checks of a table before training: what gives the label away is named, and real tables raise no false alarm."""

import warnings

import numpy as np
import polars as pl
import pytest
from benchmarks.data import folder
from experiments.defaults_data import sepsis_cases

import neuralcde as nc
from neuralcde.datasets import icu_table
from neuralcde.estimators.data_checks import DataWarning, check_groups
from neuralcde.estimators.group_columns import is_group_column

DATA = folder()
STAYS = 120


def stays(**more):
    """A long table of stays with an outcome, and more columns: functions of the number of rows, the outcome and rng."""
    rng, parts = np.random.default_rng(0), []
    for stay in range(STAYS):
        rows, died = int(rng.integers(3, 9)), int(rng.random() < 0.3)
        times = np.sort(rng.uniform(0, 20, rows))
        columns = {"stay": [f"s{stay}"] * rows, "hour": times, "outcome": [died] * rows}
        columns["pulse"] = rng.normal(80 + 5 * died, 10, rows)
        columns["lactate"] = np.where(rng.random(rows) < 0.5, np.nan, rng.normal(1 + died, 0.7, rows))
        for name, make in more.items():
            columns[name] = np.broadcast_to(make(times, died, rng), rows)
        parts.append(pl.DataFrame(columns))
    return pl.concat(parts).with_row_index("row").fill_nan(None)


def checked(frame, **options):
    y = frame.group_by("stay", maintain_order=True).agg(pl.col("outcome").first())["outcome"].to_numpy()
    frame = frame.drop("outcome") if options.pop("rows", False) else frame.drop("outcome", "row")
    series = nc.IrregularSeries.from_long(frame, id="stay", time="hour", **options)
    return series, y, {(item.kind, name) for item in nc.check_data(series, y) for name in item.columns}


LEAKS = {
    "the outcome in other words": lambda t, died, rng: ["alive", "dead"][died],
    "the outcome as a code": lambda t, died, rng: [7.0, 3.0][died] if rng.random() < 0.98 else 5.0,
    "only observed in the dead": lambda t, died, rng: t[-1] + rng.random() if died else np.nan,
    "a part of the outcome": lambda t, died, rng: float(died and rng.random() < 0.7),
    "the time of the end": lambda t, died, rng: t[-1] + 0.1 * rng.random(),
    "a flag at the end": lambda t, died, rng: np.where(np.arange(len(t)) == len(t) - 1, float(died), 0.0),
}


@pytest.mark.parametrize("what", LEAKS)
def test_columns_that_give_the_label_away_are_named(what):
    series, y, found = checked(stays(leak=LEAKS[what]))
    assert ("outcome", "leak") in found
    assert {name for kind, name in found if kind == "outcome"} == {"leak"}
    with pytest.warns(DataWarning, match="'leak' gives the label away"):
        nc.NeuralCDEClassifier(max_epochs=1, hidden=4, width=4).fit(series, y)


def test_the_warning_comes_before_training():
    series, y, _ = checked(stays(leak=LEAKS["the outcome in other words"]))
    with warnings.catch_warnings():
        warnings.simplefilter("error", DataWarning)
        with pytest.raises(DataWarning):
            nc.NeuralCDEClassifier(max_epochs=1).fit(series, y, callbacks=[lambda row: pytest.fail("too late")])


def test_a_static_column_is_checked_too():
    frame = stays(leak=LEAKS["the outcome in other words"])
    assert checked(frame, static=["leak"])[2] == {("outcome", "leak")}


def test_other_kinds_of_findings():
    rng = np.random.default_rng(1)
    age = {stay: float(rng.integers(20, 90)) for stay in range(STAYS)}
    number = iter(range(STAYS))
    frame = stays(
        age=lambda t, died, rng: age[int(rng.integers(STAYS))],
        chart=lambda t, died, rng: float(next(number)),
        seldom=lambda t, died, rng: np.where(t == t[0], 1.0, np.nan) if t[0] < 0.02 else np.nan,
    )
    found = checked(frame, rows=True)[2]
    assert found == {
        ("number", "row"),
        ("number", "chart"),
        ("constant", "age"),
        ("rare", "seldom"),
    }


def test_a_column_that_gives_the_label_away_is_not_advised_as_static():
    """Nor is it called rare: what it does to the result comes first."""
    found = checked(stays(leak=LEAKS["the outcome in other words"]))[2]
    assert found == {("outcome", "leak")}
    seldom = stays(time_to_death=lambda t, died, rng: t[-1] + rng.random() if died else np.nan)
    assert checked(seldom)[2] == {("outcome", "time_to_death")}


def test_a_channel_that_never_varies_is_found():
    frame = stays(flag=lambda t, died, rng: 1.0, ward=lambda t, died, rng: "east", blank=lambda t, died, rng: np.nan)
    assert checked(frame)[2] == {("single", "flag"), ("single", "ward"), ("rare", "blank")}
    series, y, _ = checked(frame)
    (text,) = [item.text for item in nc.check_data(series, y) if item.kind == "single"]
    assert text.startswith("'flag' and 'ward' have one value only")


def values_of(kind):
    """One value per series, of a column of some kind."""
    rng = np.random.default_rng(0)
    of_stay = rng.permutation(STAYS) // 2  # two stays of each patient
    return {
        "patient": of_stay + 1.0,
        "PatientNr": of_stay + 1.0,
        "chart": rng.choice(np.arange(10_000, 99_999), STAYS)[of_stay],
        "mostly one stay": rng.choice(np.arange(10_000_000, 19_999_999), STAYS)[np.r_[0:105, 0:15]],
        "hospital": np.array([f"h{k % 50}" for k in range(STAYS)], dtype=object),
        "age": rng.normal(62, 14, STAYS).round(),
        "weight": rng.normal(3300, 500, STAYS).round(-1),
        "income": np.exp(rng.normal(10, 1, STAYS)).round(-2),
        "platelets": np.r_[rng.normal(250, 60, STAYS - 1).round(), 1e9],
        "ward": rng.integers(3, size=STAYS) * 1.0,
        "stay": np.arange(STAYS) * 1.0,
        "begin": np.array([f"2026-01-{1 + k // 2 % 31:02}" for k in range(STAYS)], dtype=object),
        "diagnosis": np.array(["sepsis", "stroke", None] * 40, dtype=object),
    }[kind]


@pytest.mark.parametrize("kind", ["patient", "PatientNr", "chart", "mostly one stay", "hospital"])
def test_columns_that_name_groups_are_recognised(kind):
    assert is_group_column(kind, np.asarray(values_of(kind)))


@pytest.mark.parametrize("kind", ["age", "weight", "income", "platelets", "ward", "stay", "begin", "diagnosis"])
def test_columns_that_several_series_share_by_chance_are_no_groups(kind):
    assert not is_group_column(kind, np.asarray(values_of(kind)))


def test_groups_are_found_in_channels_static_columns_and_text():
    """Each is named once, and fit warns of it unless it was told the groups."""
    patient = values_of("patient")
    number = {name: iter(patient.tolist()) for name in ("patient", "subject")}
    frame = stays(
        patient=lambda t, died, rng: next(number["patient"]),
        subject=lambda t, died, rng: next(number["subject"]),
    )
    series, y, found = checked(frame, static=["subject"])
    assert found == {("group", "patient"), ("group", "subject")}
    clf = nc.NeuralCDEClassifier(max_epochs=1, hidden=4, width=4)
    with pytest.warns(
        DataWarning, match=r"'patient' seems to name what series have in common.*Split by groups: pass groups= to fit"
    ):
        clf.fit(series, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error", DataWarning)
        clf.fit(series, y, groups=patient)


def test_a_table_that_is_no_series_is_refused():
    with pytest.raises(TypeError, match=r"series must be an IrregularSeries, got polars.*from_long"):
        nc.check_data(stays(), [0, 1])


def test_a_table_of_measurements_gives_no_finding():
    assert checked(stays())[2] == set()


def test_a_table_of_one_column_is_not_judged():
    frame = stays(leak=LEAKS["the outcome in other words"]).drop("pulse", "lactate")
    assert "outcome" not in {kind for kind, _ in checked(frame)[2]}


def test_numbers_classes_and_rows():
    frame = stays(score=lambda t, died, rng: float(rng.normal()), ward=lambda t, died, rng: float(rng.integers(3)))
    series, _, _ = checked(frame)
    first = series.offsets[:-1]
    names = series.channel_names
    score = series.values[first, names.index("score")].numpy() * 3 + 1
    kinds = [item.columns for item in nc.check_data(series, score) if item.kind == "outcome"]
    assert kinds == [("score",)]
    ward = np.array(["north", "south", "west"])[series.values[first, names.index("ward")].int().numpy()]
    assert [item.columns for item in nc.check_data(series, ward) if item.kind == "outcome"] == [("ward",)]
    alarm = (series.values[:, names.index("pulse")] > 85).numpy().astype(float)
    found = nc.check_data(series, alarm, per_row=True)
    assert [item.columns for item in found if item.kind == "outcome"] == [("pulse",)]


def test_groups_in_both_parts_are_found():
    groups = np.arange(20) // 2
    assert check_groups(groups, np.arange(10), np.arange(10, 20)) == []
    (found,) = check_groups(groups, np.arange(0, 20, 2), np.arange(1, 20, 2))
    assert found.text.startswith("10 of 10 test series are of a group")


# ---- no false alarm on real tables ----


def test_made_up_stays_give_no_finding():
    frame = icu_table(300, 0)
    y = frame.group_by("stay", maintain_order=True).agg(pl.col("outcome").first())["outcome"].to_numpy()
    series = nc.IrregularSeries.from_long(frame.drop("outcome"), id="stay", time="hour", static=["age"])
    assert nc.check_data(series, y) == []


def pbc2():
    file = DATA / "pbc2.csv"
    if not file.exists():
        pytest.skip(f"{file} is not there")
    return pl.read_csv(file, null_values="NA").with_columns(pl.col("platelets").cast(pl.Float64))


def of_pbc2(*dropped, static=("drug", "age", "sex")):
    frame = pbc2()
    y = frame.group_by("id", maintain_order=True).agg(pl.col("status2").first())["status2"].to_numpy()
    series = nc.IrregularSeries.from_long(frame.drop("status2", *dropped), id="id", time="year", static=list(static))
    return [(item.kind, item.columns) for item in nc.check_data(series, y)]


def test_liver_patients_without_their_outcome_give_no_alarm():
    assert of_pbc2("sno.", "status", "years") == []
    assert of_pbc2("sno.", "status", "years", static=()) == [("constant", ("drug", "age", "sex"))]


def test_the_outcomes_of_liver_patients_are_named():
    found = of_pbc2()
    assert {columns for kind, columns in found if kind == "outcome"} == {("status",), ("years",)}
    assert ("number", ("sno.",)) in found


def test_sepsis_gives_no_alarm():
    try:
        data = sepsis_cases()
    except FileNotFoundError as reason:
        pytest.skip(str(reason))
    assert [item for item in nc.check_data(data.series, data.labels) if item.kind != "constant"] == []
