"""Tasks from outside the package, by name and as objects, in estimators, reports and on the command line."""

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

import neuralcde as nc
import own_parts
from neuralcde.report import record_run, write_report
from neuralcde.tasks import Task
from own_parts import DoubtfulLabels, PoissonCounts

FAST = {"max_epochs": 2, "hidden": 4, "width": 4, "depth": 1, "random_state": 0}
rng = np.random.default_rng(0)
X = rng.normal(size=(40, 9, 2)).cumsum(1)
X[rng.random(X.shape) < 0.2] = np.nan
SERIES = nc.IrregularSeries.from_padded(X)
CLASSES = np.where(rng.random(40) < 0.4, "ill", "well")
COUNTS = rng.poisson(3.0, 40).astype(float)
CASES = {
    "classifier, by name": (nc.NeuralCDEClassifier, CLASSES, "test doubtful labels"),
    "classifier, by class": (nc.NeuralCDEClassifier, CLASSES, DoubtfulLabels),
    "classifier, with options": (nc.NeuralCDEClassifier, CLASSES, DoubtfulLabels.with_options(doubt=0.2)),
    "classifier, object": (nc.NeuralCDEClassifier, CLASSES, DoubtfulLabels(("ill", "well"), doubt=0.3)),
    "regressor, by name": (nc.NeuralCDERegressor, COUNTS, "test poisson"),
    "regressor, object": (nc.NeuralCDERegressor, COUNTS, PoissonCounts()),
}


@pytest.mark.parametrize("name", CASES)
def test_own_tasks_are_cloned_fitted_saved_loaded_and_reported(name, tmp_path):
    kind, y, task = CASES[name]
    estimator = clone(kind(task=task, **FAST))
    if not isinstance(task, type):
        assert estimator.task == task
    estimator.fit(SERIES[:30], y[:30]).save(tmp_path)
    loaded = nc.load(tmp_path)
    assert loaded.task_ == estimator.task_
    assert isinstance(task, type) or loaded.task == task
    assert np.array_equal(loaded.predict(SERIES), estimator.predict(SERIES))
    assert np.array_equal(loaded.fit(SERIES[:30], y[:30]).predict(SERIES), estimator.predict(SERIES))
    record_run(tmp_path, estimator, SERIES, y, test=np.arange(30, 40))
    page = write_report(tmp_path).read_text()
    for metric in estimator.task_.metrics(torch.zeros(2, 1), estimator.task_.encode(y[:2])):
        assert nc.tasks.metric_title(metric) in page


def test_own_tasks_take_effect_in_training():
    plain = nc.NeuralCDEClassifier(**FAST).fit(SERIES, CLASSES)
    doubtful = nc.NeuralCDEClassifier(task=DoubtfulLabels.with_options(doubt=0.45), **FAST).fit(SERIES, CLASSES)
    assert not np.array_equal(plain.predict_proba(SERIES), doubtful.predict_proba(SERIES))
    assert nc.NeuralCDERegressor(task="test poisson", **FAST).fit(SERIES, COUNTS).predict(SERIES).min() > 0


def test_class_weights_reach_a_task_by_name():
    clf = nc.NeuralCDEClassifier(task="test doubtful labels", class_weight="balanced", **FAST).fit(SERIES, CLASSES)
    positives = np.mean(CLASSES == "well")
    assert clf.task_.positive_weight == pytest.approx((1 - positives) / positives)


def test_a_grid_search_reaches_the_options_of_a_task():
    clf = nc.NeuralCDEClassifier(task=DoubtfulLabels.with_options(doubt=0.0), **FAST)
    search = GridSearchCV(clf, {"task__doubt": [0.1, 0.3]}, cv=2).fit(SERIES, CLASSES)
    assert search.best_estimator_.task_.doubt == search.best_params_["task__doubt"]


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (nc.NeuralCDEClassifier, {"task": "ranking"}, "task must be .*'binary'.*, got 'ranking'"),
        (nc.NeuralCDEClassifier, {"task": "test poisson"}, "is a regression task, but this estimator is for class"),
        (nc.NeuralCDERegressor, {"task": "binary"}, "is a classification task"),
        (
            nc.NeuralCDEClassifier,
            {"task": DoubtfulLabels(("ill", "well")), "class_weight": "balanced"},
            "class_weight cannot be given together with a task object",
        ),
        (
            nc.NeuralCDEClassifier,
            {"task": DoubtfulLabels(("a", "b"))},
            "y has the class '(ill|well)', which is not one",
        ),
    ],
)
def test_unsuitable_tasks_are_refused(kind, options, message):
    with pytest.raises(ValueError, match=message):
        kind(**FAST, **options).fit(SERIES, CLASSES if kind is nc.NeuralCDEClassifier else np.arange(40) % 2)


def test_loading_an_unregistered_task_names_it(tmp_path):
    nc.NeuralCDERegressor(task="test poisson", **FAST).fit(SERIES, COUNTS).save(tmp_path)
    Task.registry.remove("test poisson")
    try:
        with pytest.raises(ValueError, match=r"no task 'test poisson'.*first import the module"):
            nc.load(tmp_path)
    finally:
        Task.registry.add("test poisson", PoissonCounts)


COMMANDS = """
    import contextlib, io, json, sys
    from neuralcde.cli import main

    found = []
    for arguments in json.loads(sys.stdin.read()):
        complaints, code = io.StringIO(), 0
        with contextlib.redirect_stderr(complaints):
            try:
                main(arguments)
            except SystemExit as end:
                code = end.code or 0
        found.append((code, " ".join(complaints.getvalue().split())))
    with open("found.json", "w") as file:
        json.dump(found, file)
"""


def test_the_command_line_imports_the_given_module(tmp_path):
    """fit, predict and report work with the user's own path scheme, field, model and task."""
    frame = SERIES.to_long("pandas")
    frame["state"] = np.repeat(CLASSES, SERIES.lengths.numpy())
    frame.to_csv(tmp_path / "table.csv", index=False)
    (tmp_path / "own_parts.py").write_text(Path(own_parts.__file__).read_text())

    def in_a_process(*commands):
        """The exit code of each command and what it complains about, one after the other in a new process."""
        line = [sys.executable, "-c", textwrap.dedent(COMMANDS)]
        done = subprocess.run(
            line, input=json.dumps(commands), capture_output=True, text=True, timeout=300, cwd=tmp_path
        )
        assert done.returncode == 0, done.stderr
        return json.loads((tmp_path / "found.json").read_text())

    names = ["--id", frame.columns[0], "--time", frame.columns[1], "--label", "state"]
    own = ["--task", "test doubtful labels", "--path", "test staircase", "--field", "test rotation"]
    small = ["--max-epochs", "1", "--hidden", "4", "--verbose", "0"]
    imported = ["--import", "own_parts"]
    found = in_a_process(
        [*imported, "fit", "table.csv", *names, *own, *small, "--out", "run"],
        [*imported, "report", "run"],
        [*imported, "predict", "run", "table.csv", "--out", "again.csv"],
        [*imported, "fit", "table.csv", *names, "--task", "ranking", "--out", "other"],
        [*imported, "fit", "table.csv", *names, *small, "--model", "test last values", "--out", "model"],
    )
    assert [code for code, _ in found] == [0, 0, 0, 2, 0], found
    assert '--task must be "classification", "binary"' in found[3][1]
    assert json.loads((tmp_path / "run" / "config.json").read_text())["task"]["name"] == "test doubtful labels"
    assert "test doubtful labels" in (tmp_path / "run" / "config.toml").read_text()
    (again,) = in_a_process([*imported, "predict", "run", "table.csv", "--out", "later.csv"])
    assert again[0] == 0, again
    assert (tmp_path / "later.csv").read_text() == (tmp_path / "again.csv").read_text()
    ((code, complaint),) = in_a_process(["predict", "run", "table.csv"])
    assert code == 2
    assert "first import the module that defines it" in complaint
