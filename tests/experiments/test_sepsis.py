"""The sepsis experiment on small files: readers, hourly rows, settings per column, contestants, risk over time."""

import dataclasses
import json

import numpy as np
import pytest
import torch
from benchmarks.data import folder, read_sepsis
from benchmarks.psv import read_psv
from experiments.__main__ import main
from experiments.experiment import Experiment, Run
from experiments.lines import read_lines
from experiments.models import make_model, parameters
from experiments.runs import table_runs
from experiments.sepsis import over_time
from experiments.sepsis.run import Stays, digest, hourly, imputed_ends, prepare, read_stays, split_of
from experiments.tables import main_table

import neuralcde as nc

NAME = "sepsis"
NAN = float("nan")


def psv(rows, static="60.0|1|NaN|NaN|-3.5", first=1, labels=None):
    """The text of a file; rows are the values of two channels."""
    lines = ["HR|Temp|Age|Gender|Unit1|Unit2|HospAdmTime|ICULOS|SepsisLabel"]
    for k, row in enumerate(rows):
        label = 0 if labels is None else labels[k]
        lines.append("|".join([*(str(value) for value in row), static, str(first + k), str(label)]))
    return "\n".join(lines) + "\n"


@pytest.fixture
def psv_folder(tmp_path):
    """Three stays in two folders, as they are unpacked."""
    for name, text in {
        "training_setA/p000002.psv": psv([(80, 37.5), ("NaN", "NaN"), (81, "NaN")], labels=(0, 1, 1)),
        "training_setA/p000001.psv": psv([(70, "NaN"), (71, 36.25)], first=71),
        "training_setB/p100001.psv": psv([(90, 38.0)] * 74, "50.0|0|1|0|0.0", labels=[0] * 73 + [1]),
    }.items():
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    return tmp_path


def test_psv_files_are_read_in_the_order_of_their_ids(psv_folder):
    found = read_sepsis(where=psv_folder)
    assert found.series.ids.tolist() == ["p000001", "p000002", "p100001"]
    assert found.series.channel_names == ("HR", "Temp")
    assert found.series.lengths.tolist() == [2, 3, 74]
    assert found.series[0].times.tolist() == [71, 72]
    expected = torch.tensor([[80, 37.5], [NAN, NAN], [81, NAN]])
    torch.testing.assert_close(found.series[1].values, expected, equal_nan=True)
    torch.testing.assert_close(
        found.series.static[1:], torch.tensor([[60, 1, NAN, NAN, -3.5], [50, 0, 1, 0, 0]]), equal_nan=True
    )
    assert found.in_72_hours.tolist() == [0, 1, 0]  # the label of the third comes at hour 74
    assert found.onset.tolist() == [np.inf, 2, 74]
    assert found.in_paper.tolist() == [True, True, True]  # the first has 72 hours on the paper's grid
    assert read_sepsis(72, where=psv_folder).series.lengths.tolist() == [2, 3, 72]


def test_a_pack_and_psv_files_are_the_same_data(psv_folder):
    from_files = read_sepsis(where=psv_folder)
    series = from_files.series
    np.savez(
        psv_folder / "sepsis2019.npz",
        values=series.values.numpy(),
        offsets=series.offsets.numpy(),
        iculos=series.times.numpy().astype(np.int16),
        sepsis_label=np.concatenate([[0, 0], [0, 1, 1], [0] * 73 + [1]]).astype(np.int8),
        static=series.static.numpy(),
        patient_id=series.ids,
        feature_names=series.channel_names,
        static_names=series.static_names,
        y72=from_files.in_72_hours,
        keep_paper=from_files.in_paper,
    )
    pack = read_sepsis(where=psv_folder)
    assert pack.series == series
    for one, other in zip(pack[1:], from_files[1:], strict=True):
        assert one.tolist() == other.tolist()
    assert digest(Stays(pack.series, pack.in_72_hours, pack.onset)) == digest(
        Stays(series, from_files.in_72_hours, from_files.onset)
    )


def test_damaged_psv_files_are_named(tmp_path):
    good, bad = tmp_path / "p1.psv", tmp_path / "p2.psv"
    good.write_text(psv([(80, 37.5)]))
    bad.write_text(psv([(80, 37.5), (1, 2)]).replace("|2|0", "|3|0"))
    with pytest.raises(ValueError, match=r"p2\.psv: the hours ICULOS must be consecutive"):
        read_psv([good, bad])
    bad.write_text(psv([(80, 37.5)]).replace("Temp", "Resp"))
    with pytest.raises(ValueError, match=r"p2\.psv has the columns HR, Resp, but .*p1\.psv has HR, Temp"):
        read_psv([good, bad])
    bad.write_text("HR|Temp\n1|2\n")
    with pytest.raises(ValueError, match=r"p2\.psv has no column Age, .*SepsisLabel"):
        read_psv([bad])


def test_without_data_it_says_what_to_download(tmp_path):
    published = Experiment.find(NAME).config["published"]
    with pytest.raises(FileNotFoundError, match=r"physionet\.org/content/challenge-2019.*training_setA.*--data DIR"):
        read_stays(tmp_path, published)


def test_other_data_are_refused(sepsis_pack):
    with pytest.raises(ValueError, match=r"found \{'stays': 119, .*'hours': 72\}, expected \{'stays': 40333"):
        read_stays(sepsis_pack, Experiment.find(NAME).config["published"])


@pytest.fixture
def small(sepsis_pack, tmp_path):
    """The experiment on the small pack: its configuration file."""
    text = (Experiment.find(NAME).config_file).read_text()
    changes = {"stays = 40333": "stays = 119", "positive = 2188": "positive = 40", "channels = 34": "channels = 3"}
    changes |= {
        "batch_size = 1024": "batch_size = 32",
        "channels = 35": "channels = 4",
        "channels = 69": "channels = 7",
    }
    for old, new in changes.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    file = tmp_path / "config.toml"
    file.write_text(text)
    return file


def prepared(experiment, folder, model, column, **changes):
    settings = experiment.settings(model, changes, column=column)
    return experiment.prepare(folder, Run(model, column, 0, settings))


def test_columns_have_settings_of_their_own(small, sepsis_pack):
    experiment = Experiment.find(NAME, small)
    for column, channels, static in (("with", 7, 7), ("without", 4, 5)):
        assert experiment.shape(column) == {"channels": channels, "outputs": 1, "static": static}
        for model in experiment.config["models"]:
            parts = prepared(experiment, sepsis_pack, model, column)
            assert parts.shape == experiment.shape(column)
            made = make_model(model, experiment.settings(model, column=column), **parts.shape)
            path, targets = parts.training[:5]
            outputs = made(path)
            assert outputs.shape == (5, 1)
            assert torch.isfinite(outputs).all()
            assert targets.shape == (5,)
    sizes = [len(part) for part in (parts.training, parts.validation, parts.test)]
    assert sizes == [83, 18, 18]
    assert parts.task.positive_weight == 10


def test_sizes_are_the_papers():
    experiment = Experiment.find(NAME)
    for place, column in enumerate(experiment.config["columns"]):
        for model in experiment.config["models"]:
            made = make_model(model, experiment.settings(model, column=column), **experiment.shape(column))
            assert parameters(made) == experiment.config["paper"][model]["parameters"][place], (model, column)


def test_the_plan_has_five_runs_of_the_neural_cde_and_two_of_the_others():
    experiment = Experiment.find(NAME)
    runs = table_runs(experiment, experiment.models, None, None)
    assert len(runs) == len({run.key for run in runs}) == 2 * (5 + 4 * 2)
    first = runs[: 2 * len(experiment.models)]
    assert {run.seed for run in first} == {0}  # so that a part of the runs is a table already
    assert (first[0].model, first[0].column) == ("neural_cde", "with")


def test_rows_are_every_hour_from_the_first_one():
    series = nc.IrregularSeries.from_list([([3.0, 4.0], [[1.0], [NAN]]), ([1.0, 2.0], [[5.0], [6.0]])])
    found = hourly(series)
    assert found.lengths.tolist() == [4, 2]
    assert found.times.tolist() == [1, 2, 3, 4, 1, 2]
    torch.testing.assert_close(found.values[:, 0], torch.tensor([NAN, NAN, 1, NAN, 5, 6]), equal_nan=True)


def test_scaling_and_channels(small, sepsis_pack):
    experiment = Experiment.find(NAME, small)
    parts = prepared(experiment, sepsis_pack, "neural_cde", "with")
    series = parts.training.series
    assert series.roles == ("time", "count", "count", "count", "data", "data", "data")
    assert torch.equal(series.values[:, 0].double(), series.times)  # raw hours
    data = series.values[:, 4:]
    for k in range(3):
        observed = data[:, k][~data[:, k].isnan()]
        assert abs(float(observed.mean())) < 1e-4
        assert float(observed.std(correction=0)) == pytest.approx(1, abs=1e-3)
    units = series.static[:, 5:]
    assert set(units.unique().tolist()) == {0, 1}
    assert not series.static.isnan().any()
    with np.load(sepsis_pack / "sepsis2019.npz") as pack:
        known = dict(zip(pack["patient_id"].tolist(), ~np.isnan(pack["static"][:, 2]), strict=True))
    assert units[:, 0].tolist() == [float(known[id]) for id in series.ids.tolist()]


def test_a_share_of_the_stays_is_drawn_from_each_part(sepsis_pack, small):
    stays = read_stays(sepsis_pack, Experiment.find(NAME, small).config["published"])
    whole, some = (split_of(stays, {"split_seeds": [0, 1], **more}) for more in ({}, {"share": 0.5}))
    for all_of_it, part in zip(whole, some, strict=True):
        assert len(part) == round(len(all_of_it) / 2)
        assert set(part.tolist()) < set(all_of_it.tolist())


def test_imputed_ends_are_those_of_the_released_code():
    """With made-up observations at the ends of the whole grid, it is the natural spline through those as well."""
    values = [[NAN, 1.0, NAN], [2.0, NAN, NAN], [NAN, 4.0, NAN], [3.0, NAN, NAN]]
    series = nc.IrregularSeries.from_list([([1.0, 2.0, 3.0, 4.0], values), ([1.0, 2.0], values[:2])])
    counted = series.with_channels(counts="per_channel")
    counted.values[:, 0] = counted.values[:, 0] + 1  # time as the experiment has it, from hour 1
    found = imputed_ends(counted, 6)
    assert found.series is counted
    assert len(found.coefficients) == 3 + 1
    assert found.at_rows()[:, 0].tolist() == [1, 2, 3, 4, 1, 2]
    whole = [[2.0, 1.0], [2.0, NAN], [NAN, 4.0], [3.0, NAN], [NAN, NAN], [3.0, 4.0]]
    expected = nc.natural_cubic(nc.IrregularSeries.from_list([(np.arange(1.0, 7), whole)]))
    times = torch.tensor([1.0, 1.3, 2.0, 2.5, 3.9])
    torch.testing.assert_close(found[0].evaluate(times)[0][:, 4:6], expected.evaluate(times)[0])
    assert found[0].evaluate(times)[0][:, 6].abs().max() == 0  # never observed
    counts = found[0].at_rows()[:, 1:4]
    assert counts.tolist() == [[0, 1, 0], [1, 1, 0], [1, 2, 0], [2, 2, 0]]


def test_runs_of_both_columns_give_a_table(small, sepsis_pack, tmp_path):
    some = [NAME, "--data", str(sepsis_pack), "--config", str(small), "--out", str(tmp_path / "out")]
    assert main([*some, "--model", "gru_dt", "--runs", "1", "--epochs", "1"]) == 0
    lines = read_lines(tmp_path / "out" / "results.jsonl")
    assert [line["intensity"] for line in lines] == ["with", "without"] or len(lines) == 2
    assert {line["settings"]["model"].get("intensity", False) for line in lines} == {True, False}
    assert main([*some, "contestants", "--contestant", "length"]) == 0
    table = main_table(Experiment.find(NAME, small, tmp_path / "out"))
    (row,) = [row for row in table.rows if row[0] == "GRU-dt"]
    assert row[1] == "0.878 ± 0.006"
    assert row[2].endswith("(1)")
    assert row[4].endswith("(1)")
    assert row[5:] == ["837", "", "826", ""]
    (row,) = [row for row in table.rows if row[0] == "the length of the stay alone"]
    assert row[2].endswith("(1)")
    assert {len(row) for row in table.rows} == {len(table.names)}


def test_contestants_are_measured_once(small, sepsis_pack, tmp_path, capsys):
    some = [NAME, "contestants", "--data", str(sepsis_pack), "--config", str(small), "--out", str(tmp_path / "out")]
    assert main([*some, "--contestant", "length"]) == 0
    lines = read_lines(tmp_path / "out" / "contestants.jsonl")
    assert [(line["contestant"], line["intensity"], line["seed"]) for line in lines] == [
        ("length", "with", 0),
        ("length", "without", 0),
    ]
    assert 0 <= lines[0]["test_auroc"] <= 1
    assert main([*some, "--contestant", "length"]) == 0
    assert read_lines(tmp_path / "out" / "contestants.jsonl") == lines
    assert main([*some, "--contestant", "oracle"]) == 2
    assert "there is no contestant oracle; there are single, default," in capsys.readouterr().err


def made_up(count=60, seed=0):
    """Stays whose first channel rises before sepsis is found."""
    rng, pairs, onset = np.random.default_rng(seed), [], []
    for k in range(count):
        hours = np.arange(1.0 + (k % 5 == 4), rng.integers(14, 30))
        found = float(rng.integers(8, 20)) if k % 3 == 0 else np.inf
        level = np.clip(hours - found + 8, 0, 8) if np.isfinite(found) else 0 * hours
        values = np.stack([level, 0 * hours], 1) + rng.normal(0, 0.3, (len(hours), 2))
        values[rng.random(values.shape) < 0.6] = NAN
        pairs.append((hours, values))
        onset.append(found if found <= hours[-1] else np.inf)
    onset = np.array(onset)
    return Stays(nc.IrregularSeries.from_list(pairs), np.isfinite(onset).astype(int), onset)


def test_who_is_at_risk_and_what_comes_later():
    pairs = [(np.arange(1.0, n + 1), np.zeros((n, 1))) for n in (5, 8, 8, 3)] + [([7.0, 8.0, 9.0], np.zeros((3, 1)))]
    stays = Stays(nc.IrregularSeries.from_list(pairs), np.array([0, 1, 0, 0, 1]), np.array([np.inf, 6, 90, np.inf, 9]))
    positions, events = over_time.at_risk(stays, 5)
    assert positions.tolist() == [1, 2]  # the others are over, or have not begun
    assert events.tolist() == [1, 0]  # a label after hour 72 does not count
    assert over_time.at_risk(stays, 6).positions.tolist() == [2]  # a positive label at the hour itself
    targets = np.split(over_time.later(stays), [5, 13, 21, 24])
    np.testing.assert_array_equal(targets[0], [0, 0, 0, 0, NAN])
    np.testing.assert_array_equal(targets[1], [1, 1, 1, 1, 1, NAN, NAN, NAN])
    np.testing.assert_array_equal(targets[2], [0] * 7 + [NAN])
    np.testing.assert_array_equal(targets[4], [1, 1, NAN])


def test_predictions_at_an_hour_see_nothing_later():
    stays, rng = made_up(), np.random.default_rng(1)
    training, rest = np.arange(40), np.arange(40, 60)
    model = over_time.risk_of_rows(stays, training, rest, {"max_epochs": 2, "hidden": 4, "width": 4}, 0)
    test = stays.at(rest)
    late = test.series.times > 10
    values = test.series.values.clone()
    values[late] = torch.from_numpy(rng.uniform(-0.3, 0.3, (int(late.sum()), 2))).float()
    changed = test._replace(series=dataclasses.replace(test.series, values=values))
    (before,), (after,) = (over_time.scores_at(model, given, (10,)) for given in (test, changed))
    assert len(before) == len(over_time.at_risk(test, 10).positions)
    np.testing.assert_allclose(before, after, atol=1e-5)
    by_hand = model.predict_proba_at(test.series[over_time.at_risk(test, 10).positions], [10.0])[:, 0, 1]
    np.testing.assert_allclose(1 / (1 + np.exp(-before)), by_hand, atol=1e-5)


def test_pooled_figures_are_paired(tmp_path):
    rng, plan = np.random.default_rng(0), over_time.Plan((6,), 2, {})
    splits = []
    for _ in range(2):
        events = (rng.random(80) < 0.3).astype(int)
        good = events + rng.normal(size=80)
        splits.append(
            {
                "stays 6": rng.permutation(200)[:80],
                "events 6": events,
                "model 6": good,
                "boosting 6": good.copy(),
                "length 6": np.zeros(80),
            }
        )
    (line,) = over_time.pooled(splits, plan, 200, 50)
    assert line["difference"] == {
        "auroc": 0,
        "average_precision": 0,
        "auroc_error": 0,
        "average_precision_error": 0,
    }
    assert line["contestants"]["length"]["auroc"] == pytest.approx(0.5)
    assert 0.02 < line["contestants"]["model"]["auroc_error"] < 0.1
    from sklearn.metrics import roc_auc_score

    by_hand = np.mean([roc_auc_score(split["events 6"], split["model 6"]) for split in splits])
    assert line["contestants"]["model"]["auroc"] == pytest.approx(by_hand)


def test_risk_over_time_gives_lines_a_table_and_a_figure(tmp_path, monkeypatch):
    text = Experiment.find(NAME).config_file.read_text()
    monkeypatch.setattr(over_time, "read_stays", lambda data, published: made_up(150))
    experiment = Experiment.find(NAME, out=tmp_path)
    plan = {"hours": [6, 10], "splits": 2, "options": {"max_epochs": 1, "hidden": 4, "width": 4}}
    experiment.config["over_time"] = plan
    over_time.measure(experiment, tmp_path, resamples=20)
    lines = read_lines(experiment.file("over_time"))
    assert [line["hour"] for line in lines] == [6, 10]
    assert lines[0]["options"] == plan["options"]
    (table,) = over_time.tables(experiment)
    assert [row[0] for row in table.rows] == ["6", "10"]
    assert {len(row) for row in table.rows} == {len(table.names)}
    over_time.draw(experiment, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert "[over_time]" in text


def test_the_real_data_are_those_of_the_paper():
    if not (folder() / "sepsis2019.npz").exists():
        pytest.skip("sepsis2019.npz is not there; set NEURALCDE_DATA to the folder that has it")
    experiment = Experiment.find(NAME)
    stays = read_stays(folder(), experiment.config["published"])
    split = split_of(stays, experiment.config["settings"]["data"])
    assert [len(part) for part in split] == [28233, 6050, 6050]
    assert json.dumps(digest(stays))


def test_prepare_is_what_the_experiment_calls(small, sepsis_pack):
    experiment = Experiment.find(NAME, small)
    settings = experiment.settings("neural_cde", column="without")
    parts = prepare(experiment.config, sepsis_pack, "without", settings)
    assert parts.digest == prepared(experiment, sepsis_pack, "neural_cde", "with").digest
