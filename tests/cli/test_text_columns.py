"""Text columns that vary in time, on the command line: fit, predict, report, and what is refused."""

import contextlib
import io
import json
import os
import warnings
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import neuralcde as nc
from neuralcde.cli import main
from neuralcde.cli.labelled import read_series
from neuralcde.cli.tables import write_table

pytestmark = pytest.mark.xdist_group("text channels")  # these tests share a slow fixture

NAMES = {"id": "stay", "time": "hour", "label": "outcome"}
OPTIONS = [word for name, column in NAMES.items() for word in (f"--{name}", column)]
SMALL = ["--max-epochs", "1", "--hidden", "4", "--width", "4", "--verbose", "0"]
ENDINGS = [".csv", ".parquet"]


def run(*arguments):
    """Run the command in this process; returns the exit code and both streams in one line each."""
    said, complaints, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(complaints):
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as end:
            code = end.code or 0
    return code, said.getvalue(), " ".join(complaints.getvalue().split())


def stays(ascites=lambda k: ["Yes", "No", "No", None][k % 4], **columns):
    """24 stays of 4 rows; columns are functions of the row number."""
    rows = np.arange(96)
    made = {
        "stay": [f"s{k}" for k in rows // 4],
        "hour": (rows % 4).astype(float),
        "ascites": [ascites(k) for k in rows.tolist()],
        "pulse": np.sin(rows).round(4),
        "outcome": np.where(rows // 4 % 2, "ill", "well"),
    }
    return pl.DataFrame(made | {name: [make(k) for k in rows.tolist()] for name, make in columns.items()})


def channels_of(folder):
    return json.loads((folder / "preprocess.json").read_text())["scaler"]["channel_names_in_"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    write_table(stays(), folder / "table.csv")
    code, said, complaints = run("fit", folder / "table.csv", *OPTIONS, "--out", folder / "model", *SMALL)
    assert (code, complaints) == (0, "")
    assert "3 channels: 'ascites=No', 'ascites=Yes', 'pulse'" in said
    return folder / "model"


def test_the_label_is_never_a_channel(model):
    assert channels_of(model) == ["ascites=No", "ascites=Yes", "pulse"]


@pytest.mark.parametrize("ending", ENDINGS)
def test_predict_reads_the_table_like_fit(model, ending, tmp_path):
    """Also the mark of a missing value (in Parquet it is text), and a category that was not seen in training."""
    cells = ["Yes", "NA", "perhaps", " "]
    write_table(stays(lambda k: cells[k % 4]).drop("outcome"), tmp_path / f"new{ending}")
    code, said, complaints = run("predict", model, tmp_path / f"new{ending}")
    assert (code, complaints) == (0, "")
    found = pl.read_csv(io.StringIO(said))
    values = np.array([[0, 1], [np.nan] * 2, [0, 0], [np.nan] * 2])
    pulse = stays()["pulse"].to_numpy().reshape(24, 4, 1)
    block = np.concatenate([np.broadcast_to(values, (24, 4, 2)), pulse], axis=2)
    series = nc.IrregularSeries.from_padded(block, lengths=[4] * 24, channels=channels_of(model))
    np.testing.assert_allclose(found["p_ill"], nc.load(model).predict_proba(series)[:, 0], rtol=1e-5)


def test_the_report_renders_indicators(model):
    assert run("report", model)[0] == 0
    assert "ascites=Yes" in (model / "report.html").read_text()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--exclude", "ascites"], ["pulse"]),
        (["--channels", "ascites"], ["ascites=No", "ascites=Yes"]),
        (["--channels", "pulse", "--channels", "ascites"], ["pulse", "ascites=No", "ascites=Yes"]),
    ],
    ids=["exclude", "channels", "order"],
)
def test_options_name_the_columns_of_the_table(options, expected, tmp_path):
    write_table(stays(), tmp_path / "table.csv")
    out = tmp_path / "out"
    assert run("fit", tmp_path / "table.csv", *OPTIONS, *options, "--out", out, *SMALL)[0] == 0
    assert channels_of(out) == expected
    assert run("predict", out, tmp_path / "table.csv")[0] == 0


@pytest.mark.parametrize("ending", ENDINGS)
def test_categories_that_look_like_other_types_stay_text_in_predict(ending, tmp_path):
    """A new table may hold only those categories that a CSV reader would take for numbers, booleans or dates."""
    odd = {"grade": "2", "flag": "true", "day": "2024-01-31"}
    columns = {name: lambda k, cell=cell: cell if k % 4 == 0 else "low" for name, cell in odd.items()}
    write_table(stays(**columns), tmp_path / f"table{ending}")
    out = tmp_path / "out"
    with warnings.catch_warnings():
        warnings.simplefilter("always")  # printed, not raised
        code, _, complaints = run("fit", tmp_path / f"table{ending}", *OPTIONS, "--out", out, *SMALL)
    assert code == 0, complaints
    assert "the column grade holds text and numbers, e.g. 'low' and '2': each of its values becomes" in complaints
    assert channels_of(out)[3:] == [f"{name}={cell}" for name in odd for cell in sorted([odd[name], "low"])]
    new = stays(**{name: lambda k, cell=cell: cell for name, cell in odd.items()})
    write_table(new, tmp_path / f"new{ending}")
    code, _, complaints = run("predict", out, tmp_path / f"new{ending}")
    assert (code, complaints) == (0, "")


def test_numbers_with_a_few_unreadable_cells_are_refused(tmp_path):
    write_table(stays(lambda k: "low" if k % 9 == 0 else f"{k % 5}"), tmp_path / "table.csv")
    code, _, complaints = run("fit", tmp_path / "table.csv", *OPTIONS, "--out", tmp_path / "out", *SMALL)
    assert code == 2
    assert "the column ascites holds numbers, but 11 of its 96 values are text, e.g. 'low'" in complaints
    assert "--exclude ascites" in complaints


def test_free_text_is_left_out_or_refused_if_named(tmp_path):
    write_table(stays(note=lambda k: f"note {k % 21}"), tmp_path / "table.csv")
    options = {"table": str(tmp_path / "table.csv"), **NAMES}
    with pytest.warns(UserWarning, match=r"left out.*'note' \(String, 21 different values\)"):
        assert "note" not in " ".join(read_series(options)[0].channel_names)
    code, _, complaints = run(
        "fit", tmp_path / "table.csv", *OPTIONS, "--channels", "note", "--out", tmp_path / "out", *SMALL
    )
    assert code == 2
    assert "'note' (channels) is text with 21 different values" in complaints
    assert "Leave it out of --channels" in complaints


def test_pbc2(tmp_path):
    file = Path(os.environ.get("NEURALCDE_DATA", "")) / "pbc2.csv"
    if not file.exists():
        pytest.skip("pbc2.csv is not there; set NEURALCDE_DATA to the folder that has it")
    known = {"table": str(file), "id": "id", "time": "year", "label": "status", "static": ["drug", "age", "sex"]}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        series, labels = read_series(known | {"exclude": ["years", "status2", "sno."]})
    assert len(series) == len(labels) == 312
    assert series.channel_names[:4] == ("ascites=No", "ascites=Yes", "hepatomegaly=No", "hepatomegaly=Yes")
    assert [name for name in series.channel_names if name.startswith("edema=")] == [
        "edema=No edema",
        "edema=edema despite diuretics",
        "edema=edema no diuretics",
    ]
    table = pl.read_csv(file, null_values="NA")
    for name in ("No", "Yes"):
        column = series.values[:, series.channel_names.index(f"ascites={name}")]
        assert column.nansum() == (table["ascites"] == name).sum()
        assert column.isnan().sum() == table["ascites"].null_count()
