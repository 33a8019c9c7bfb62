"""The command line as a user sees it: fit, predict, and errors about bad input."""

import contextlib
import io
import json
import resource
import signal
import subprocess
import sys
import warnings
from datetime import datetime
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

import neuralcde as nc
from neuralcde.cli import main
from neuralcde.cli.errors import WrongUseError
from neuralcde.cli.fit import _split
from neuralcde.cli.labelled import text_among_numbers
from neuralcde.cli.predictions import table_over_time, times_of
from neuralcde.cli.tables import read_table

pytestmark = pytest.mark.xdist_group("command line")  # these tests share slow fixtures

COMMAND = str(Path(sys.executable).parent / "neuralcde")
NAMES = ["--id", "stay", "--time", "hour", "--label", "outcome"]
SMALL = ["--max-epochs", "3", "--hidden", "6", "--width", "6", "--verbose", "0"]


def run(*arguments):
    """Run the command in this process, where torch is already imported; importing it takes most of the time."""
    said, complaints = io.StringIO(), io.StringIO()
    code = 0
    if arguments[0] == "fit" and "--resume" not in arguments:
        arguments = (*arguments, "--force")  # some tests share folders
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(complaints):
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as end:
            code = end.code or 0
    return subprocess.CompletedProcess(arguments, code, said.getvalue(), complaints.getvalue())


def run_with_warnings(*arguments):
    """The same, where warnings are printed and not raised."""
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        return run(*arguments)


def start(*arguments):
    """Run the installed command in its own process."""
    return subprocess.run([COMMAND, *map(str, arguments)], capture_output=True, text=True, timeout=240)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A long table in random order with empty cells."""
    rng = np.random.default_rng(0)
    rows = []
    for k in range(40):
        for t in np.sort(rng.uniform(0, 9, 8)).round(4):
            x = float(np.sin(t * (1 + k % 2))) if rng.random() < 0.7 else None
            rows.append((f"s{k}", t, x, float(rng.normal()), 30 + k % 9, ["ill", "well"][k % 2]))
    frame = pl.DataFrame(rows, schema=["stay", "hour", "pulse", "noise", "age", "outcome"], orient="row")
    file = tmp_path_factory.mktemp("data") / "vitals.csv"
    frame.sample(fraction=1, shuffle=True, seed=0).write_csv(file)
    return file


@pytest.fixture(scope="module")
def model(table):
    out = table.parent / "model"
    names = ["--id", "stay", "--time", "hour", "--label", "outcome", "--static", "age"]
    done = start("fit", table, *names, "--out", out, *SMALL)
    assert done.returncode == 0, done.stderr
    assert "test auroc" in done.stdout
    return out


def test_fit_writes_the_model_its_config_and_its_metrics(model):
    names = {path.name for path in model.iterdir()}
    assert names >= {
        "config.json",
        "config.toml",
        "metrics.json",
        "model.safetensors",
        "preprocess.json",
        "test_predictions.csv",
    }
    metrics = json.loads((model / "metrics.json").read_text())
    ranking, probabilities = {"auroc", "average_precision", "accuracy"}, {"log_loss", "brier", "calibration_slope"}
    assert set(metrics["test"]) == ranking | probabilities
    assert metrics["cost"]["parameters"] > 100
    preprocess = json.loads((model / "preprocess.json").read_text())
    assert preprocess["scaler"]["channel_names_in_"] == ["pulse", "noise"]  # the label is not among them


def test_predictions_are_keyed_by_id(model, table):
    done = run("predict", model, table)
    assert done.returncode == 0, done.stderr
    found = pl.read_csv(done.stdout.encode())
    assert found.columns == ["stay", "outcome", "p_ill", "p_well"]
    assert set(found["stay"]) == {f"s{k}" for k in range(40)}
    out = model.parent / "risk.parquet"
    assert run("predict", model, table, "--out", out).returncode == 0
    np.testing.assert_allclose(pl.read_parquet(out)["p_ill"], found["p_ill"])
    kept = pl.read_csv(model / "test_predictions.csv").join(found, on="stay")
    np.testing.assert_allclose(kept["p_ill"], kept["p_ill_right"], atol=1e-6)


def test_predictions_at_times_have_a_row_per_id_and_time(model, table):
    done = run("predict", model, table, "--at=-5,2.5")
    assert done.returncode == 0, done.stderr
    found = pl.read_csv(done.stdout.encode())
    assert found.columns[:2] == [found.columns[0], nc.load(model).preparation_.format.time]
    early, late = found.filter(found[:, 1] < 0), found.filter(found[:, 1] > 0)
    assert early.height == late.height > 0
    assert all(column.is_null().all() for column in early[:, 2:])
    assert run("predict", model, table, "--at", "soon").returncode == 2


@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_predictions_at_datetimes_are_in_the_zone_of_the_table(zone):
    begin = pl.datetime_range(datetime(2026, 1, 1), datetime(2026, 1, 2), "6h", time_zone=zone, eager=True)
    frame = pl.DataFrame({"id": [k for k in "abcd" for _ in begin], "when": [*begin] * 4, "x": range(20)})
    series = nc.IrregularSeries.from_long(frame, id="id", time="when")
    model = nc.NeuralCDEClassifier(max_epochs=1, hidden=3, width=4, random_state=0).fit(series, [0, 1, 0, 1])
    times = times_of("2025-12-31T23:30, 2026-01-01T07:00,2026-01-03", series.format)
    found = table_over_time(model, series, model.outputs_at(series, times), times, "label")
    assert found["when"].to_list()[:3] == times
    assert found["label"].is_null().to_list() == [True, False, False] * 4
    until = model.predict_proba(series.until(times[1]))
    np.testing.assert_allclose(found["p_1"].to_list()[1::3], until[:, 1], rtol=1e-6)
    with pytest.raises(WrongUseError, match="'6' is not one of ISO datetimes"):
        times_of("6", series.format)


def test_a_written_configuration_repeats_the_run(model):
    again = model.parent / "again"
    done = run("fit", "--config", model / "config.toml", "--out", again)
    assert done.returncode == 0, done.stderr
    assert (again / "model.safetensors").read_bytes() == (model / "model.safetensors").read_bytes()
    changed = run("fit", "--config", model / "config.toml", "--out", model.parent / "other", "--hidden", "5")
    assert changed.returncode == 0, changed.stderr
    assert "hidden = 5" in (model.parent / "other" / "config.toml").read_text()


def test_none_is_a_valid_value_where_an_option_is_optional(model):
    out = model.parent / "patient"
    done = run("fit", "--config", model / "config.toml", "--out", out, "--patience", "none", "--gradient-clip", "None")
    assert done.returncode == 0, done.stderr
    saved = json.loads((out / "config.json").read_text())["parameters"]
    assert (saved["patience"], saved["gradient_clip"]) == (None, None)
    again = model.parent / "patient again"
    assert run("fit", "--config", out / "config.toml", "--out", again).returncode == 0
    assert json.loads((again / "config.json").read_text())["parameters"] == saved
    assert saved != json.loads((model / "config.json").read_text())["parameters"]
    done = run("fit", "--config", model / "config.toml", "--out", again, "--learning-rate", "none")
    assert done.returncode == 2
    assert "--learning-rate cannot be none" in done.stderr


def test_errors_name_the_option_on_the_command_line(model):
    done = run("fit", "--config", model / "config.toml", "--out", model, "--max-epochs", "9", "--resume")
    assert done.returncode == 2
    assert "resume=" not in done.stderr
    assert "cannot resume: --max-epochs must be the same as in the checkpointed run; use --force" in " ".join(
        done.stderr.split()
    )
    done = run("fit", "--config", model / "config.toml", "--out", model.parent / "gpu", "--device", "cuda")
    assert done.returncode == 2 or torch.cuda.is_available()
    assert "--device cpu" in " ".join(done.stderr.split()) or torch.cuda.is_available()


def test_labels_may_come_from_a_second_table(table):
    frame = pl.read_csv(table)
    labels = table.parent / "labels.csv"
    frame.select("stay", "outcome").unique().write_csv(labels)
    vitals = table.parent / "only_vitals.parquet"
    frame.drop("outcome").write_parquet(vitals)
    names = ["--id", "stay", "--time", "hour", "--label", "outcome", "--labels", labels]
    assert run("fit", vitals, *names, "--out", table.parent / "second", *SMALL).returncode == 0
    pl.read_csv(labels).head(39).write_csv(labels)
    done = run("fit", vitals, *names, "--out", table.parent / "third", *SMALL)
    assert done.returncode == 2
    assert "1 of 40 series have no label" in done.stderr
    pl.concat([frame.select("stay", "outcome").unique(), pl.DataFrame({"stay": ["zz"], "outcome": ["ill"]})]).write_csv(
        labels
    )
    done = run("fit", vitals, *names, "--out", table.parent / "third", *SMALL)
    assert done.returncode == 2
    assert "labels for 1 ids that the table does not have, e.g. zz" in " ".join(done.stderr.split())


def test_labels_may_be_given_per_row(table):
    """The label of a row says whether the pulse is above zero; some rows have no label."""
    frame = pl.read_csv(table).with_columns(
        state=pl.when(pl.col("pulse") > 0).then(pl.lit("up")).when(pl.col("pulse") <= 0).then(pl.lit("down"))
    )
    file, out = table.parent / "rows.parquet", table.parent / "rows"
    frame.drop("outcome").write_parquet(file)
    names = ["--id", "stay", "--time", "hour", "--label", "state"]
    done = run("fit", file, *names, "--per-row", "--out", out, "--max-epochs", 40, "--hidden", 6, "--verbose", 0)
    assert done.returncode == 0, done.stderr
    done = run("predict", out, file)
    assert done.returncode == 0, done.stderr
    found = pl.read_csv(done.stdout.encode())
    assert found.columns == ["stay", "hour", "state", "p_down", "p_up"]
    both = frame.join(found, on=["stay", "hour"], suffix="_found")
    assert both.height == found.height == frame.height
    right = both.drop_nulls("state").select((pl.col("state") == pl.col("state_found")).mean()).item()
    assert right > 0.9
    done = run("fit", file, *names, "--per-row", "--labels", file, "--out", out, *SMALL)
    assert done.returncode == 2
    assert "with --per-row the label is a column of TABLE" in " ".join(done.stderr.split())


def spoilt(table, name, change):
    file = table.parent / f"{name}.csv"
    change(pl.read_csv(table)).write_csv(file)
    return file


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("one_class", lambda f: f.with_columns(outcome=pl.lit("ill")), "one class only, {'ill'}"),
        ("text", lambda f: f.with_columns(hour=pl.lit("late")), "hour"),
        ("twice", lambda f: pl.concat([f, f]), "--duplicates mean"),
        (
            "two_labels",
            lambda f: f.with_columns(outcome=pl.Series(["ill", "well"] * (f.height // 2))),
            "more than one value",
        ),
        (
            "text_among_numbers",
            lambda f: f.with_columns(
                pulse=pl.when(pl.col("stay") == "s4").then(pl.lit("-")).otherwise(pl.col("pulse").cast(str))
            ),
            "the column pulse holds numbers, but 8 of its",
        ),
        (
            "one_text_again_and_again",
            lambda f: f.with_columns(
                pulse=pl.when(pl.col("noise") > -0.7).then(pl.lit("-")).otherwise(pl.col("pulse").cast(str))
            ),
            "the column pulse holds numbers, but",
        ),
        (
            "text_among_quantities_to_predict",
            lambda f: f.with_columns(outcome=pl.col("stay").str.slice(1).replace("0", "-")),
            "the column outcome holds numbers, but 8 of its 320 values are text, e.g. '-'",
        ),
        ("no_rows", lambda f: f.head(0), "has no rows"),
    ],
)
def test_invalid_tables_exit_with_2_and_a_clear_message(table, name, change, message):
    file = spoilt(table, name, change)
    done = run(
        "fit", file, "--id", "stay", "--time", "hour", "--label", "outcome", "--out", table.parent / "bad", *SMALL
    )
    assert done.returncode == 2, done.stderr
    assert message in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert not (table.parent / "bad").exists()


def test_invalid_arguments_exit_with_2_and_a_clear_message(table, tmp_path):
    names = ["--time", "hour", "--label", "outcome", "--out", tmp_path / "bad"]
    for arguments, message in (
        (["fit", tmp_path / "none.csv", "--id", "stay", *names], "does not exist"),
        (["fit", table, "--id", "stai", *names], "--id stai: "),
        (["fit", table, *names], "--id is missing"),
        (["fit", table, "--id", "stay", *names, "--nonsense", "3"], "--nonsense"),
        (["predict", tmp_path, table], "was not written by neuralcde"),
    ):
        done = run(*arguments)
        assert done.returncode == 2, done.stderr
        assert message in " ".join((done.stderr + done.stdout).split())
    (tmp_path / "empty.csv").write_text("")
    done = run("fit", tmp_path / "empty.csv", "--id", "stay", *names)
    assert done.returncode == 2
    assert "is empty" in " ".join(done.stderr.split())


def test_debug_raises_the_original_error(table, tmp_path):
    with pytest.raises(WrongUseError, match="--id stai"):
        run("fit", table, "--id", "stai", "--time", "hour", "--label", "outcome", "--out", tmp_path / "bad", "--debug")


def test_empty_channels_and_unsorted_rows_are_accepted(table):
    file = spoilt(table, "hollow", lambda f: f.with_columns(hollow=pl.lit(None, dtype=pl.Float64)).sort("noise"))
    names = ["--id", "stay", "--time", "hour", "--label", "outcome", "--channels", "pulse", "--channels", "hollow"]
    done = run_with_warnings("fit", file, *names, "--out", table.parent / "hollow", *SMALL)
    assert done.returncode == 0, done.stderr
    assert "neuralcde: the channels ['hollow'] never vary" in " ".join(done.stderr.split())


def test_free_text_is_left_out_with_a_warning(table):
    file = spoilt(table, "ward", lambda f: f.with_columns(ward="bed " + pl.int_range(pl.len()).cast(pl.String)))
    done = run_with_warnings("fit", file, *NAMES, "--out", table.parent / "ward", *SMALL)
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("neuralcde: columns left out, because they are not numbers, or text")
    assert "'ward' (String, 320 different values)" in " ".join(done.stderr.split())


def test_a_full_disk_leaves_the_old_model(model, table):
    """A limit of two kilobytes per file stands for a full disk."""
    before = {path: path.read_bytes() for path in model.iterdir() if path.is_file()}
    done = subprocess.run(
        [COMMAND, "fit", str(table), *NAMES, "--out", str(model), *SMALL, "--seed", "3", "--force"],
        capture_output=True,
        text=True,
        timeout=240,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000)),
    )
    assert done.returncode == 1
    assert "File too large" in done.stderr
    assert "Existing files are unchanged" in " ".join(done.stderr.split())
    assert {path: path.read_bytes() for path in model.iterdir() if path.is_file()} == before


def test_an_interrupted_training_keeps_its_best_model(table):
    out = table.parent / "interrupted"
    names = [*NAMES, "--max-epochs", "100000", "--patience", "100000", "--hidden", "6", "--width", "6"]
    with subprocess.Popen(
        [COMMAND, "fit", str(table), *names, "--out", str(out)], stdout=-1, stderr=-1, text=True
    ) as process:
        assert any(line.startswith("epoch") for line in iter(process.stderr.readline, ""))
        process.send_signal(signal.SIGINT)
        said, complaints = process.communicate(timeout=60)
    assert process.returncode == 0, complaints
    assert "Interrupted: the best model so far is kept." in said
    assert "Traceback" not in complaints
    assert run("predict", out, table).returncode == 0


def test_training_works_with_a_class_of_one_series(table):
    """One of forty series is the only one of its class; training works for every seed."""
    rare = pl.when(pl.col("stay") == "s0").then(pl.lit("rare")).otherwise(pl.col("outcome"))
    file = spoilt(table, "rare", lambda f: f.with_columns(outcome=rare))
    for seed in range(12):
        out = table.parent / "rare"
        done = run("fit", file, *NAMES, "--out", out, "--max-epochs", 1, "--hidden", 4, "--verbose", 0, "--seed", seed)
        assert done.returncode == 0, done.stderr
        tested = pl.read_csv(out / "test_predictions.csv")
        assert tested.columns == ["stay", "outcome", "p_ill", "p_rare", "p_well", "true_outcome"]
        assert "s0" not in tested["stay"]


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("continuous", lambda f: f.with_columns(outcome=pl.col("age") + 0.5).filter(pl.col("age") < 33), None),
        ("two_series", lambda f: f.filter(pl.col("stay").is_in(["s0", "s1"])), "give more series"),
        ("booleans", lambda f: f.with_columns(outcome=pl.col("outcome") == "ill"), None),
        (
            "stamps",
            lambda f: f.with_columns(hour=pl.datetime(2024, 1, 1) + pl.duration(seconds=pl.col("hour") * 3600)),
            None,
        ),
    ],
)
def test_labels_and_times_may_have_any_type(table, name, change, message):
    file = spoilt(table, name, change)
    done = run("fit", file, *NAMES, "--out", table.parent / name, *SMALL)
    assert done.returncode == (0 if message is None else 2), done.stderr
    assert (message or "") in done.stderr
    if message is None:
        assert run("predict", table.parent / name, file).returncode == 0


@pytest.mark.parametrize("kind", ["int", "bool", "int with gaps"])
def test_labels_per_row_may_be_integers_or_booleans(table, kind):
    state = pl.col("noise") > 0
    state = state if kind == "bool" else state.cast(pl.Int64)
    state = pl.when(pl.col("pulse").is_null()).then(None).otherwise(state) if kind == "int with gaps" else state
    file, out = spoilt(table, "rows_" + kind, lambda f: f.with_columns(state=state)), table.parent / kind
    names = ["--id", "stay", "--time", "hour", "--label", "state", "--channels", "pulse", "--channels", "noise"]
    done = run("fit", file, *names, "--per-row", "--out", out, *SMALL)
    assert done.returncode == 0, done.stderr
    wanted = {"p_false", "p_true"} if kind == "bool" else {"p_0", "p_1"}
    assert wanted <= {name.lower() for name in pl.read_csv(out / "test_predictions.csv").columns}


def test_ids_are_not_converted(table):
    """Leading zeros of a CSV file are kept; numeric ids of one table match text ids of another."""
    number = pl.col("stay").str.slice(1).cast(pl.Int64)
    file = spoilt(table, "zeros", lambda f: f.with_columns(stay=pl.format("00{}", number)))
    assert run("fit", file, *NAMES, "--out", table.parent / "zeros", *SMALL).returncode == 0
    found = pl.read_csv(run("predict", table.parent / "zeros", file).stdout.encode(), schema_overrides={"stay": str})
    assert "0039" in found["stay"].to_list()
    numbers, labels = table.parent / "numbers.parquet", table.parent / "texts.csv"
    frame = pl.read_csv(table).with_columns(stay=number)
    frame.drop("outcome").write_parquet(numbers)
    frame.select("stay", "outcome").unique().write_csv(labels)
    done = run("fit", numbers, *NAMES, "--labels", labels, "--out", table.parent / "numbers", *SMALL)
    assert done.returncode == 0, done.stderr


def test_column_types_are_inferred_from_all_rows(table):
    """Ten thousand empty cells and then numbers; ten thousand integers and then fractions."""
    rows = 12_000
    frame = pl.DataFrame(
        {
            "stay": [f"s{k // 100}" for k in range(rows)],
            "hour": [float(k % 100) for k in range(rows)],
            "rare": [None if k < 11_000 else k / 7 for k in range(rows)],
            "late": [float(k) if k > 11_000 else None for k in range(rows)],
            "outcome": [["a", "b"][k // 100 % 2] for k in range(rows)],
        }
    )
    file = table.parent / "rare_values.csv"
    frame.with_columns(pl.when(pl.col("hour") >= 0).then(pl.col("hour"))).write_csv(file)
    text = file.read_text().replace("s119,99.0", "s119,99.5")
    file.write_text(text.replace(".0,", ","))
    out = table.parent / "rare_values"
    done = run("fit", file, *NAMES, "--out", out, "--max-epochs", 1, "--hidden", 4, "--width", 4, "--verbose", 0)
    assert done.returncode == 0, done.stderr
    names = json.loads((out / "preprocess.json").read_text())["scaler"]["channel_names_in_"]
    assert names == ["rare", "late"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--hidden", "0"], "--hidden must be an integer from 1 to 100000"),
        (["--learning-rate", "-1"], "--learning-rate must be"),
        (["--device", "cuda"], "--device cuda"),
        (["--patience", "0"], "--patience must be"),
        (["--task", "regression"], "numbers"),
        (["--label", "stay"], "--label stay"),
        (["--channels", "pulze"], "--channels pulze"),
        (["--task", "regression", "--class-weight", "balanced"], "--class-weight"),
    ],
)
def test_invalid_options_exit_with_2(table, options, message):
    given = ["--id", "stay", "--time", "hour", "--max-epochs", "1", "--out", table.parent / "wrong", *options]
    done = run("fit", table, *given, *([] if "--label" in options else ["--label", "outcome"]))
    assert done.returncode == 2, done.stderr
    assert message in " ".join(done.stderr.split())
    assert not (table.parent / "wrong" / "config.json").exists()


def test_unusual_names_survive_the_configuration_file(table):
    file = table.parent / "names.feather"
    pl.read_csv(table).rename({"outcome": 'a "label" 💉', "stay": "p_x"}).write_ipc(file)
    names = ["--id", "p_x", "--time", "hour", "--label", 'a "label" 💉', "--gradient-clip", "inf"]
    out = table.parent / "names"
    assert run("fit", file, *names, "--out", out, *SMALL).returncode == 0
    assert run("predict", out, file).returncode == 0
    assert run("fit", "--config", out / "config.toml", "--out", table.parent / "names_again").returncode == 0
    file = spoilt(table, "names_2", lambda f: f.rename({"stay": "p_ill"}))
    done = run("fit", file, "--id", "p_ill", "--time", "hour", "--label", "outcome", "--out", out, *SMALL)
    assert done.returncode == 2
    assert "--id p_ill: predictions have a column of that name" in " ".join(done.stderr.split())


def test_a_failed_save_changes_nothing(model, table, monkeypatch):
    """This holds even after the weights were written."""
    before = {path: path.read_bytes() for path in model.iterdir() if path.is_file()}

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("neuralcde.cli.fit.write_table", full)
    done = run("fit", table, *NAMES, "--out", model, *SMALL, "--seed", "3")
    assert done.returncode == 1
    said = " ".join(done.stderr.split())
    assert "No space left on device. No model was written. The checkpoint is kept" in said
    assert {path: path.read_bytes() for path in model.iterdir() if path.is_file()} == before


def test_predict_accepts_a_model_saved_in_python(table):
    frame = pl.read_csv(table)
    y = dict(frame.select("stay", "outcome").unique().iter_rows())
    series = nc.IrregularSeries.from_long(frame.drop("outcome"), id="stay", time="hour", static=["age"])
    nc.NeuralCDEClassifier(max_epochs=1, hidden=4, width=4).fit(series, y).save(table.parent / "python")
    done = run("predict", table.parent / "python", table, "--out", table.parent / "python.arrow")
    assert done.returncode == 0, done.stderr
    assert pl.read_ipc(table.parent / "python.arrow").columns == ["stay", "prediction", "p_ill", "p_well"]
    assert run("predict", table.parent / "python", table, "--out", table.parent / "x.xlsx").returncode == 2


@pytest.mark.parametrize(
    "text",
    [
        "stay,hour,pulse\n007,0.5,80\n007,1.25,\n",
        "stay\thour\tpulse\n007\t0.5\t80\n007\t1.25\tNA\n",
        "stay;hour;pulse\n007;0,5;80\n007;1,25;\n",
        "stay;hour;pulse\n007;0.5;80\n007;1.25;\n",
    ],
    ids=["comma", "tab", "decimal comma", "semicolon and point"],
)
def test_csv_separators_and_decimal_marks_are_detected(text, tmp_path):
    """Commas, tabs and semicolons separate cells; with semicolons both 0,5 and 0.5 are numbers."""
    file = tmp_path / "table.csv"
    file.write_text(text)
    assert read_table(file, text=["stay"]).to_dict(as_series=False) == {
        "stay": ["007", "007"],
        "hour": [0.5, 1.25],
        "pulse": [80, None],
    }


def test_separators_inside_quotes_are_text(tmp_path):
    file = tmp_path / "table.csv"
    file.write_text('stay,"pulse; at rest; lying; left arm"\n007,80\n')
    assert read_table(file, text=["stay"]).columns == ["stay", "pulse; at rest; lying; left arm"]


@pytest.mark.parametrize(
    ("dates", "unclear"),
    [
        (["03/04/2024", "05/04/2024"], True),
        (["", "3.4.2024 10:00"], True),
        (["13/04/2024", "05/04/2024"], False),
        (["2024-04-03", "2024-04-05"], False),
    ],
)
def test_ambiguous_dates_are_read_day_first_with_a_warning(dates, unclear, tmp_path):
    file = tmp_path / "table.csv"
    file.write_text("\n".join(["stay,at", *(f"a,{date}" for date in dates)]))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        read_table(file)
    said = [str(warning.message) for warning in caught]
    assert len(said) == unclear
    if unclear:
        assert f"such as {next(filter(None, dates))} in column" in said[0]
        assert "'at' are read with the day first" in said[0]


def test_numeric_looking_categories_stay_text(table):
    ward = pl.when(pl.col("stay").str.ends_with("1")).then(pl.lit("12")).otherwise(pl.lit("3A"))
    file = spoilt(table, "wards", lambda f: f.with_columns(ward=ward))
    out = table.parent / "wards-model"
    assert run("fit", file, *NAMES, "--static", "ward", "--out", out, *SMALL).returncode == 0
    few = table.parent / "ward12.csv"
    pl.read_csv(file, schema_overrides={"ward": pl.String}).filter(pl.col("ward") == "12").write_csv(few)
    done = run("predict", out, few, "--out", table.parent / "ward12.out.csv")
    assert done.returncode == 0, done.stderr


def test_predictions_have_one_column_per_target(tmp_path):
    X = np.random.default_rng(0).normal(size=(30, 4, 1))
    series = nc.IrregularSeries.from_padded(X, ids=[f"s{k}" for k in range(30)])
    few = {"max_epochs": 1, "hidden": 4, "width": 4, "random_state": 0}
    nc.NeuralCDERegressor(**few).fit(series, X[:, :2, 0]).save(tmp_path / "numbers")
    nc.NeuralCDEClassifier(**few).fit(series, (X[:, :2, 0] > 0).astype(int)).save(tmp_path / "labels")
    series.to_long("polars").write_csv(tmp_path / "table.csv")
    for name, columns in (("numbers", []), ("labels", ["p_0", "p_1"])):
        done = run("predict", tmp_path / name, tmp_path / "table.csv", "--out", tmp_path / f"{name}.csv")
        assert done.returncode == 0, done.stderr
        found = pl.read_csv(tmp_path / f"{name}.csv")
        assert found.columns == ["id", "prediction_0", "prediction_1", *columns]
        assert found.height == 30


def test_text_among_static_numbers_gives_a_warning(table):
    """The column becomes dozens of indicators, so the command warns."""
    changed = spoilt(table, "static", lambda f: f.with_columns(weight=pl.col("stay").str.slice(1).replace("0", "-")))
    done = run_with_warnings("fit", changed, *NAMES, "--static", "weight", "--out", table.parent / "weight", *SMALL)
    assert done.returncode == 0, done.stderr
    assert "the column weight holds numbers, but 8 of its 320 values are text" in " ".join(done.stderr.split())
    few = spoilt(table, "stage", lambda f: f.with_columns(stage=pl.col("age").cast(str).replace("30", "X")))
    done = run("fit", few, *NAMES, "--static", "stage", "--out", table.parent / "stage", *SMALL)
    assert (done.returncode, done.stderr) == (0, "")


def test_predict_refuses_text_among_numbers(model, table):
    changed = spoilt(
        table,
        "dashes",
        lambda f: f.with_columns(
            pulse=pl.when(pl.col("stay") == "s4").then(pl.lit("-")).otherwise(pl.col("pulse").cast(str))
        ),
    )
    done = run("predict", model, changed)
    assert done.returncode == 2
    assert "leave those cells empty" in " ".join(done.stderr.split())


def test_a_class_of_rows_in_one_series_is_in_the_training_part(table):
    """For every seed, training sees this class and does not fail."""
    changed = spoilt(
        table,
        "rows",
        lambda f: f.with_columns(
            outcome=pl.when(pl.col("stay") == "s4")
            .then(pl.lit("rare"))
            .when(pl.col("noise") > 0)
            .then(pl.lit("hi"))
            .otherwise(pl.lit("lo"))
        ),
    )
    for seed in range(6):  # for some of these seeds a plain split would put the last series into the test part
        parts = np.array([None] * 8, dtype=object)
        parts[:] = [np.array(["hi", "lo"])] * 7 + [np.array(["rare", None], dtype=object)]
        training, test = _split(parts, 0.25, seed, classes=True, groups=None)
        assert 7 in training
        assert sorted([*training, *test]) == list(range(8))
    out = table.parent / "rows"
    done = run("fit", changed, *NAMES, "--per-row", "--out", out, "--seed", "7", *SMALL)
    assert done.returncode == 0, done.stderr


def test_rows_without_a_label_do_not_form_a_class():
    parts = np.array([None] * 8, dtype=object)
    parts[:] = [np.array([0.0, 1.0, np.nan])] * 8
    assert [len(part) for part in _split(parts, 0.25, 0, classes=True, groups=None)] == [6, 2]


@pytest.mark.parametrize(
    ("values", "least", "wrong"),
    [
        (["1", "2", "-", "3"], 0, True),
        (["1,5", "2,5", "-", "3,5"], 0, True),
        ([*map(str, range(12)), *["-"] * 80], 0, True),
        (["0", "1", "2", *["ICU"] * 50], 0, False),
        (["low", "high", "1"], 0, False),
        ([*map(str, range(30)), "V45"], 20, True),
        (["1", "2", "X"], 20, False),
    ],
)
def test_text_among_numbers_is_detected(values, least, wrong):
    assert bool(text_among_numbers(pl.Series("x", values), least=least)) == wrong


def test_a_label_named_like_a_column_of_predictions_is_refused(table):
    changed = spoilt(table, "p_label", lambda f: f.rename({"outcome": "p_ill"}))
    done = run(
        "fit", changed, "--id", "stay", "--time", "hour", "--label", "p_ill", "--out", table.parent / "bad", *SMALL
    )
    assert done.returncode == 2
    assert "--label p_ill: predictions have a column of that name" in " ".join(done.stderr.split())


def test_codes_keep_leading_zeros_and_decimals_are_numbers(tmp_path):
    file = tmp_path / "codes.csv"
    file.write_text("stay,code,count\n1,01,3\n2,10,0\n")
    frame = read_table(file, text=["stay"], codes=["code", "count"])
    assert frame.to_dict(as_series=False) == {"stay": ["1", "2"], "code": ["01", "10"], "count": [3, 0]}
    decimal = tmp_path / "decimal.parquet"
    whole = pl.Series("stay", ["1", "2"]).cast(pl.Decimal(20, 0))
    pl.DataFrame([whole, pl.Series("x", ["1.50", "2.25"]).cast(pl.Decimal(10, 2))]).write_parquet(decimal)
    frame = read_table(decimal, text=["stay"])
    assert frame["x"].to_list() == [1.5, 2.25]
    assert frame["stay"].cast(str).to_list() == ["1", "2"]
    quantity = tmp_path / "quantity.csv"
    quantity.write_text("\n".join(["stay,age", *(f"{k},{k:02}" for k in range(60))]))
    assert read_table(quantity, codes=["age"])["age"].dtype.is_integer()


@pytest.mark.parametrize(
    ("line", "message"),
    [('static = "age"', "static = 'age' is not a list of names"), ('seed = "a"', "seed = 'a' is not an integer")],
)
def test_values_of_the_wrong_type_in_a_configuration_are_refused(table, line, message):
    file = table.parent / "wrong.toml"
    file.write_text(line + "\n")
    done = run("fit", table, *NAMES, "--config", file, "--out", table.parent / "bad", *SMALL)
    assert done.returncode == 2
    assert message in " ".join(done.stderr.split())


def test_predict_warns_of_values_far_outside_the_usual_range(model, table, tmp_path):
    frame = (
        pl.read_csv(table)
        .with_row_index()
        .with_columns(noise=pl.when(pl.col("index") == 5).then(9e5).otherwise(pl.col("noise")))
    )
    stay, hour = frame.row(5, named=True)["stay"], frame.row(5, named=True)["hour"]
    frame.drop("index").write_csv(tmp_path / "wrong.csv")
    done = run_with_warnings("predict", model, tmp_path / "wrong.csv", "--out", tmp_path / "found.csv")
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stderr.split())
    assert said.startswith("neuralcde: channel 'noise': 1 value far outside the usual range -")
    assert f"e.g. 900000 in series '{stay}' at hour={hour}; such values are treated as not observed." in said
    assert said.count("neuralcde:") == 1
