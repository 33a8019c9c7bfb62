"""The command line names suspicious columns before training, takes lists and patterns of columns, and keeps groups."""

import contextlib
import io
import json
import re
import warnings

import numpy as np
import polars as pl
import pytest

from neuralcde.cli import main
from neuralcde.cli.column_names import named_columns
from neuralcde.cli.errors import WrongUseError
from neuralcde.cli.labelled import read_series

pytestmark = pytest.mark.xdist_group("command line")

NAMES = ["--id", "stay", "--time", "hour", "--label", "outcome"]
SMALL = ["--max-epochs", "1", "--hidden", "4", "--width", "4", "--verbose", "0", "--no-compare-boosting"]


def run(*arguments):
    """Run the command in this process; returns the exit code, standard output and standard error."""
    said, complaints, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(complaints):
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as end:
            code = end.code or 0
    return code, said.getvalue(), " ".join(complaints.getvalue().split())


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    rng, rows = np.random.default_rng(0), []
    for k in range(60):
        ill = bool(rng.random() < 0.5)
        for hour in range(3):
            labs = rng.normal(size=2).round(3).tolist()
            rows.append((f"s{k}", float(hour), *labs, ill * 7.0, k % 3, f"p{k // 2}", ["well", "ill"][ill]))
    names = ["stay", "hour", "lab_a", "lab_b", "days_to_death", "ward", "patient", "outcome"]
    file = tmp_path_factory.mktemp("data") / "stays.csv"
    pl.DataFrame(rows, schema=names, orient="row").write_csv(file)
    return file


def test_outcome_columns_are_named_before_training(table, tmp_path, monkeypatch):
    out = tmp_path / "model"
    monkeypatch.setattr("neuralcde.estimators.path_estimator.train_members", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run("fit", table, *NAMES, "--out", out, *SMALL, "--group", "patient", "--debug")
    monkeypatch.undo()
    code, said, complaint = run("fit", table, *NAMES, "--out", out, *SMALL, "--group", "patient", "--force")
    assert (code, complaint) == (0, "")
    lines = [line for line in said.splitlines() if line.startswith("check: ")]
    assert lines[0].startswith("check: 'days_to_death' gives the label away: alone it predicts the label with an AUROC")
    assert lines[0].endswith("only after the outcome, leave it out: --exclude days_to_death")
    assert lines[1].endswith("not a measurement over time: --static ward")
    assert said.index("check: ") < said.index("test auroc")
    findings = json.loads((out / "data.json").read_text())["findings"]
    assert [item["kind"] for item in findings] == ["outcome", "constant"]
    code, said, _ = run("report", out)
    page = (out / "report.html").read_text()
    assert "Check the table before you trust these figures" in page
    assert "days_to_death&#39; gives the label away" in page


def test_series_of_a_group_stay_together(table, tmp_path):
    out = tmp_path / "model"
    options = ["--group", "patient", "--static", "ward", "--exclude", "days_*"]
    code, said, complaint = run("fit", table, *NAMES, "--out", out, *SMALL, *options)
    assert (code, complaint) == (0, "")
    assert "check: " not in said
    tested = pl.read_csv(out / "test_predictions.csv")["stay"].to_list()
    assert {f"s{int(name[1:]) ^ 1}" for name in tested} == set(tested)  # both stays of each patient
    assert json.loads((out / "data.json").read_text())["findings"] == []
    assert [c["name"] for c in json.loads((out / "data.json").read_text())["series"]["channels"]] == ["lab_a", "lab_b"]
    wrong = ["--group", "lab_a", "--exclude", "patient"]
    code, _, complaint = run("fit", table, *NAMES, "--out", tmp_path / "no", *SMALL, *wrong)
    assert (code, "the column lab_a has more than one value for stay 's0'" in complaint) == (2, True), complaint


def test_a_column_of_groups_and_one_without_variation_are_named(table, tmp_path):
    """Patients are text of 30 values, which is left out of the channels; as numbers they would be one."""
    frame = pl.read_csv(table).drop("days_to_death", "ward").with_columns(fan=pl.lit(1))
    for kind, patient in (("text", pl.col("patient")), ("number", pl.col("patient").str.slice(1).cast(pl.Int64))):
        frame.with_columns(patient).write_csv(tmp_path / "stays.csv")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of columns left out
            code, said, _ = run("fit", tmp_path / "stays.csv", *NAMES, "--out", tmp_path / kind, *SMALL)
        lines = sorted(line for line in said.splitlines() if line.startswith("check: "))
        assert (code, len(lines)) == (0, 2), lines
        assert lines[0].startswith("check: 'fan' has one value only: nothing can be learnt from its values")
        assert lines[0].endswith("only from when they were observed: --exclude fan")
        assert lines[1].startswith("check: 'patient' seems to name what series have in common")
        assert lines[1].endswith("too good. Split by groups: --group patient")
        findings = json.loads((tmp_path / kind / "data.json").read_text())["findings"]
        assert sorted(item["kind"] for item in findings) == ["group", "single"]


def test_a_table_without_a_channel_is_predicted(table, tmp_path):
    out = tmp_path / "model"
    assert run("fit", table, *NAMES, "--out", out, *SMALL, "--channels", "lab_a,lab_b")[0] == 0
    pl.read_csv(table).drop("lab_b", "outcome").write_csv(tmp_path / "new.csv")
    with warnings.catch_warnings():
        warnings.simplefilter("default")  # printed, not raised
        code, said, complaint = run("predict", out, tmp_path / "new.csv")
    assert (code, len(said.splitlines())) == (0, 61)
    assert "the table has no column 'lab_b': its values are not observed." in complaint
    pl.read_csv(table).drop("lab_a", "lab_b", "outcome").write_csv(tmp_path / "new.csv")
    code, _, complaint = run("predict", out, tmp_path / "new.csv")
    assert (code, "no column 'lab_a'" in complaint) == (2, True), complaint


@pytest.mark.parametrize("given", ["", ",", " , "])
def test_no_channels_are_refused(table, tmp_path, given):
    code, _, complaint = run("fit", table, *NAMES, "--out", tmp_path / "model", *SMALL, "--channels", given)
    assert (code, "--channels: no channels are given; name one" in complaint) == (2, True), complaint


def test_names_without_commas_are_refused_with_the_fix(table, tmp_path):
    code, _, complaint = run("fit", table, *NAMES, "--out", tmp_path / "model", "--channels", "lab_a", "lab_b")
    assert (code, "lab_b" in complaint, "Separate names by commas: --channels" in complaint) == (2, True, True)
    assert "commas" not in run("report", "a", "--nothing")[2]


def test_a_column_that_is_excluded_by_name_is_left_out_of_patterns(table):
    known = {"table": str(table), "id": "stay", "time": "hour", "label": "outcome"}
    series, _ = read_series(known | {"channels": ["lab_*"], "exclude": ["ward, lab_b"], "static": ["[dw]a*"]})
    assert (series.channel_names, series.static_names) == (("lab_a",), ("days_to_death",))
    with pytest.raises(WrongUseError, match="--exclude lab_b: the column is named in"):
        read_series(known | {"channels": ["lab_a", "lab_b"], "exclude": ["lab_b"]})


def test_predictions_and_explanations_are_two_files(table, tmp_path, monkeypatch):
    out, new = tmp_path / "model", tmp_path / "new.csv"
    assert run("fit", table, *NAMES, "--out", out, *SMALL, "--channels", "lab_a,lab_b")[0] == 0
    pl.read_csv(table).drop("outcome").write_csv(new)
    monkeypatch.chdir(tmp_path)
    code, _, complaint = run("predict", out, new, "--explain", "x.csv", "--out", tmp_path / "x.csv")
    assert (code, "--explain and --out are the same file" in complaint) == (2, True), complaint
    assert not (tmp_path / "x.csv").exists()
    code, _, complaint = run("predict", out, new, "--explain", tmp_path / "nowhere" / "terms.csv", "--out", "p.csv")
    assert code == 1
    assert f"({tmp_path / 'nowhere' / 'terms.csv'})" in complaint
    assert ".part" not in complaint


def test_warnings_name_options_of_the_command(table, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("default")  # printed, not raised
        _, _, complaint = run("fit", table, *NAMES, "--out", tmp_path / "model", *SMALL, "--calibrate", "temperature")
        assert "name text in --static if it has one value per series, or choose with --channels." in complaint
        pl.read_csv(table).drop("outcome").write_csv(tmp_path / "new.csv")
        _, _, complaint = run("predict", tmp_path / "model", tmp_path / "new.csv", "--at", "1")
        assert "fit with --per-row and a target per row to calibrate them." in complaint


def test_help_names_no_values_of_python():
    _, said, _ = run("fit", "--help")
    said = " ".join(said.replace("\u2502", " ").split())
    assert '"low_rank" is cheaper for many channels.' in said
    for word in (" nc.", "`nc", "with_options", "recipe", "as a class"):
        assert word not in said


def test_a_table_without_a_static_column_is_predicted(table, tmp_path):
    """If the column was missing for some training series; its values are then not observed."""
    out, number = tmp_path / "model", pl.col("stay").str.slice(1).cast(pl.Int64)
    frame = pl.read_csv(table).with_columns(height=pl.when(number % 5 > 0).then(150.5 + number))
    frame.write_csv(tmp_path / "stays.csv")
    options = ["--channels", "lab_a,lab_b", "--static", "height,ward"]
    assert run("fit", tmp_path / "stays.csv", *NAMES, "--out", out, *SMALL, *options)[0] == 0
    new = {"without": frame.drop("height"), "empty": frame.with_columns(height=pl.lit(None, dtype=pl.Float64))}
    told = {}
    for name, part in new.items():
        part.write_csv(tmp_path / "new.csv")
        with warnings.catch_warnings():
            warnings.simplefilter("default")  # printed, not raised
            told[name] = run("predict", out, tmp_path / "new.csv")
    assert "the table has no column 'height': its values are not observed." in told["without"][2]
    assert told["without"][:2] == told["empty"][:2]
    assert told["empty"][0] == 0
    frame.drop("ward", "lab_a").write_csv(tmp_path / "new.csv")
    code, _, complaint = run("predict", out, tmp_path / "new.csv")
    assert (code, "no column 'ward'" in complaint) == (2, True), complaint
    assert "'lab_a'" not in complaint.split("its columns are")[1]  # only those that the table has


COLUMNS = ["id", "lab_a", "lab_b", "a,b", "x*"]


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (["lab_a", "lab_b"], ["lab_a", "lab_b"]),
        (["lab_b,lab_a", "lab_a"], ["lab_b", "lab_a"]),
        (["a,b"], ["a,b"]),
        (["lab_*"], ["lab_a", "lab_b"]),
        (["x*"], ["x*"]),
        (["*_a, nothing"], ["lab_a", "nothing"]),
        (["?d,lab_[b]"], WrongUseError),
    ],
)
def test_names_lists_and_patterns(given, found):
    if found is WrongUseError:
        with pytest.raises(WrongUseError, match=r"--exclude \?d: no column matches"):
            named_columns("exclude", given, COLUMNS, taken={"id"})
    else:
        assert named_columns("exclude", given, COLUMNS, taken={"id"}) == found


def test_runs_are_compared(table, tmp_path):
    for seed, static in (("0", "ward"), ("0", "days_to_death")):
        out = tmp_path / static
        own = ["--seed", seed, "--static", static, "--exclude", "patient"]
        assert run("fit", table, *NAMES, "--out", out, *SMALL, *own)[0] == 0
    page = tmp_path / "comparison.html"
    code, _, complaint = run("report", "--compare", tmp_path / "ward", tmp_path / "days_to_death", "--out", page)
    assert (code, complaint) == (0, ""), complaint
    text = page.read_text()
    assert "All runs were tested on the same series." in text
    cells = re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", text[text.index("Options that differ") :])
    assert cells[3:] == [
        *("static", "ward", "days_to_death"),
        *("channels that not all runs have", "days_to_death", "ward"),
        *("static columns that not all runs have", "ward", "days_to_death"),
    ]
    findings = text[text.index(">to check<") : text.index("Options that differ")]
    assert "leave it out. &#39;" in findings  # a space between sentences
    assert text.count("difference ") >= 3
    assert run("report", "--compare", tmp_path / "ward")[0] == 2
    code, _, complaint = run("report", tmp_path / "ward", tmp_path / "days_to_death")
    assert (code, "to compare runs, use report --compare A B" in complaint) == (2, True), complaint
