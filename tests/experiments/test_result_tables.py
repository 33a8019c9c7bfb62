"""Tables from a few lines of results."""

import json
from dataclasses import fields

import pytest
from experiments.__main__ import main
from experiments.documents import COMMAND, PAGES, REPRODUCING, between_marks, documents
from experiments.experiment import RENAMED, Experiment, complete, merged, names
from experiments.lines import read_lines
from experiments.runs import ablation_runs, changed, run_of, search_runs, table_runs
from experiments.tables import tables

from neuralcde.train import TrainingSettings

NAME = "character_trajectories"


@pytest.fixture
def experiment(tmp_path):
    return Experiment.find(NAME, out=tmp_path)


def write(experiment, kind, lines):
    experiment.file(kind).write_text("".join(json.dumps(line) + "\n" for line in lines))


def line(run, **more):
    costs = {"epochs": 200, "best_epoch": 99, "seconds": 36.0, "seconds_per_epoch": 0.18, "cpu_seconds": 40.0}
    rest = {"peak_memory_mb": 6.0, "parameters": 8212, "wall_seconds": 45.0, "at_once": 2, "machine": "a machine"}
    rest |= {"kernels": "a level"}
    rest |= {"seconds_to_paper": None}
    own = {"model": run.model, "seed": run.seed, "dropped": run.column, "settings": run.settings}
    return own | costs | rest | more


def cells(table, first):
    """The cells of the row that starts with `first`."""
    (row,) = [row for row in table.rows if row[0] == first]
    return dict(enumerate(row))


def test_the_papers_table_has_ours_beside_it(experiment):
    runs = [run for run in table_runs(experiment, ["neural_cde"], 3, None) if run.column == 0.3]
    accuracies = (0.98, 0.99, 1.0)
    good = [
        line(run, test_accuracy=a, seconds_to_paper=10.0 + run.seed) for run, a in zip(runs, accuracies, strict=True)
    ]
    good[1]["epochs"] = 300  # it was not stopped early
    good[2]["epochs"] = 160
    short = line(table_runs(experiment, ["neural_cde"], 1, 3)[0], test_accuracy=0.1)  # another cap: not in the mean
    other = line(runs[0], test_accuracy=0.2) | {"settings": changed(experiment, "neural_cde", "hermite", 0)}
    sixth = line(runs[0], test_accuracy=0.4, seed=experiment.config["runs"])  # more seeds than configured
    one = line(table_runs(experiment, ["gru_d"], 1, None)[1], test_accuracy=0.905, cpu_seconds=None)
    longer = line(runs[0], test_accuracy=0.3)
    longer["settings"] = merged(longer["settings"], {"training": {"max_epochs": 301}})
    write(experiment, "results", [short, longer, *good, other, sixth, one])
    write(experiment, "memory", [{"model": "neural_cde", "gradient": "checkpoint", "memory_mb": 1.24}])
    write(
        experiment,
        "baseline",
        [{"dropped": share, "test_accuracy": a} for share, a in ((0.5, 0.1), (0.0, 0.94), (0.5, 0.911))],
    )
    scores, costs, memory = tables(experiment)
    assert "at most 300 epochs" in scores.title
    assert scores.names[:3] == ["model", "30 % dropped, paper", "ours"]
    row = cells(scores, "Neural CDE")
    assert (row[1], row[2], row[4]) == ("98.7 ± 0.8", "99.0 ± 1.0 (3)", "")
    assert (row[7], row[8]) == ("1.3", "1.2")
    assert cells(scores, "GRU-D")[4] == "90.5 (1)"
    assert scores.rows[-1][0] == "gradient boosting on summary statistics (94.0 with nothing dropped)"
    assert scores.rows[-1][4] == "91.1"
    assert {len(row) for row in scores.rows} == {len(scores.names)}
    assert len(scores.rows) == 6
    assert memory.names == ["model", "paper", "backsolve", "checkpoint", "backprop"]
    assert list(cells(memory, "Neural CDE").values())[1:] == ["1.3", "", "1.2", ""]
    assert "Cost of the 4 runs, 2 at a time on a machine (a level): 0.03 hours" in costs.title
    took = ["8212", "220", "0.18", "36", "40", "6.0", "1", "11 (3 of 3)"]
    assert [cells(costs, "Neural CDE")[k] for k in range(1, 9)] == took
    assert cells(costs, "GRU-D")[9] == "- (0 of 1)"
    assert cells(costs, "GRU-D")[5] == ""


def test_variants_have_tables_of_their_own(experiment):
    runs = table_runs(experiment, ["gru_d"], 1, None)[:1] + table_runs(experiment, ["gru_d"], 1, None, "published")[:1]
    write(experiment, "results", [line(run, test_accuracy=a) for run, a in zip(runs, (0.9, 0.8), strict=True)])
    ours, _, published = tables(experiment)
    assert cells(ours, "GRU-D")[2] == "90.0 (1)"
    assert cells(published, "GRU-D")[2] == "80.0 (1)"
    assert published.title.startswith(
        "Table 1 with padding, weight penalty, initial weights and inputs of the released code and the schedule "
        "of the paper's text: "
    )


def test_a_line_older_than_an_option_had_its_default(experiment):
    (run, *_) = table_runs(experiment, ["gru_d"], 1, None, "unjittered")
    old = line(run, test_accuracy=0.7)
    old["settings"] = merged(run.settings, {})
    del old["settings"]["training"]["channel_jitter"]
    assert run_of(old, "dropped").key == run.key  # so it is not run again
    write(experiment, "results", [old])
    (unjittered,) = tables(experiment)
    assert unjittered.title.startswith("Table 1 without jitter")
    assert cells(unjittered, "GRU-D")[2] == "70.0 (1)"


def test_a_line_keeps_its_meaning_when_a_default_changes(experiment, monkeypatch):
    (run, *_) = table_runs(experiment, ["gru_d"], 1, None)
    old = line(run)
    old["settings"] = merged(run.settings, {})
    del old["settings"]["training"]["gradient_clip"]
    assert run_of(old, "dropped").key == run.key
    monkeypatch.setattr("experiments.experiment.TrainingSettings", lambda: TrainingSettings(gradient_clip=1.0))
    (now, *_) = table_runs(experiment, ["gru_d"], 1, None)
    assert now.settings["training"]["gradient_clip"] == 1.0
    assert run_of(old, "dropped").key == run.key != now.key


def test_a_line_with_earlier_names_of_options_is_the_same_run(experiment):
    (run, *_) = table_runs(experiment, ["gru_d"], 1, None)
    old = line(run)
    old["settings"] = merged(run.settings, {})
    training = old["settings"]["training"]
    for earlier, name in RENAMED.items():
        training[earlier] = training.pop(name)
    assert run_of(old, "dropped").key == run.key
    training["average"] = 0.5
    assert run_of(old, "dropped").key != run.key


@pytest.mark.parametrize("name", names())
def test_recorded_lines_say_every_option_or_are_known_not_to(name):
    """A new option needs an entry in OLD_DEFAULTS; without it no recorded run would match the configuration."""
    options = {field.name for field in fields(TrainingSettings)} - {"seed", "verbose"}
    for kind in ("results", "search", "ablations"):
        for recorded in read_lines(Experiment.find(name).file(kind)):
            assert set(complete(recorded["settings"])["training"]) == options


def test_search_is_sorted_by_validation_accuracy(experiment):
    runs = search_runs(experiment, ["ode_rnn", "gru_d"], None, 5)[:4]
    write(experiment, "search", [line(run, validation_accuracy=0.1 * k) for k, run in enumerate(runs)])
    (table,) = tables(experiment)
    assert [row[0] for row in table.rows] == ["GRU-D", "ODE-RNN", "GRU-D", "ODE-RNN"]
    assert table.rows[1][1:4] == ["16", "32", "2"]
    assert table.rows[0][5:] == ["30.0 (1)", "200", "5"]


def test_search_shows_the_configured_training_and_means_over_seeds(experiment):
    first, second = (
        next(run for run in search_runs(experiment, ["ode_rnn"], 2, 5) if run.seed == seed) for seed in (0, 1)
    )
    changes = ({"training": {"channel_jitter": 0.1}}, {"model": {"steps": "knots"}})
    others = [line(first, validation_accuracy=0.9) | {"settings": merged(first.settings, change)} for change in changes]
    others.append(line(first, validation_accuracy=0.9, dropped=0.7))
    write(experiment, "search", [line(first, validation_accuracy=0.5), line(second, validation_accuracy=0.7), *others])
    (table,) = tables(experiment)
    assert [row[5] for row in table.rows] == ["60.0 ± 14.1 (2)"]


def test_ablations_are_paired_by_seed(experiment):
    accuracy = {(0, True): 0.90, (1, True): 0.96, (0, False): 0.93, (1, False): 0.97}
    lines = []
    for run in ablation_runs(experiment, ["neural_cde"], 2, 40):
        same = run.settings == changed(experiment, "neural_cde", "nothing", run.seed, 40)
        if same or run.settings["path"]["scheme"] == "hermite":
            lines.append(line(run, held_out_accuracy=accuracy[run.seed, same]))
    gru = [line(run, held_out_accuracy=0.5) for run in ablation_runs(experiment, ["gru_d"], 1, 50)[:1]]
    write(experiment, "ablations", [*lines, *gru])
    table, of_gru = tables(experiment)
    assert "at most 40 epochs" in table.title
    assert len(of_gru.rows) == 1
    assert list(cells(table, "hermite").values())[1:3] == ["95.0 ± 2.8 (2)", "+2.0 ± 1.0"]
    assert list(cells(table, "nothing").values())[1:3] == ["93.0 ± 4.2 (2)", ""]
    assert len(table.rows) == 2


def test_speed_shows_the_last_comparison(experiment):
    def compared(seconds):
        about = {
            "dropped": 0.3,
            "epochs": 2,
            "date": "2026-11-16",
            "threads": 2,
            "machine": "a machine",
            "torchcde": "0.2.5",
        }
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


@pytest.mark.parametrize("name", names())
def test_the_documents_are_up_to_date(name):
    made = documents(Experiment.find(name))
    assert set(PAGES) <= set(made)
    for file, text in made.items():
        assert file.read_text() == text, f"run: {COMMAND}"


def test_the_page_of_differences_shows_what_they_are_worth():
    for name in ("sepsis", "speech_commands"):
        assert REPRODUCING in documents(Experiment.find(name))
    assert REPRODUCING not in documents(Experiment.find(NAME))  # its own README has them


def test_changes_may_be_for_some_models_only():
    experiment = Experiment.find("sepsis")
    changes = experiment.config["ablations"]["changes"]
    of = {model: {run.key for run in ablation_runs(experiment, [model], 1, None)} for model in ("neural_cde", "gru_dt")}
    only = [change for change in changes.values() if "only" in change]
    assert only
    for model, keys in of.items():
        assert len(keys) == sum(model in change.get("only", [model]) for change in changes.values())
    assert all("only" not in json.loads(key)[3] for keys in of.values() for key in keys)


def test_results_elsewhere_are_not_for_the_pages(experiment):
    write(experiment, "results", [line(table_runs(experiment, ["gru_dt"], 1, None)[0], test_accuracy=0.94)])
    before = [page.read_text() for page in PAGES]
    assert main([NAME, "tables", "--write", "--out", str(experiment.folder)]) == 0
    assert [page.read_text() for page in PAGES] == before
    page = (experiment.folder / "RESULTS.md").read_text()
    assert "| GRU-dt | 93.6 ± 2.0 | 94.0 (1) |" in page
    assert "s per epoch" in page


def test_a_table_goes_between_its_marks():
    marks = f"<!-- {NAME}: {COMMAND} -->\n", "<!-- end -->\n"
    text = "before\n{}old\n{}after\n"
    assert between_marks(text.format(*marks), NAME, "new\n") == "before\n{}new\n{}after\n".format(*marks)
    for pair in (("", marks[1]), (marks[0], "")):
        with pytest.raises(ValueError, match="must have the lines"):
            between_marks(text.format(*pair), NAME, "new\n")
