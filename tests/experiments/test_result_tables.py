"""Tables from a few lines of results."""

import json

import pytest
from experiments.__main__ import main
from experiments.experiment import Experiment
from experiments.runs import ablation_runs, changed, search_runs, table_runs
from experiments.tables import tables

NAME = "character_trajectories"


@pytest.fixture
def experiment(tmp_path):
    return Experiment.find(NAME, out=tmp_path)


def write(experiment, kind, lines):
    experiment.file(kind).write_text("".join(json.dumps(line) + "\n" for line in lines))


def line(run, **more):
    costs = {"epochs": 200, "best_epoch": 99, "seconds": 36.0, "seconds_per_epoch": 0.18, "cpu_seconds": 40.0}
    rest = {"peak_memory_mb": 6.0, "parameters": 8212, "threads": 1, "seconds_to_paper": None}
    own = {"model": run.model, "seed": run.seed, "dropped": run.column, "settings": run.settings}
    return own | costs | rest | more


def cells(table, first):
    """The cells of the row that starts with this, by their column's place."""
    (row,) = [row for row in table.rows if row[0] == first]
    return dict(enumerate(row))


def test_the_papers_table_has_ours_beside_it(experiment):
    runs = [run for run in table_runs(experiment, ["neural_cde"], 3, None) if run.column == 0.3]
    accuracies = (0.98, 0.99, 1.0)
    good = [
        line(run, test_accuracy=a, seconds_to_paper=10.0 + run.seed) for run, a in zip(runs, accuracies, strict=True)
    ]
    short = line(table_runs(experiment, ["neural_cde"], 1, 3)[0], test_accuracy=0.1)  # of another cap: not in the mean
    other = line(runs[0], test_accuracy=0.2) | {"settings": changed(experiment, "neural_cde", "hermite", 0)}
    one = line(table_runs(experiment, ["gru_d"], 1, None)[1], test_accuracy=0.905, cpu_seconds=None)
    write(experiment, "results", [short, *good, other, one])
    write(experiment, "memory", [{"model": "neural_cde", "gradient": "checkpoint", "memory_mb": 1.24}])
    write(experiment, "baseline", [{"dropped": 0.5, "test_accuracy": a} for a in (0.1, 0.911)])
    scores, costs, memory, baseline = tables(experiment)
    assert "at most 300 epochs" in scores.title
    assert scores.names[:3] == ["model", "30 % dropped, paper", "ours"]
    row = cells(scores, "Neural CDE")
    assert (row[1], row[2], row[4]) == ("98.7 ± 0.8", "99.0 ± 1.0 (3)", "")
    assert memory.names == ["model", "paper", "backsolve", "checkpoint", "backprop"]
    assert list(cells(memory, "Neural CDE").values())[1:] == ["1.3", "", "1.2", ""]
    assert cells(scores, "GRU-D")[4] == "90.5 (1)"
    assert cells(scores, "gradient boosting on summary statistics")[4] == baseline.rows[0][1] == "91.1"
    assert len(scores.rows) == 6
    assert costs.title.startswith("The 4 runs took 0.04 hours")
    assert [cells(costs, "Neural CDE")[k] for k in range(1, 8)] == [
        "8212",
        "200",
        "0.18",
        "36",
        "40",
        "6.0",
        "11 (3 of 3)",
    ]
    assert cells(costs, "GRU-D")[8] == "- (0 of 1)"
    assert cells(costs, "GRU-D")[5] == ""


def test_search_is_sorted_by_validation_accuracy(experiment):
    runs = search_runs(experiment, ["ode_rnn", "gru_d"], None, 5)[:4]
    write(experiment, "search", [line(run, validation_accuracy=0.1 * k) for k, run in enumerate(runs)])
    (table,) = tables(experiment)
    assert [row[0] for row in table.rows] == ["GRU-D", "ODE-RNN", "GRU-D", "ODE-RNN"]
    assert table.rows[1][1:4] == ["16", "32", "2"]
    assert table.rows[0][5:] == ["30.0", "200", "5"]


def test_ablations_are_paired_by_seed(experiment):
    accuracy = {(0, True): 0.90, (1, True): 0.96, (0, False): 0.93, (1, False): 0.97}
    lines = []
    for run in ablation_runs(experiment, ["neural_cde"], 2, 40):
        same = run.settings == changed(experiment, "neural_cde", "as in the table", run.seed, 40)
        if same or run.settings["path"]["scheme"] == "hermite":
            lines.append(line(run, held_out_accuracy=accuracy[run.seed, same]))
    write(experiment, "ablations", lines)
    (table,) = tables(experiment)
    assert "at most 40 epochs" in table.title
    assert list(cells(table, "hermite").values())[1:3] == ["95.0 ± 2.8 (2)", "+2.0 ± 1.0"]
    assert list(cells(table, "as in the table").values())[1:3] == ["93.0 ± 4.2 (2)", ""]
    assert len(table.rows) == 2


def test_speed_shows_the_last_comparison(experiment):
    def compared(seconds):
        about = {"dropped": 0.3, "batches": 10, "threads": 2, "machine": "a machine", "torchcde": "0.2.5"}
        return about | {
            "seconds_per_epoch": seconds,
            "knots_seconds_per_epoch": 0.5,
            "torchcde_seconds_per_epoch": 40.0,
        }

    write(experiment, "speed", [compared(9.0), compared(1.0)])
    (table,) = tables(experiment)
    assert table.rows == [["30 % dropped", "40.0", "1.00", "40", "0.50", "80"]]


def test_they_are_printed_as_markdown(experiment, capsys):
    assert main([NAME, "tables", "--out", str(experiment.folder)]) == 0
    assert f"run: python -m experiments {NAME}" in capsys.readouterr().out
    write(experiment, "results", [line(table_runs(experiment, ["gru_dt"], 1, None)[0], test_accuracy=0.94)])
    assert main([NAME, "--out", str(experiment.folder), "tables"]) == 0
    out = capsys.readouterr().out
    assert "| GRU-dt | 93.6 ± 2.0 | 94.0 (1) | 91.3 ± 2.1 |  |" in out
    assert out.count("\n| --- | --- |") == 2


def test_gradient_boosting_on_the_same_split(pack, config, tmp_path, capsys):
    options = ["--config", str(config), "--out", str(tmp_path), "--data", str(pack)]
    assert main([NAME, "baseline", *options]) == 0
    lines = [json.loads(text) for text in (tmp_path / "baseline.jsonl").read_text().splitlines()]
    assert [line["dropped"] for line in lines] == [0.0, 0.3, 0.5, 0.7]
    assert {line["test_series"] for line in lines} == {12}
    assert lines[0]["test_accuracy"] > 0.5  # of four letters
    capsys.readouterr()
    assert main([NAME, "tables", *options]) == 0
    assert "gradient boosting on summary statistics" in capsys.readouterr().out
