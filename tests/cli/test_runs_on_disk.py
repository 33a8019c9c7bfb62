"""What `neuralcde fit` writes and prints when it succeeds, fails, is killed or is interrupted."""

import contextlib
import io
import os
import pkgutil
import signal
import subprocess
import sys
import textwrap

import numpy as np
import polars as pl
import pytest

import neuralcde as nc
from fresh_python import fresh_python
from neuralcde.cli import demo, main

pytestmark = pytest.mark.xdist_group("command line")

SUBPROCESS_RUN = subprocess.run
NAMES = ["--id", "stay", "--time", "hour", "--label", "outcome"]
SMALL = ["--max-epochs", "3", "--hidden", "4", "--width", "4", "--verbose", "0"]
MODEL = {
    "config.json",
    "config.toml",
    "data.json",
    "examples.safetensors",
    "metrics.json",
    "model.safetensors",
    "preprocess.json",
    "test_outputs.safetensors",
    "test_predictions.csv",
    "training",
}


def run(*arguments):
    """Run the command in this process; returns the exit code, standard output and standard error, one line each."""
    said, complaints, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(complaints):
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as end:
            code = end.code or 0
    return code, " ".join(said.getvalue().split()), " ".join(complaints.getvalue().split())


def fit(table, out, *options):
    return run("fit", table, *NAMES, "--out", out, *SMALL, "--force", *options)


def contents(folder):
    """Every file in a folder, hidden ones included."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    rng = np.random.default_rng(0)
    rows = [
        (f"s{k}", float(t), float(rng.normal()) + k % 2, ["ill", "well"][k % 2]) for k in range(20) for t in range(4)
    ]
    file = tmp_path_factory.mktemp("data") / "vitals.csv"
    pl.DataFrame(rows, schema=["stay", "hour", "pulse", "outcome"], orient="row").write_csv(file)
    return file


@pytest.fixture
def out(table, tmp_path):
    """The folder of a finished run."""
    assert fit(table, tmp_path / "model")[0] == 0
    assert {path.name for path in (tmp_path / "model").iterdir()} == MODEL
    return tmp_path / "model"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--solver", "rk5"], 'Invalid value "rk5" for --solver'),
        (["--substeps", "0"], "--substeps must be an integer from 1 to 1000, got 0"),
        (["--learning-rate", "-1"], '--learning-rate must be "auto" or a number in [0, inf), got -1'),
        (["--seed", "-1"], "--seed must be an integer from 0 to 4294967295, got -1"),
        (["--empty-channels"], "--channels: no channels are given"),
    ],
)
def test_invalid_options_are_refused_before_the_table_is_read_and_change_nothing(options, message, out):
    before = contents(out)
    code, _, said = fit("there_is_no_such.csv", out, *options)
    assert (code, message in said) == (2, True), said
    assert contents(out) == before


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('learning_rate = "fast"', "learning_rate must be \"auto\" or a number in [0, inf), got 'fast'."),
        ("learning_rate = -1.0", 'learning_rate must be "auto" or a number in [0, inf), got -1.0.'),
        ("hidden = true", "hidden must be an integer from 1 to 100000, got True."),
        ("batch_size = 2.5", 'batch_size must be "auto" or an integer of at least 1, got 2.5.'),
        ('path = "spline"', "path must be 'hermite', 'linear', 'natural_cubic', 'rectilinear'"),
        ("channels = [3]", "channels = [3] is not a list of names."),
        ('per_row = "yes"', "per_row must be True or False, got 'yes'."),
        ("seed = true", "seed = True is not an integer."),
        ('task = "survival"', 'task must be "classification", "binary"'),
        ("table = 3", "table = 3 is not the name of a file."),
        ("random_state = 3", "random_state is called seed here; write seed = 3."),
        ("self = 3", "has the unknown option self."),
        ("hiden = 3", "has the unknown option hiden."),
    ],
)
def test_invalid_configurations_are_refused_before_the_table_is_read(line, message, tmp_path):
    config = tmp_path / "run.toml"
    config.write_text(f"{line}\n")
    table = [] if line.startswith("table") else [tmp_path / "there_is_no_such.csv"]
    code, _, said = run("fit", *table, *NAMES, "--config", config, "--out", tmp_path / "model")
    assert (code, f"--config {config}" in said, message in said) == (2, True, True), said
    assert not (tmp_path / "model").exists()


def test_a_configuration_without_channels_is_refused(table, tmp_path):
    config = tmp_path / "run.toml"
    config.write_text("channels = []\n")
    code, _, said = run("fit", table, *NAMES, "--config", config, "--out", tmp_path / "model", *SMALL)
    assert (code, "no channels are given; name one, or leave it out" in said) == (2, True), said


def test_an_unreadable_configuration_is_refused(table, tmp_path):
    code, _, said = run("fit", table, *NAMES, "--config", tmp_path, "--out", tmp_path / "model", *SMALL)
    assert (code, f"--config {tmp_path} cannot be read: Is a directory." in said) == (2, True), said


def test_an_invalid_output_folder_is_refused_before_the_table_is_read(table, tmp_path):
    code, _, said = fit(tmp_path / "there_is_no_such.csv", table)
    assert (code, f"--out {table} is a file; name a folder." in said) == (2, True), said
    code, _, said = fit(tmp_path / "there_is_no_such.csv", table / "model")
    assert (code, f"--out {table / 'model'} cannot be written to: Not a directory." in said) == (2, True), said


def test_an_earlier_run_is_replaced_on_request_only(table, out):
    before = contents(out)
    code, _, said = run("fit", table, *NAMES, "--out", out, *SMALL, "--seed", "1")
    assert (code, f"--out {out} holds an earlier run; name another folder" in said) == (2, True), said
    assert contents(out) == before
    (out / "config.json").unlink()  # a run that was killed has a checkpoint alone
    assert run("fit", table, *NAMES, "--out", out, *SMALL)[0] == 2
    assert run("fit", table, *NAMES, "--out", out, *SMALL, "--resume")[0] == 0
    assert run("fit", table, *NAMES, "--out", out, *SMALL, "--force", "--seed", "1")[0] == 0
    assert "seed = 1" in (out / "config.toml").read_text()


def test_a_second_run_is_refused_and_files_of_a_killed_run_are_removed(table, out, tmp_path):
    """A real process is killed once it has a checkpoint; the next run starts in the same folder."""
    long = ["--max-epochs", "1000000", "--patience", "none", "--hidden", "4", "--width", "4"]
    command = [sys.executable, "-m", "neuralcde", "fit", str(table), *NAMES, "--out", str(out), *long, "--force"]
    model = {name: content for name, content in contents(out).items() if not name.startswith("training")}
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=-1, text=True) as process:
        assert any(line.startswith("epoch") for line in iter(process.stderr.readline, ""))
        before = contents(out)
        code, _, said = fit(table, out)
        assert (code, f"--out {out} is in use: another run is writing to it." in said) == (2, True), said
        assert before.keys() <= contents(out).keys()
        process.kill()
    assert process.returncode == -signal.SIGKILL
    assert {name: content for name, content in contents(out).items() if name in model} == model
    (out / ".0123456789abcdef.part").mkdir()
    (out / "training" / ".checkpoint.pt.0123456789abcdef.part").write_bytes(b"half")
    code, _, said = fit(table, out)
    assert (code, said) == (0, "")
    assert {path.name for path in out.iterdir()} == MODEL
    assert {path.name for path in (out / "training").iterdir()} == {"checkpoint.pt", "history.jsonl"}


def test_the_error_about_a_damaged_checkpoint_names_a_remedy(table, out):
    file = out / "training" / "checkpoint.pt"
    file.write_bytes(file.read_bytes()[:-1])
    before = contents(out)
    code, _, said = fit(table, out, "--resume")
    assert (code, f"{file} is damaged" in said, "use --force to start anew." in said) == (2, True, True), said
    assert contents(out) == before
    assert fit(table, out)[0] == 0


def test_runs_with_the_same_process_id_do_not_collide(table, out, monkeypatch):
    monkeypatch.setattr(os, "getpid", lambda: 1)
    (out / ".0123456789abcdef.part").mkdir()
    code, _, said = fit(table, out, "--seed", "1")
    assert (code, said) == (0, "")
    assert "seed = 1" in (out / "config.toml").read_text()


def test_the_report_of_the_old_model_is_removed_with_the_old_model(table, out, monkeypatch):
    page = out / "report.html"
    page.write_text("of the old model")
    with monkeypatch.context() as patch:
        patch.setattr("neuralcde.cli.fit.write_table", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left")))
        assert fit(table, out, "--seed", "1")[0] == 1
    assert page.read_text() == "of the old model"
    assert fit(table, out, "--seed", "1")[0] == 0
    assert not page.exists()


def press_ctrl_c(monkeypatch, where, times=1):
    """Send SIGINT when a function is called, and then call it."""
    called = pkgutil.resolve_name(where)

    def interrupted(*arguments, **options):
        for _ in range(times):
            signal.raise_signal(signal.SIGINT)
        return called(*arguments, **options)

    monkeypatch.setattr(where, interrupted)


@pytest.mark.parametrize("where", ["neuralcde.cli.fit.check_parameters", "neuralcde.cli.fit.read_labelled"])
def test_ctrl_c_before_the_first_epoch_changes_nothing(where, table, out, monkeypatch):
    """Ctrl-C comes while the options are checked or while the table is read."""
    before = contents(out)
    press_ctrl_c(monkeypatch, where)
    code, said, complaint = fit(table, out, "--seed", "1")
    assert (code, said) == (1, "")
    assert complaint in ("neuralcde: Interrupted.", "neuralcde: Interrupted. Nothing was written.")
    assert contents(out) == before


@pytest.mark.parametrize("where", ["neuralcde.train.loop.save_state", "neuralcde.cli.fit.write_table"])
def test_two_ctrl_c_during_a_write_lose_nothing(where, table, out, tmp_path, monkeypatch):
    """Ctrl-C comes twice, during the first checkpoint or while the model is written."""
    with monkeypatch.context() as patch:
        press_ctrl_c(patch, where, times=2)
        code, said, complaint = fit(table, tmp_path / "new")
    assert (code, complaint) == (0, "")
    stopped = "save_state" in where
    message = "Interrupted: the best model so far is kept. The same command with --resume continues."
    assert (message in said) is stopped
    assert nc.load(tmp_path / "new").n_iter_ == (1 if stopped else 3)
    assert fit(table, tmp_path / "new", "--resume")[0] == 0
    assert (tmp_path / "new" / "model.safetensors").read_bytes() == (out / "model.safetensors").read_bytes()


def test_ctrl_c_during_the_test_of_an_interrupted_training_can_be_resumed(table, out, tmp_path, monkeypatch):
    """There is one message, it is true, and the remedy that it names works."""
    whole = (out / "model.safetensors").read_bytes()
    (out / "model.safetensors").write_bytes(b"of an older run")
    before = {name: content for name, content in contents(out).items() if not name.startswith("training")}
    with monkeypatch.context() as patch:
        press_ctrl_c(patch, "neuralcde.train.loop.write_history")
        press_ctrl_c(patch, "neuralcde.estimators.path_estimator.PathEstimator.outputs")
        code, said, complaint = fit(table, out)
    assert code == 1
    assert "kept" not in said
    assert complaint == (
        "neuralcde: Interrupted. No model was written. The checkpoint is kept: the same command with --resume "
        "continues after its last epoch."
    )
    assert {name: content for name, content in contents(out).items() if not name.startswith("training")} == before
    assert fit(table, out, "--resume")[0] == 0
    assert (out / "model.safetensors").read_bytes() == whole


@pytest.mark.parametrize("lost", [False, True])
def test_ctrl_c_during_the_import_of_torch_prints_one_line(lost, tmp_path):
    """This also holds when native code that calls Python drops the exception."""
    done = fresh_python(
        f"""
        import contextlib, runpy, signal, sys

        class Press:
            def find_spec(self, name, *_):
                if name == "torch":
                    with contextlib.suppress(KeyboardInterrupt if {lost} else ()):
                        signal.raise_signal(signal.SIGINT)

        sys.meta_path.insert(0, Press())
        sys.argv = ["neuralcde", "fit", "table.csv", "--out", {str(tmp_path / "model")!r}]
        runpy.run_module("neuralcde", run_name="__main__")
        """
    )
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "neuralcde: Interrupted. Nothing was written.\n")
    assert not (tmp_path / "model").exists()


def test_a_command_run_in_python_restores_the_signal_handler(table, tmp_path):
    before = signal.getsignal(signal.SIGINT)
    assert fit(tmp_path / "there_is_no_such.csv", tmp_path / "model")[0] == 2
    assert signal.getsignal(signal.SIGINT) is before


def test_the_demo_lets_its_command_handle_ctrl_c(monkeypatch, capfd):
    """The command saves its model and says so; the demo waits for it and prints nothing more."""
    script = textwrap.dedent(
        """
        import os, signal, sys
        signal.signal(signal.SIGINT, lambda *_: None)
        os.kill(os.getppid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        print("the best model is kept")
        """
    )
    monkeypatch.setattr(subprocess, "run", lambda *_: SUBPROCESS_RUN([sys.executable, "-c", script]))
    try:
        with pytest.raises(SystemExit) as end:
            demo._run("fit")
    except KeyboardInterrupt:
        pytest.fail("the demo did not wait for its command")
    assert end.value.code == 1
    assert capfd.readouterr() == ("\n$ neuralcde fit\nthe best model is kept\n", "")
