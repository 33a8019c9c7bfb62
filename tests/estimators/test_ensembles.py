"""Ensembles: members with seeds and validation series of their own, averaged; gradient boosting as a member."""

import hashlib
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from safetensors.torch import load as from_safetensors
from safetensors.torch import save as as_safetensors
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import GridSearchCV

import neuralcde as nc
from neuralcde.cli import main
from neuralcde.estimators import boosting, members
from neuralcde.estimators.boosting import boosting_features, feature_count
from neuralcde.train.state import TrainingResult

pytestmark = pytest.mark.xdist_group("ensembles")

SIZE = 60
QUICK = {"max_epochs": 2, "hidden": 3, "width": 4, "depth": 1, "random_state": 0}
RNG = np.random.default_rng(0)


def made_series():
    """Series of 2 to 6 rows; the second channel is missing in every fourth series."""
    pairs = []
    for k in range(SIZE):
        values = RNG.normal(size=(2 + k % 5, 2)).cumsum(0)
        values[RNG.random(values.shape) < 0.2] = np.nan
        values[:, 1] = np.nan if k % 4 == 0 else values[:, 1]
        pairs.append((np.sort(RNG.uniform(0, 9, len(values))), values))
    return nc.IrregularSeries.from_list(pairs, static=RNG.normal(size=(SIZE, 1)))


SERIES = made_series()
SCORE = np.array([np.nansum(SERIES[k].values[:, 0].numpy()) for k in range(SIZE)]) + SERIES.static[:, 0].numpy()
PLACE = np.arange(SIZE)
TARGETS = {
    "binary": np.where(SCORE > 0, "high", "low"),
    "multiclass": np.digitize(SCORE, [-1.0, 1.0]),
    "multilabel": np.stack([SCORE > 0, PLACE % 3 == 0], 1).astype(int),
    "regression": SCORE,
    "two targets": np.stack([SCORE, 100 * SCORE**2], 1),
    "per row": (np.arange(len(SERIES.times)) % 2).astype(float),
}
BOTH = {"members": 2, "boosting": True}


@pytest.fixture
def in_this_process(monkeypatch):
    """Train members one after the other: starting processes takes seconds."""
    monkeypatch.setattr(members, "cores", lambda: 1)


def new(kind="binary", **options):
    make = nc.NeuralCDERegressor if kind in ("regression", "two targets") else nc.NeuralCDEClassifier
    return make(**QUICK | options, per_row=kind == "per row")


def test_members_in_parallel_equal_members_one_after_the_other(monkeypatch, tmp_path, capfd):
    y = TARGETS["binary"]
    monkeypatch.setattr(members, "cores", lambda: 2)
    parallel = new(members=3, verbose=1).fit(SERIES, y, folder=tmp_path / "p")
    lines = [line.split("  ")[0] for line in capfd.readouterr().err.splitlines()]
    assert [line for line in lines if "trained" in line] == [f"{k}/3 members trained" for k in (1, 2, 3)]
    monkeypatch.setattr(members, "cores", lambda: 1)
    threads = torch.get_num_threads()
    sequential = new(members=3).fit(SERIES, y, folder=tmp_path / "s")
    assert torch.get_num_threads() == threads
    assert torch.equal(parallel.member_outputs(SERIES), sequential.member_outputs(SERIES))
    for folder in ("p", "s"):
        assert sorted(part.name for part in (tmp_path / folder).iterdir()) == ["member 1", "member 2", "member 3"]
        assert (tmp_path / folder / "member 3" / "checkpoint.pt").exists()
    longer = new(members=4, max_epochs=2).fit(SERIES, y, folder=tmp_path / "p", resume=True)
    assert torch.equal(longer.member_outputs(SERIES)[:3], parallel.member_outputs(SERIES))
    assert longer.members_[0].history == parallel.members_[0].history  # with the same times: nothing was repeated


def test_members_differ_by_seed_and_by_validation_series(in_this_process, monkeypatch):
    trained, row = [], {"epoch": 1, "loss": 1.0, "rate": 1.0, "seconds": 1.0}

    def note(data, plan, callbacks):
        trained.append(plan)
        return TrainingResult([row], 1)

    monkeypatch.setattr(members, "train_member", note)
    new(members=3).fit(SERIES, TARGETS["binary"])
    assert len({plan.settings.seed for plan in trained}) == 3
    assert len({plan.validating.tobytes() for plan in trained}) == 3
    assert all(len(plan.validating) == 9 for plan in trained)
    weights = [plan.module.state_dict()["field.layers.0.weight"] for plan in trained]
    assert not torch.equal(weights[0], weights[1])
    trained.clear()
    new(members=2).fit(SERIES, TARGETS["binary"], validation=(SERIES[:9], TARGETS["binary"][:9]))
    assert [len(plan.training) for plan in trained] == [SIZE, SIZE]
    assert len({plan.settings.seed for plan in trained}) == 2


@pytest.mark.parametrize("kind", TARGETS)
def test_outputs_are_the_documented_mean_and_survive_saving(kind, in_this_process, tmp_path):
    model = new(kind, **BOTH).fit(SERIES, TARGETS[kind])
    parts = model.member_outputs(SERIES).double()
    cases = len(SERIES.times) if kind == "per row" else SIZE
    assert parts.shape == (3, cases, model.task_.outputs)
    torch.testing.assert_close(model.outputs(SERIES).double(), (parts[:2].mean(0) + parts[2]) / 2, rtol=1e-6, atol=1e-6)
    assert parts[2].std(0).min() > 0  # the trees have learnt something
    centred = parts - parts.mean(-1, keepdim=True) if kind == "multiclass" else parts
    spread = (centred - centred.mean(0)).square().mean(0).sqrt()
    torch.testing.assert_close(model.spread(SERIES).double(), spread, rtol=1e-5, atol=1e-5)
    model.save(tmp_path)
    again = nc.load(tmp_path)
    assert torch.equal(again.member_outputs(SERIES), model.member_outputs(SERIES))
    assert torch.equal(again.outputs(SERIES), model.outputs(SERIES))
    np.testing.assert_array_equal(again.predict(SERIES), model.predict(SERIES))
    assert [member.history for member in again.members_] == [member.history for member in model.members_]
    assert again.module_ is again.members_[0].module


@pytest.mark.parametrize("kind", ["binary", "per row"])
@pytest.mark.parametrize("path", ["linear", "natural_cubic"])
def test_outputs_at_a_time_equal_those_of_the_truncated_series(kind, path, in_this_process):
    model = new(kind, **BOTH, path=path).fit(SERIES, TARGETS[kind])
    begun = SERIES[SERIES.times[SERIES.offsets[:-1]] <= 4.0]
    found = model.outputs_at(begun, [4.0, 20.0])
    for place, t in enumerate((4.0, 20.0)):
        known = begun.until(t)
        expected = model.outputs(known)
        expected = expected[known.offsets[1:] - 1] if kind == "per row" else expected
        torch.testing.assert_close(found[:, place], expected, rtol=1e-5, atol=1e-5)
    assert model.outputs_at(SERIES, [-1.0]).isnan().all()


def test_an_ensemble_without_boosting_is_the_mean_of_its_members(in_this_process):
    model = new(members=3).fit(SERIES, TARGETS["binary"])
    torch.testing.assert_close(model.outputs(SERIES), model.member_outputs(SERIES).mean(0))
    assert model.trees_ is None
    single = new().fit(SERIES, TARGETS["binary"])
    assert torch.equal(single.outputs(SERIES), single.member_outputs(SERIES)[0])
    assert single.spread(SERIES).eq(0).all()
    assert (single.ensemble_, model.ensemble_) == ("", "3 models")


def test_boosting_equals_that_of_scikit_learn_on_the_documented_features(in_this_process, monkeypatch):
    """With settings that draw nothing at random; those for few cases draw features."""
    monkeypatch.setattr(boosting, "FOR_FEW_CASES", {"max_leaf_nodes": 4})
    y, weight = TARGETS["binary"], 1.0 + PLACE % 2
    model = new(boosting=True, class_weight={"high": 1.0, "low": 3.0}).fit(SERIES, y, sample_weight=weight)
    features = boosting_features(model.preparation_, SERIES).double().numpy()
    assert features.shape == (SIZE, feature_count(model.preparation_)) == (SIZE, 7 * 2 + 1 + 1)
    never = np.isnan(features[:, :14].reshape(SIZE, 7, 2)[:, :, 1])
    assert never[PLACE % 4 == 0].tolist() == [[True] * 5 + [False, True]] * 15  # all but the count
    trees = HistGradientBoostingClassifier(
        learning_rate=0.03,
        max_iter=150,
        max_leaf_nodes=4,
        min_samples_leaf=10,
        early_stopping=False,
        l2_regularization=1.0,
    )
    classes = np.where(y == "low", 1.0, 0.0)  # classes are in alphabetical order
    trees.fit(features, classes, weight * np.where(y == "low", 3.0, 1.0))
    found = model.member_outputs(SERIES)[-1, :, 0].double().numpy()
    np.testing.assert_allclose(found, trees.decision_function(features), rtol=1e-5, atol=1e-5)


def test_with_enough_cases_boosting_stops_early_on_the_validation_series(in_this_process, monkeypatch):
    monkeypatch.setattr(boosting, "FEW_CASES", 20)
    made = []
    original = boosting._fitted
    monkeypatch.setattr(boosting, "_fitted", lambda *given: made.append((given, original(*given))) or made[-1][1])
    new(boosting=True).fit(SERIES, TARGETS["binary"])
    (_, known, judge, _), model = made[0]
    assert (len(known.targets), len(judge.targets)) == (51, 9)
    assert model.n_iter_ < boosting.MOST_ITERATIONS
    given = SERIES[:30], TARGETS["regression"][:30]
    new("regression", boosting=True).fit(SERIES, TARGETS["regression"], validation=given)
    assert [len(part.targets) for part in made[1][0][1:3]] == [SIZE, 30]
    monkeypatch.setattr(boosting, "MOST_ROWS", 40)
    new("per row", boosting=True, validation_fraction=0.2).fit(SERIES, TARGETS["per row"])
    assert len(made[2][0][1].targets) == 40


def test_without_intensity_boosting_gets_no_counts_and_no_gaps(in_this_process):
    model = new(boosting=True, intensity=False).fit(SERIES, TARGETS["binary"])
    features = boosting_features(model.preparation_, SERIES)
    assert features.shape == (SIZE, 5 * 2 + 1 + 1)
    assert not features.isnan().any()


def test_a_label_that_never_varies_and_a_class_without_cases_can_be_boosted(in_this_process):
    labels = np.stack([PLACE % 2, 0 * PLACE], 1)
    model = new(boosting=True).fit(SERIES, labels)
    assert (model.member_outputs(SERIES)[-1, :, 1] < -2).all()
    for classes in ((0, 1, 2, 3), (0, 1, 7, 8)):
        task = nc.tasks.MulticlassTask(classes=classes)
        y = TARGETS["multiclass"] if classes[2] == 2 else PLACE % 2
        found = new(boosting=True, task=task).fit(SERIES, y).member_outputs(SERIES)[-1].softmax(1)
        assert (found[:, 3] < 0.05).all()
        assert (found.argmax(1).numpy() == y).mean() > 0.6


def test_a_task_that_cannot_be_boosted_is_refused():
    @dataclass
    class Own(nc.tasks.RegressionTask):
        def boosting_problems(self, targets):
            return None

    task = Own(means=(0.0,), scales=(1.0,))
    with pytest.raises(ValueError, match=r"boosting=True: the task Own .* use boosting=False") as refusal:
        new("regression", boosting=True, task=task).fit(SERIES, TARGETS["regression"])
    assert refusal.value.argument == "boosting"


@pytest.mark.parametrize("options", [{"members": 0}, {"members": 101}, {"members": 1.5}, {"boosting": "yes"}], ids=str)
@pytest.mark.wrong_types
def test_wrong_options_are_refused(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        new(**options).fit(SERIES, TARGETS["binary"])


def test_scikit_learn_clones_and_searches_ensembles(in_this_process):
    assert clone(new(**BOTH)).get_params() == new(**BOTH).get_params()
    search = GridSearchCV(new(max_epochs=1), {"members": [1, 2], "boosting": [False, True]}, cv=2)
    X = RNG.normal(size=(20, 4))
    search.fit(X, np.arange(20) % 2)
    assert len(search.best_estimator_.members_) == search.best_params_["members"]
    assert not hasattr(new(), "module_")


def test_ctrl_c_keeps_the_members_that_have_an_epoch(in_this_process):
    def press(row):
        if len(seen := [*pressed, row]) == 3:
            os.kill(os.getpid(), signal.SIGINT)
        pressed.append(seen[-1])

    pressed = []
    model = new(members=3).fit(SERIES, TARGETS["binary"], callbacks=[press])
    assert (len(model.members_), model.interrupted_) == (2, True)
    assert [len(member.history) for member in model.members_] == [2, 1]


def test_progress_of_members_tells_the_epochs_and_the_time_left(capsys, monkeypatch):
    clock = [100.0]
    monkeypatch.setattr("neuralcde.estimators.members.time.monotonic", lambda: clock[0])
    task = nc.tasks.BinaryTask.from_targets(TARGETS["binary"])
    progress = members.MembersProgress(4, 10, task, verbose=1)
    member = members.Member(torch.nn.Linear(1, 1), [{"epoch": 1, "loss": 0.5, "validation_auroc": 0.75}], 1, [])
    progress.training(lambda: {0: 1, 1: 1})  # too soon for a line
    clock[0] += 8
    progress.training(dict)  # no epoch has ended
    progress.training(lambda: {0: 3, 1: 1})
    clock[0] += 8
    progress.training(lambda: {0: 3, 1: 1})  # nothing new
    progress.finished(member, 0)
    for number in (1, 2, 3):
        progress.finished(member, number)
    assert capsys.readouterr().err.splitlines() == [
        "member 1 epoch 3/10, member 2 epoch 1/10  about 72 s left",
        "1/4 members trained  validation auroc 0.7500  epoch 1 of 1  about 43 s left",
        "2/4 members trained  validation auroc 0.7500  epoch 1 of 1  about 16 s left",
        "3/4 members trained  validation auroc 0.7500  epoch 1 of 1  about 6 s left",
        "4/4 members trained  validation auroc 0.7500  epoch 1 of 1",
    ]


SCRIPT = """
    import os, signal, sys, threading, time
    import numpy as np, torch
    import neuralcde as nc
    from neuralcde.estimators import members

    members.cores, members.LINE_EVERY, lines = lambda: 2, 0.0, []

    class Progress(members.MembersProgress):
        def _print(self, text):
            super()._print(text)
            lines.append(text)

    members.MembersProgress = Progress

    class Own(nc.VectorField, name="own"):
        def __init__(self, channels, hidden):
            super().__init__()
            self.shape, self.layer = (hidden, channels), torch.nn.Linear(hidden, hidden * channels)

        def forward(self, t, z):
            return torch.tanh(self.layer(z)).unflatten(-1, self.shape)

    def press():
        while not any(line.startswith("member 1 epoch") and "member 2 epoch" in line for line in lines):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    print("started")
    X = np.random.default_rng(0).normal(size=(24, 6)).cumsum(1)
    model = nc.NeuralCDEClassifier(field="own", members=2, max_epochs=100_000, hidden=3, patience=None, verbose=1)
    threading.Thread(target=press, daemon=True).start()
    model.fit(X, np.arange(24) % 2, folder="run")
    assert type(model.module_.field) is Own
    print(model.interrupted_, len(model.members_), all(len(member.history) < 100_000 for member in model.members_))
"""


def test_a_script_without_a_main_guard_trains_its_own_parts_in_parallel_and_ctrl_c_ends_it(tmp_path):
    (tmp_path / "script.py").write_text(textwrap.dedent(SCRIPT))
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert (done.stdout, done.returncode) == ("started\nTrue 2 True\n", 0), done.stderr


def test_an_error_in_a_process_is_raised_here(monkeypatch):
    monkeypatch.setattr(members, "cores", lambda: 2)
    with pytest.raises(ValueError, match=r"z0 of series \d+ is not finite"):
        new("regression", members=2, learning_rate=1e30, gradient_clip=None).fit(SERIES, TARGETS["regression"])


class Stubborn:
    """It can be copied, and not be pickled."""

    def __deepcopy__(self, memo):
        return self

    def __reduce__(self):
        raise TypeError("no")


def test_what_cannot_be_pickled_is_trained_in_this_process(monkeypatch):
    monkeypatch.setattr(members, "cores", lambda: 2)

    class Field(nc.MLPField):
        held = None

        def __init__(self, *sizes, **options):
            super().__init__(*sizes, **options)
            self.held = Stubborn()

    with pytest.warns(UserWarning, match=r"one after the other, not in parallel processes: TypeError\('no'\)"):
        assert len(new(members=2, field=Field).fit(SERIES, TARGETS["binary"]).members_) == 2


def test_members_are_trained_in_this_process_where_others_would_be_in_the_way(monkeypatch):
    monkeypatch.setattr(members, "cores", lambda: 4)
    assert members.number_of_processes(3, "cpu", ()) == 3
    assert members.number_of_processes(9, torch.device("cpu"), ()) == 4
    assert members.number_of_processes(3, "cpu", [print]) == 1
    assert members.number_of_processes(3, "cuda", ()) == 1
    monkeypatch.setattr(multiprocessing, "current_process", lambda: multiprocessing.Process(name="LokyProcess-1"))
    assert members.number_of_processes(3, "cpu", ()) == 1


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The files of an ensemble with gradient boosting."""
    folder = tmp_path_factory.mktemp("ensemble")
    new("multiclass", **BOTH).fit(SERIES, TARGETS["multiclass"], callbacks=[lambda row: None]).save(folder)
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def without(tensors, start):
    return {name: value for name, value in tensors.items() if not name.startswith(start)}


DAMAGE = {
    "a member too many": (lambda config, t: config["members"].append(config["members"][0]), "there are 3 members"),
    "a member too few": (lambda config, t: config["members"].pop(), "a model with 1.* of shape none"),
    "no members": (lambda config, t: config["members"].clear(), "there are 0 members, expected 1 to 2"),
    "no weights": (lambda config, t: without(t, "1."), "but model.safetensors holds it with shape none"),
    "no trees": (lambda config, t: without(t, "trees."), "boosting is True, but model.safetensors holds 0 arrays"),
    "trees too many": (lambda config, t: config["parameters"].update(boosting=False), "boosting is False"),
    "a tree less": (lambda config, t: without(t, "trees.left"), "the arrays of the trees are"),
    "a loop": (lambda config, t: t["trees.left"].zero_() * 0, "not later nodes of the same tree"),
    "features": (lambda config, t: t["trees.feature"].fill_(16) * 0, "trees.feature must be from 0 to 15"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_ensemble_is_refused(saved, damage, tmp_path):
    change, words = DAMAGE[damage]
    config, tensors = json.loads(saved["config.json"]), from_safetensors(saved["model.safetensors"])
    found = change(config, tensors)
    weights = as_safetensors(found if isinstance(found, dict) and "0.readout.linear.bias" in found else tensors)
    config["files"]["model.safetensors"] = hashlib.sha256(weights).hexdigest()
    contents = saved | {"config.json": json.dumps(config).encode(), "model.safetensors": weights}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=words) as refusal:
        nc.load(tmp_path)
    assert str(tmp_path) in str(refusal.value)


def test_the_command_line_fits_ensembles(tmp_path, in_this_process, capsys):
    frame = SERIES.to_long("pandas")
    labels = dict(zip(SERIES.ids.tolist(), TARGETS["binary"], strict=True))
    frame["outcome"] = frame["id"].map(labels)
    frame.to_csv(tmp_path / "table.csv", index=False)
    out = str(tmp_path / "model")
    command = ["fit", str(tmp_path / "table.csv"), "--id", "id", "--time", "time", "--label", "outcome", "--out", out]
    small = ["--members", "2", "--boosting", "--max-epochs", "2", "--hidden", "3", "--width", "4", "--verbose", "0"]
    run(*command, *small)
    cost = json.loads((tmp_path / "model" / "metrics.json").read_text())["cost"]
    model = nc.load(out)
    assert cost["parameters"] == 2 * sum(p.numel() for p in model.module_.parameters())
    assert cost["epochs"] == 4
    run("predict", out, str(tmp_path / "table.csv"), "--out", str(tmp_path / "found.csv"))
    assert len((tmp_path / "found.csv").read_text().splitlines()) == SIZE + 1
    capsys.readouterr()
    run("info", out)
    assert "ensemble        2 models and gradient boosting; mean spread of their outputs" in capsys.readouterr().out
    run("report", out)
    page = (tmp_path / "model" / "report.html").read_text()
    assert (
        "an average of 2 models and gradient boosting. The mean spread of their outputs on the test series is" in page
    )


def run(*arguments):
    try:
        main(list(arguments))
    except SystemExit as end:
        assert not end.code, end.code
