"""Runs from the command line: one line per run, no repeats, and no effect of being killed."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from experiments.__main__ import main
from experiments.experiment import Experiment
from experiments.lines import Lines, read_lines
from experiments.runs import ablation_runs, cores, run_of, search_runs, table_runs
from experiments.worker import perform

NAME = "character_trajectories"
ROOT = Path(__file__).parents[2]
TIMES = ("seconds", "seconds_per_epoch", "seconds_to_paper", "cpu_seconds", "wall_seconds", "peak_memory_mb", "at_once")


@pytest.fixture
def command(pack, config, tmp_path):
    """The command line for the small data."""
    return [
        NAME,
        "--data",
        str(pack),
        "--config",
        str(config),
        "--out",
        str(tmp_path / "out"),
        "--workers",
        str(cores()),
    ]


def lasting(line):
    return {name: value for name, value in line.items() if name not in (*TIMES, "threads")}


def test_runs_have_lines_and_are_not_repeated(command, tmp_path, capsys):
    some = [*command, "--model", "gru_dt", "--runs", "1", "--epochs", "2"]
    assert main([*some, "--only", "dropped=0.5"]) == 0
    (line,) = read_lines(tmp_path / "out" / "results.jsonl")
    assert (line["model"], line["seed"], line["dropped"], line["epochs"]) == ("gru_dt", 0, 0.5, 2)
    assert line["test_series"] == line["validation_series"] == 12
    assert 0 <= line["test_accuracy"] <= 1
    assert line["settings"]["training"]["max_epochs"] == 2
    assert line["settings"]["model"]["hidden"] == 47
    for name in (
        "validation_accuracy",
        "best_epoch",
        "parameters",
        "versions",
        "commit",
        "threads",
        "data",
        "date",
        *TIMES,
    ):
        assert name in line
    assert 0 < line["seconds"] < line["wall_seconds"] < 100
    assert line["cpu_seconds"] > 0
    assert line["seconds_to_paper"] is None
    assert not list((tmp_path / "out" / "checkpoints" / "results").iterdir())
    capsys.readouterr()
    assert main([*some, "--only", "dropped=0.5"]) == 0
    assert "1 of 1 runs are in" in capsys.readouterr().out
    assert read_lines(tmp_path / "out" / "results.jsonl") == [line]


def test_a_killed_run_goes_on_to_the_same_line(command, pack, config, tmp_path):
    some = [*command, "--model", "neural_cde", "--runs", "1", "--epochs", "25", "--only", "dropped=0.7"]
    process = subprocess.Popen([sys.executable, "-m", "experiments", *some], cwd=ROOT, stdout=subprocess.DEVNULL)
    checkpoints = tmp_path / "out" / "checkpoints" / "results"
    end = time.monotonic() + 120
    while not (history := list(checkpoints.glob("*/history.jsonl"))) or len(history[0].read_text().splitlines()) < 2:
        assert process.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < end
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert read_lines(tmp_path / "out" / "results.jsonl") == []
    workers_gone(checkpoints)
    kept = history[0].read_text().splitlines()
    assert len(kept) < 25
    assert main(some) == 0
    (resumed,) = read_lines(tmp_path / "out" / "results.jsonl")
    assert not history[0].exists()
    assert resumed["epochs"] == 25
    experiment = Experiment.find(NAME, config)
    whole = perform(experiment, run_of(resumed, "dropped"), data=pack, checkpoint=tmp_path / "whole", test=True)
    assert lasting(resumed) == lasting(whole)
    assert resumed["seconds"] > sum(json.loads(row)["seconds"] for row in kept)


def workers_gone(checkpoints):
    """Wait until no worker uses a checkpoint any more: workers exit with their parent."""
    end = time.monotonic() + 30
    while True:
        before = [file.read_bytes() for file in checkpoints.glob("*/history.jsonl")]
        time.sleep(0.5)
        if before == [file.read_bytes() for file in checkpoints.glob("*/history.jsonl")]:
            return
        assert time.monotonic() < end, "the worker goes on alone"


def test_a_failed_run_has_no_line(command, pack, tmp_path, capfd):
    broken = tmp_path / "config.toml"
    config = command[command.index("--config") + 1]
    broken.write_text(Path(config).read_text().replace('solver = "rk4"', 'solver = "none"'))
    some = [*command, "--model", "neural_cde", "--runs", "1", "--epochs", "1", "--only", "dropped=0.3"]
    assert main([*some, "--config", str(broken)]) == 1
    told = capfd.readouterr()
    assert "neural_cde-0.3-0" in told.out
    assert "solver" in told.err
    assert "1 of 1 runs failed" in told.err
    assert read_lines(tmp_path / "out" / "results.jsonl") == []


def test_a_run_that_was_killed_before_its_line_has_no_costs_of_its_own(pack, config, tmp_path):
    experiment = Experiment.find(NAME, config)
    (run,) = (run for run in table_runs(experiment, ["gru_dt"], 1, 2) if run.column == 0.5)
    first, second = (perform(experiment, run, data=pack, checkpoint=tmp_path / "kept", test=True) for _ in range(2))
    assert lasting(first) == lasting(second)
    assert first["seconds"] == second["seconds"]
    assert first["cpu_seconds"] is not None
    assert second["cpu_seconds"] is second["peak_memory_mb"] is None


def test_folds_and_searches_do_not_look_at_the_test_series(command, tmp_path):
    few = [*command, "--runs", "1", "--epochs", "1"]
    assert main([*few, "ablations", "--only", "scheme=hermite"]) == 0
    (line,) = read_lines(tmp_path / "out" / "ablations.jsonl")
    assert 0 <= line["held_out_accuracy"] <= 1
    assert line["held_out_series"] == 14  # a fifth of the 68 series that are not test series
    assert main([*few, "search", "--only", "hidden=16", "width=32", "depth=1"]) == 0
    (other,) = read_lines(tmp_path / "out" / "search.jsonl")
    assert 0 <= other["validation_accuracy"] <= 1
    assert not [name for name in [*line, *other] if name.startswith("test_")]


def test_runs_on_two_sources_of_the_data_are_not_mixed(command, tmp_path, capsys):
    some = [*command, "--model", "gru_dt", "--runs", "1", "--epochs", "1"]
    assert main([*some, "--only", "dropped=0.5"]) == 0
    results = tmp_path / "out" / "results.jsonl"
    (line,) = read_lines(results)
    results.write_text(json.dumps(line | {"data": "another"}) + "\n")
    assert main([*some, "--only", "dropped=0.5"]) == 0  # all runs are done
    assert main([*some, "--only", "dropped=0.3"]) == 2
    assert "another source of the data" in capsys.readouterr().err


def test_bad_arguments_are_named(command, tmp_path, capsys):
    assert main([*command, "--only", "hidden=5"]) == 2
    assert "no run has hidden=5" in capsys.readouterr().err
    assert main([*command, "--data", str(tmp_path)]) == 2
    assert "timeseriesclassification.com" in capsys.readouterr().err
    assert main([*command, "speed", "--runs", "3"]) == 2
    assert "--runs has no effect on speed" in capsys.readouterr().err
    assert main([*command, "--variant", "none"]) == 2
    assert "--variant none is not one of unjittered, published" in capsys.readouterr().err
    assert main([*command, "--write"]) == 2
    assert "--write has no effect on run" in capsys.readouterr().err
    for option in (["--out", str(tmp_path)], ["--model", "gru_d"]):
        assert main(["tables", *option]) == 2
        assert "python -m experiments NAME tables --out DIR" in capsys.readouterr().err
    assert main([*command, "--config", str(tmp_path / "none.toml")]) == 2
    assert "none.toml" in capsys.readouterr().err
    config = Path(command[command.index("--config") + 1]).read_text()
    (tmp_path / "typo.toml").write_text(config.replace("\npatience", "\npatiense"))
    assert main([*command, "--config", str(tmp_path / "typo.toml")]) == 2
    assert "training has no option patiense; there are max_epochs" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([NAME, "--runs", "0"])
    assert "0 is not at least 1" in capsys.readouterr().err


def test_the_plans_are_the_papers(capsys):
    experiment = Experiment.find(NAME)
    models = list(experiment.config["models"])
    runs = table_runs(experiment, models, None, None)
    assert len(runs) == len({run.key for run in runs}) == 75
    assert len({run.name for run in runs}) == 75
    assert [run.seed for run in runs] == sorted(run.seed for run in runs)
    assert {run.settings["training"]["max_epochs"] for run in runs} == {300}
    search = search_runs(experiment, ["ode_rnn"], None, 10)
    assert len(search) == 24
    assert {run.settings["training"]["max_epochs"] for run in search} == {10}
    changes = experiment.config["ablations"]["changes"]
    ablations = ablation_runs(experiment, ["neural_cde"], 2, 10)
    assert (
        len(ablations)
        == len({run.key for run in ablations})
        == len(changes) * 2 * len(experiment.config["ablations"]["columns"])
    )
    assert {run.seed for run in ablations} == {0, 1}


def test_lines_go_to_the_file_of_the_name_when_it_is_replaced(tmp_path):
    file = tmp_path / "results.jsonl"
    with Lines(file) as lines:
        lines.append({"a": 1})
        other = tmp_path / "other"
        other.write_bytes(file.read_bytes())
        other.replace(file)  # like git and editors
        lines.append({"a": 2})
        with pytest.raises(RuntimeError, match="another process is writing"), Lines(file):
            pass
        file.unlink()
        lines.append({"a": 3})
    assert read_lines(file) == [{"a": 3}]


def test_memory_is_measured_of_the_tables_models(command, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr("experiments.memory.GRADIENTS", ("checkpoint",))
    monkeypatch.setattr("experiments.memory.PROCESSES", 3)
    assert main([*command, "memory", "--model", "gru_d"]) == 0
    (line,) = read_lines(tmp_path / "out" / "memory.jsonl")
    assert (line["model"], line["gradient"]) == ("gru_d", "checkpoint")
    assert 0 < line["memory_mb"] < 50
    assert line["memory_mb"] == sorted(line["memory_mb_of_processes"])[1]
    assert (line["parameters"], line["settings"]["model"]["gradient"]) == (8627 - 16 * 48, "checkpoint")  # four letters
    config = Path(command[command.index("--config") + 1]).read_text()
    (tmp_path / "none.toml").write_text(config.replace('variant = "paper"', 'variant = "none"'))
    assert main([*command, "memory", "--model", "gru_ode", "--config", str(tmp_path / "none.toml")]) == 2
    assert "gru_ode with checkpoint failed" in capfd.readouterr().err


def test_one_writer_at_a_time_and_half_a_line_is_cut_off(tmp_path):
    file = tmp_path / "new" / "results.jsonl"
    with Lines(file) as lines:
        lines.append({"a": 1})
        with pytest.raises(RuntimeError, match="another process is writing"), Lines(file):
            pass
    with file.open("a") as handle:
        handle.write('{"a": 2')
    assert read_lines(file) == [{"a": 1}]
    with Lines(file) as lines:
        lines.append({"a": 3})
    assert read_lines(file) == [{"a": 1}, {"a": 3}]
    assert file.read_text() == '{"a": 1}\n{"a": 3}\n'
