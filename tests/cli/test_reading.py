"""Reading tables: file names, file formats, numbers, labels and precision."""

import contextlib
import datetime as dt
import gzip
import io
import json
import shlex
import subprocess
import tomllib
import warnings

import numpy as np
import polars as pl
import pytest
import torch

from neuralcde.cli import demo, main
from neuralcde.cli.errors import WrongUseError
from neuralcde.cli.labelled import read_series
from neuralcde.cli.tables import read_table, write_table
from neuralcde.estimators.preparation import Preparation

NAMES = {"id": "stay", "time": "hour", "label": "outcome"}
OPTIONS = [word for name, column in NAMES.items() for word in (f"--{name}", column)]
SMALL = ["--max-epochs", "1", "--hidden", "3", "--width", "3", "--verbose", "0"]


def run(*arguments):
    """Run the command in this process; returns the exit code and the text of both streams in one line."""
    said, code = io.StringIO(), 0
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as end:
            code = end.code or 0
    return code, " ".join(said.getvalue().split())


def stays(**columns):
    """24 stays of 4 rows; the extra columns are functions of the row number."""
    rows = np.arange(96)
    made = {
        "stay": [f"s{k}" for k in rows // 4],
        "hour": (rows % 4).astype(float),
        "pulse": np.sin(rows).round(4),
        "outcome": np.where(rows // 4 % 2, "ill", "well"),
    }
    return pl.DataFrame(made | {name: [make(k) for k in rows.tolist()] for name, make in columns.items()})


def read(frame, folder, ending=".csv", **options):
    file = folder / f"table{ending}"
    file.write_bytes(frame) if isinstance(frame, bytes) else write_table(frame, file)
    return read_series({"table": str(file), **NAMES, **options})


def values(series, name):
    return series.values[:, series.channel_names.index(name)].double().numpy()


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    write_table(stays(), folder / "table.csv")
    code, said = run("fit", folder / "table.csv", *OPTIONS, "--out", folder / "model", *SMALL)
    assert code == 0, said
    return folder / "model"


# file names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".arrow"])
@pytest.mark.parametrize(("name", "decoy"), [("a[1]", "a1"), ("star*", "starfish"), ("a?", "ab")])
def test_file_names_are_taken_literally(name, decoy, ending, tmp_path):
    frame = pl.DataFrame({"x": [1.5]})
    write_table(frame + 1, tmp_path / f"{decoy}{ending}")
    with pytest.raises(WrongUseError, match="does not exist"):
        read_table(tmp_path / f"{name}{ending}")
    write_table(frame, tmp_path / f"{name}{ending}")
    assert read_table(tmp_path / f"{name}{ending}").equals(frame)


def test_fit_labels_and_predict_read_the_file_that_was_named(model, tmp_path):
    write_table(stays(), tmp_path / "a1.csv")
    labels = stays().select("stay", "outcome").unique(maintain_order=True)
    write_table(labels.with_columns(outcome=pl.col("outcome").reverse()), tmp_path / "labels1.csv")
    write_table(labels, tmp_path / "labels[1].csv")
    write_table(stays(), tmp_path / "a[1].csv")
    _, found = read_series({"table": tmp_path / "a1.csv", "labels": tmp_path / "labels[1].csv", **NAMES})
    assert found.tolist() == labels["outcome"].to_list()
    for command in (
        ["fit", tmp_path / "b[1].csv", *OPTIONS, "--out", tmp_path / "out", *SMALL],
        ["predict", model, tmp_path / "b[1].csv"],
    ):
        write_table(stays(), tmp_path / "b1.csv")
        code, said = run(*command)
        assert code == 2
        assert "b[1].csv does not exist" in said
    write_table(stays().head(8), tmp_path / "b[1].csv")
    assert run("predict", model, tmp_path / "b[1].csv", "--out", tmp_path / "found[1].csv")[0] == 0
    assert read_table(tmp_path / "found[1].csv").height == 2


def test_a_tilde_in_a_file_name_is_not_expanded(tmp_path, monkeypatch):
    (tmp_path / "~").mkdir()
    (tmp_path / "home").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for ending in (".csv", ".parquet", ".arrow"):
        file = (tmp_path / "~" / f"x{ending}").relative_to(tmp_path)
        write_table(pl.DataFrame({"x": [1.5]}), file)
        assert read_table(file)["x"].to_list() == [1.5]
    assert not list((tmp_path / "home").iterdir())


def test_the_demo_reads_a_folder_with_brackets_in_its_name(tmp_path, monkeypatch):
    out = tmp_path / "demo[1]"

    def pretend(command, *_):
        rows = pl.DataFrame({"stay": [f"stay {k}" for k in range(40)], "p_died": np.linspace(0, 1, 40)})
        if command == "fit":
            tested = (
                pl.read_csv((out / "vitals.csv").read_bytes()).group_by("stay", maintain_order=True).first().head(40)
            )
            (out / "model").mkdir()
            write_table(
                tested.select("stay", rows["p_died"], pl.col("outcome").alias("true_outcome")),
                out / "model" / "test_predictions.csv",
            )
        if command == "predict":
            write_table(rows, out / "risk.csv")

    monkeypatch.setattr(demo, "_run", pretend)
    monkeypatch.setattr(demo, "NEW", 3)
    code, said = run("demo", "--out", out, "--stays", "120")
    assert code == 0, said
    assert "Neural CDE" in said


# file formats ---------------------------------------------------------------------------------------------------------

CSV = b'stay,hour,pulse,"out ""come"""\na,0,1.5,ill\na,1,2.5,ill\nb,0,3.5,well\n'


def parquet():
    out = io.BytesIO()
    stays().write_parquet(out)
    return out.getvalue()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (gzip.compress(CSV, mtime=0), "table.csv is not CSV: it is compressed with gzip. Decompress it: gunzip <"),
        (parquet(), "table.csv is not CSV: it is a Parquet file. Rename it: mv"),
        (b"PK\x03\x04rest", "Save the sheet as CSV"),
        (CSV.decode().encode("utf-16-le"), "table.csv holds a NUL byte in line 1"),
        (CSV.replace(b"ill", b"\xe9l"), "table.csv is not in UTF-8: byte 0xe9 in line 2. Save it as UTF-8"),
        (CSV.replace(b"pulse", b'z"q'), 'table.csv, line 1: a quote inside the cell z"q; write it as "z""q"'),
        (CSV.replace(b"b,0", b'b 5" ,0'), 'line 4: a quote inside the cell b 5" ; write it as "b 5"" "'),
        (CSV.replace(b"b,0", b'"b,0'), "the quote that opens in line 4 is never closed"),
        (CSV.replace(b"pulse", b"hour"), "two columns that are called 'hour'"),
        (CSV + b"c,0,1,ill,x\n", "row 4 has 5 cells, but the header names 4 columns"),
        (b"\n" + CSV.replace(b"stay,", b"\xe9stay,"), "is not in UTF-8"),
        (b" \n", "table.csv is empty"),
        (b",,\n1,2,3\n", "the first line names no columns"),
    ],
    ids=lambda case: "" if isinstance(case, bytes) else case,
)
def test_files_that_are_not_csv_are_refused_with_a_remedy(content, words, tmp_path):
    file = tmp_path / "table.csv"
    file.write_bytes(content)
    code, said = run("fit", file, *OPTIONS, "--out", tmp_path / "out")
    assert code == 2
    assert words in said.replace(str(tmp_path) + "/", "")
    assert str(file) in said


def test_the_suggested_command_works(tmp_path):
    file = tmp_path / "a b.csv"
    file.write_bytes(gzip.compress(CSV))
    with pytest.raises(WrongUseError, match="Decompress it: ") as caught:
        read_table(file)
    command = str(caught.value).split("Decompress it: ")[1]
    subprocess.run(["sh", "-c", command], check=True, timeout=60)
    assert read_table(tmp_path / shlex.split(command)[-1]).height == 3


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.encode("utf-16"),
        lambda text: text.encode("utf-8-sig"),
        lambda text: text.replace("\n", "\r").encode(),
        lambda text: text.replace("\n", "\r\n").encode(),
        lambda text: ("\n\n" + text.replace("\nb", "\n\n,,,\nb") + "\n\n").encode(),
        lambda text: text.replace(",", "|").encode(),
        lambda text: text.replace(",pulse", ", pulse").replace(",1.5", ", 1.5").encode(),
        lambda text: "".join(f"{line},\n" for line in text.splitlines()).encode(),
    ],
    ids=["utf-16", "byte order mark", "old Mac", "Windows", "blank lines", "bars", "blanks", "an empty column"],
)
def test_csv_dialects_are_read(change, tmp_path):
    """One column name contains quotes, which polars leaves doubled."""
    file = tmp_path / "table.csv"
    file.write_bytes(change(CSV.decode()))
    assert read_table(file).to_dict(as_series=False) == {
        "stay": ["a", "a", "b"],
        "hour": [0, 1, 0],
        "pulse": [1.5, 2.5, 3.5],
        'out "come"': ["ill", "ill", "well"],
    }


def test_quotes_may_span_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr("neuralcde.cli.csv_text.BLOCK", 7)
    file = tmp_path / "table.csv"
    cells = ['"', '""', "a,b", "a\nb", 'a "b" c', "plain"]
    quoted = ['"{}"'.format(cell.replace('"', '""')) for cell in cells]
    for shift in range(8):
        file.write_text("\n".join([f"{'x' * (shift + 1)},n", *(f"{cell},1" for cell in quoted)]) + "\n")
        assert read_table(file)[:, 0].to_list() == cells
        file.write_text(file.read_text() + 'a"b,2\n')
        with pytest.raises(WrongUseError, match=r"line 9: a quote inside the cell a\"b"):
            read_table(file)


def test_a_column_without_a_name_is_left_out(tmp_path):
    """pandas writes its index this way, and the index would reveal the row number to the model."""
    file = tmp_path / "table.csv"
    file.write_text(stays().to_pandas().to_csv())
    with pytest.warns(UserWarning, match=r"table.csv: columns without a name are left out, 1 of 5"):
        series, _ = read_series({"table": str(file), **NAMES})
    assert series.channel_names == ("pulse",)


def test_folders_and_files_of_another_format_are_refused(tmp_path):
    (tmp_path / "table.csv").mkdir()
    with pytest.raises(WrongUseError, match=r"table.csv cannot be read: Is a directory"):
        read_table(tmp_path / "table.csv")
    (tmp_path / "text.parquet").write_bytes(CSV)
    with pytest.raises(WrongUseError, match=r"not a Parquet file: it starts with .*If it is CSV, rename it: mv"):
        read_table(tmp_path / "text.parquet")
    stays().write_ipc_stream(tmp_path / "stream.arrow")
    assert read_table(tmp_path / "stream.arrow").equals(stays())


def test_a_panic_of_polars_is_reported_as_an_unreadable_file(tmp_path, monkeypatch):
    (tmp_path / "table.parquet").write_bytes(parquet())

    def panic(*_):
        raise pl.exceptions.PanicException("assertion failed")

    monkeypatch.setattr(pl, "read_parquet", panic)
    with pytest.raises(WrongUseError, match=r"table.parquet cannot be read: assertion failed"):
        read_table(tmp_path / "table.parquet")


# numbers --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
@pytest.mark.parametrize(
    "write",
    [
        lambda k: f" {k / 10} ",
        lambda k: f"{1000 * k / 10:,.2f}",
        lambda k: f"{k / 10}".replace(".", ","),
        lambda k: f"{k / 10}%",
        lambda k: f"{100 * k:,}".replace(",", "\u202f") if k % 7 else None,
    ],
    ids=["blanks", "thousands", "decimal comma", "percent", "typographic"],
)
def test_formatted_numbers_become_channels(write, ending, tmp_path):
    frame = stays(x=write)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        series, _ = read(frame, tmp_path, ending)
    found = values(series, "x")
    tenths = np.where([cell is None for cell in frame["x"]], np.nan, np.arange(96) / 10)
    np.testing.assert_allclose(found / np.nanmax(found), tenths / 9.5, rtol=1e-6)


@pytest.mark.parametrize(
    ("write", "words"),
    [
        (
            lambda k: f"{k + 1},234",
            "the column x has numbers that can be read in two ways, e.g. '1,234', '2,234', '3,234': "
            "1,234 may be 1234 or 1.234",
        ),
        (lambda k: "1,5" if k % 2 else "2.5", "different ways, e.g. '2.5', '1,5'"),
        (lambda k: "3%" if k % 2 else "0.03", "with and without %"),
        (lambda k: ["low", "high", "-"][k % 3] if k < 9 else "1,5", "values are text, e.g. 'low', 'high', '-'"),
    ],
)
def test_ambiguous_or_mixed_numbers_are_refused(write, words, tmp_path):
    write_table(stays(x=write), tmp_path / "table.csv")
    code, said = run("fit", tmp_path / "table.csv", *OPTIONS, "--out", tmp_path / "out", *SMALL)
    assert code == 2
    assert words in said
    assert "table.csv" in said
    assert "--exclude x" in said


def test_excluded_columns_are_not_channels(tmp_path):
    file, out = tmp_path / "table.csv", tmp_path / "out"
    write_table(stays(x=lambda k: f"{k + 1},234", note=lambda k: "good", y=lambda k: k), file)
    code, said = run("fit", file, *OPTIONS, "--exclude", "x", "--exclude", "note", "--out", out, *SMALL)
    assert code == 0, said
    assert "left out" not in said
    assert json.loads((out / "preprocess.json").read_text())["scaler"]["channel_names_in_"] == ["pulse", "y"]
    assert tomllib.loads((out / "config.toml").read_text())["exclude"] == ["x", "note"]
    assert run("fit", "--config", out / "config.toml", "--out", tmp_path / "again")[0] == 0
    assert (tmp_path / "again" / "model.safetensors").read_bytes() == (out / "model.safetensors").read_bytes()
    for wrong, words in (
        (["--exclude", "z"], "--exclude z: "),
        (["--exclude", "hour"], "--exclude hour: the column is named in"),
    ):
        code, said = run("fit", file, *OPTIONS, *wrong, "--out", tmp_path / "bad", *SMALL)
        assert code == 2
        assert words in said


def test_free_text_and_dates_are_left_out_with_a_warning(tmp_path):
    frame = stays(note=lambda k: f"no. {k}", at=lambda k: dt.date(2024, 1, 1 + k % 28))
    with pytest.warns(UserWarning, match=r"columns left out.*'note'.*'at'"):
        series, _ = read(frame, tmp_path)
    assert series.channel_names == ("pulse",)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("stay;hour;x;outcome\na;0,5;1,234;i\nb;1;2;w\n", [1.234, 2.0]),
        ("stay;hour;x;outcome\na;0.5;1.234;i\nb;1;2;w\n", [1.234, 2.0]),
        ("stay;hour;x;outcome\na;0;1.234,5;i\nb;1;999;w\n", [1234.5, 999.0]),
        ("stay\thour\tx\toutcome\na\t0,5\t1,234\ti\nb\t1\t2\tw\n", [1.234, 2.0]),
        ('stay,hour,x,outcome\na,0.5,"1,234.0",i\nb,1,2,w\n', [1234.0, 2.0]),
        ('stay,hour,x,outcome\n"1,5",0,1.234,"1,5"\nb,1,2,w\n', [1.234, 2.0]),
        ("stay\thour\tx\toutcome\n1,5\t0\t1.234\ti\nb\t1\t2\tw\n", [1.234, 2.0]),
        ("stay;hour;x;outcome\na;0.5;1,234;i\nb;1;2;w\n", "1,234 may be 1234 or 1.234"),
        ("stay;hour;x;outcome\na;0,5;1.234;i\nb;1;2;w\n", "1.234 may be 1.234 or 1234"),
        ("stay\thour\tx\toutcome\na\t0\t1,234\ti\nb\t1\t2\tw\n", "1,234 may be 1234 or 1.234"),
    ],
)
def test_the_decimal_mark_is_inferred_from_the_whole_file(text, expected, tmp_path):
    if isinstance(expected, str):
        with pytest.raises(WrongUseError, match=expected):
            read(text.encode(), tmp_path)
    else:
        series, _ = read(text.encode(), tmp_path)
        np.testing.assert_allclose(values(series, "x"), expected, rtol=1e-6)


def test_text_in_parquet_stays_text_in_labels_and_static_columns(tmp_path):
    """Labels and categories keep their type. Text in a channel is parsed as numbers."""
    series, labels = read(
        stays(outcome=lambda k: "01" if k // 4 % 2 else "2", ward=lambda k: f"{k // 4 % 3}", x=lambda k: f"{k}"),
        tmp_path,
        ".parquet",
        static=["ward"],
    )
    assert set(labels) == {"01", "2"}
    assert series.static_names == ("ward=0", "ward=1", "ward=2")
    assert series.channel_names == ("pulse", "x")


@pytest.mark.parametrize(
    ("role", "words"),
    [
        ("time", "Write all times in the same format"),
        ("static", "leave it out of --static"),
        ("label", "--task classification"),
    ],
)
def test_ambiguous_times_static_columns_and_labels_are_refused(role, words, tmp_path):
    write = {"time": lambda k: f"{k % 4 + 1},234"}.get(role, lambda k: f"{k // 4 + 1},234")
    options = {role: ["x"] if role == "static" else "x"}
    with pytest.raises(WrongUseError, match=r"table.csv: the column x .* may be 1234 or 1.234.*" + words):
        read(stays(x=write), tmp_path, **options)


def test_predict_refuses_what_fit_refuses(model, tmp_path):
    frame = stays().with_columns(pulse=pl.Series([f"{k + 1},234" for k in range(96)]))
    write_table(frame, tmp_path / "new.csv")
    code, said = run("predict", model, tmp_path / "new.csv")
    assert code == 2
    assert "new.csv: the column pulse has numbers that can be read in two ways" in said
    assert "--exclude" not in said
    write_table(stays().drop("hour"), tmp_path / "new.csv")
    code, said = run("predict", model, tmp_path / "new.csv")
    assert code == 2
    assert "no column 'hour'" in said


# labels ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("label", "ending", "words"),
    [
        (lambda k: dt.date(2024, 1, 1 + k // 4 % 2), ".csv", "the label outcome holds Date, e.g. 2024-01-01"),
        (lambda k: dt.datetime(2024, 1, 1 + k // 4 % 2), ".parquet", "the label outcome holds Datetime"),
        (lambda k: dt.timedelta(days=k // 4 % 2), ".parquet", "the label outcome holds Duration"),
        (lambda k: [k // 4 % 2], ".parquet", "the label outcome holds List(Int64)"),
        (lambda k: b"ill", ".parquet", "the label outcome holds Binary"),
        (lambda k: "None" if k < 12 else "mild", ".csv", "the label outcome is 'None' in 12 rows"),
        (lambda k: float("inf") if k < 12 else k // 4 / 7, ".csv", "the label outcome holds infinity"),
        *(
            (
                lambda k, word=word: word if k < 12 else "ill",
                ".csv",
                "3 of 24 series have no label in the column outcome",
            )
            for word in ("<NA>", "NaT", "#NA", " ", " NA ")
        ),
        (lambda k: "<NA>" if k < 12 else "ill", ".parquet", "3 of 24 series have no label in the column outcome"),
        (lambda k: "None" if k < 12 else str(k // 4 % 2), ".csv", "3 of 24 series have no label in the column outcome"),
    ],
)
def test_invalid_and_missing_labels_are_refused(label, ending, words, tmp_path):
    with pytest.raises(WrongUseError) as caught:
        read(stays(outcome=label), tmp_path, ending)
    assert words in str(caught.value)
    assert f"table{ending}" in str(caught.value)


def test_none_is_a_class_when_the_task_is_classification(tmp_path):
    frame = stays(outcome=lambda k: "None" if k // 4 % 2 else "mild")
    _, labels = read(frame, tmp_path, task="classification")
    assert set(labels) == {"None", "mild"}


@pytest.mark.parametrize("kind", [pl.Int128, pl.Float64, pl.Decimal(20, 0), pl.Date, pl.Categorical])
def test_ids_of_every_type_match_their_labels(kind, tmp_path):
    number = pl.col("stay").str.slice(1).cast(pl.Int64)
    stay = pl.col("stay").cast(kind) if kind == pl.Categorical else (10 * number).cast(kind)
    if kind == pl.Float64:
        stay = stay * 1e20
    frame = stays().with_columns(stay=stay)
    labels = stays()["outcome"].to_list()[::4]
    assert read(frame, tmp_path, ".parquet")[1].tolist() == labels


def test_ids_that_are_lists_are_refused(tmp_path):
    with pytest.raises(WrongUseError, match=r"table.parquet: the id stay holds List"):
        read(stays().with_columns(stay=pl.concat_list("stay")), tmp_path, ".parquet")


# precision ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("offset", "dtype"), [(0.0, torch.float32), (1e12, torch.float64), (1e300, torch.float64)])
def test_values_that_float32_cannot_distinguish_are_read_as_float64(offset, dtype, tmp_path):
    """After scaling, a channel around 1e12 equals the same channel around 0."""
    scale = max(1.0, offset * 1e-9)
    series, _ = read(stays(x=lambda k: offset + scale * (k * k % 17)), tmp_path, ".parquet")
    assert series.dtype == dtype
    if offset < 1e100:
        scaled = Preparation.fit(series, intensity=False, encoded=False, scheme="linear", scale="standard").series(
            series
        )
        expected = np.arange(96) ** 2 % 17
        expected = (expected - expected.mean()) / expected.std()
        np.testing.assert_allclose(values(scaled, "x"), expected, atol=1e-5)


def test_a_channel_far_from_zero_trains_as_one_near_zero(tmp_path):
    """Predictions at 1e12 equal those at 0, and no warning says that the channel never varies."""
    found = []
    for offset in (0, 10**12):
        file, out = tmp_path / f"{offset}.csv", tmp_path / f"{offset}"
        write_table(stays(x=lambda k, offset=offset: offset + 1000 * (k // 4 % 2) + k % 4 * 9), file)
        code, said = run("fit", file, *OPTIONS, "--channels", "x", "--out", out, *SMALL[2:], "--max-epochs", "30")
        assert code == 0, said
        assert "never vary" not in said
        assert tomllib.loads((out / "config.toml").read_text())["dtype"] == "auto"
        assert run("predict", out, file, "--out", out / "risk.parquet")[0] == 0
        found.append(pl.read_parquet((out / "risk.parquet").read_bytes())["p_ill"].to_numpy())
    np.testing.assert_allclose(found[0], found[1], atol=1e-4)
    assert found[0].std() > 1e-3


def test_dtype_can_be_chosen(tmp_path):
    file, out = tmp_path / "table.csv", tmp_path / "out"
    write_table(stays(x=lambda k: 10**12 + k * k % 17), file)
    with warnings.catch_warnings():
        warnings.simplefilter("always")  # printed, not raised
        code, said = run("fit", file, *OPTIONS, "--dtype", "float32", "--out", out, *SMALL)
    assert code == 0, said
    assert "the channels ['x'] vary by less than float32 can resolve" in said
    write_table(stays(), file)
    code, said = run("fit", file, *OPTIONS, "--dtype", "float64", "--out", out, *SMALL, "--force")
    assert code == 0
    assert "float64)" in said
    assert tomllib.loads((out / "config.toml").read_text())["dtype"] == "float64"
    assert json.loads((out / "preprocess.json").read_text())["dtype"] == "float64"
    with pytest.raises(WrongUseError, match="--dtype float16 is not one of auto, float32, float64"):
        read_series({"table": str(file), **NAMES, "dtype": "float16"})


@pytest.mark.parametrize(
    ("make", "dtype"),
    [
        (lambda k: 36.5 + k % 5 / 10, torch.float32),
        (lambda k: 1.7e9 + 60 * k, torch.float64),
        (lambda k: [0.3, 0.1 + 0.2][k % 2], torch.float32),
        (lambda k: 1e39 * (k % 3), torch.float64),
        (lambda k: 1e-50 * (k % 3), torch.float64),
        (lambda k: None if k else 5.0, torch.float32),
    ],
    ids=["temperature", "unix seconds", "a constant but for rounding", "too large", "too small", "one value"],
)
def test_the_smallest_sufficient_dtype_is_chosen(make, dtype, tmp_path):
    series, _ = read(stays(x=make), tmp_path, channels=["pulse", "x"])
    assert series.dtype == dtype


# predictions ----------------------------------------------------------------------------------------------------------


def test_ids_that_look_like_formulas_are_escaped_on_request(model, tmp_path):
    """By default ids stay unchanged, so that tables can be joined; `--spreadsheet-safe` adds an apostrophe."""
    ids = ["=cmd|' /C calc'!A0", "+1", "-2", "@x", " =1", "\uff1d1", "plain", "a=b"]
    write_table(pl.concat([stays().head(4).with_columns(stay=pl.lit(name)) for name in ids]), tmp_path / "new.csv")
    for options, expected in (([], ids), (["--spreadsheet-safe"], [f"'{name}" for name in ids[:6]] + ids[6:])):
        for ending in (".csv", ".parquet"):
            out = tmp_path / f"risk{ending}"
            assert run("predict", model, tmp_path / "new.csv", "--out", out, *options)[0] == 0
            found = read_table(out, text=["stay"])
            assert found["stay"].to_list() == expected
            assert found["p_ill"].dtype == pl.Float64
