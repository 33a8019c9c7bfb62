"""The code of CONTRIBUTING.md, put into modules outside the package, is fitted, saved, loaded and reported."""

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone

import neuralcde as nc
from neuralcde.models import PathModel
from neuralcde.report import record_run, write_report
from neuralcde.solve import solvers
from neuralcde.tasks import Task

ROOT = Path(__file__).parents[1]
KINDS = ("path scheme", "field", "solver", "model", "task", "experiment")
REGISTRIES = {
    "path scheme": nc.PathScheme.registry,
    "field": nc.VectorField.registry,
    "solver": solvers,
    "model": PathModel.registry,
    "task": Task.registry,
}
LONGEST = 40  # lines per member
FAST = {"max_epochs": 2, "hidden": 4, "width": 4, "depth": 1, "random_state": 0}
TEST = np.arange(0, 24, 4)
TRAINING = np.setdiff1d(np.arange(24), TEST)

rng = np.random.default_rng(0)
VALUES = rng.normal(size=(24, 9, 2)).cumsum(1)
VALUES[rng.random(VALUES.shape) < 0.2] = np.nan
SERIES, Y = nc.IrregularSeries.from_padded(VALUES), np.arange(24) % 2


def section(kind):
    """The section of CONTRIBUTING.md about one kind of member."""
    heading = f"\n## How to add {'an' if kind[0] in 'aeiou' else 'a'} {kind}\n"
    _, found, after = (ROOT / "CONTRIBUTING.md").read_text().partition(heading)
    assert found, f"CONTRIBUTING.md has no section{heading}"
    return after.partition("\n## ")[0]


def block(kind, language="python"):
    """The only block of code in a section."""
    (code,) = re.findall(rf"^```{language}\n(.*?)^```$", section(kind), re.MULTILINE | re.DOTALL)
    return code


@pytest.mark.parametrize("kind", KINDS)
def test_every_section_is_a_numbered_list_and_a_short_program(kind):
    steps = re.findall(r"^(\d+)\. ", section(kind), re.MULTILINE)
    assert steps == [str(k + 1) for k in range(len(steps))]
    assert len(steps) >= 4
    assert len(block(kind).splitlines()) < LONGEST
    for name in re.findall(r"`((?:src|tests|docs|experiments)/[\w/.]+)`", section(kind)):
        assert (ROOT / name).exists(), f"{name} is named in the section and does not exist"


@pytest.fixture(scope="module")
def members(tmp_path_factory):
    """The modules of the page, imported from outside the package; their members are unregistered afterwards."""
    folder, modules = tmp_path_factory.mktemp("outside"), {}
    before = {kind: list(registry) for kind, registry in REGISTRIES.items()}
    for kind in REGISTRIES:
        file = folder / f"own_{kind.replace(' ', '_')}.py"
        file.write_text(block(kind))
        spec = importlib.util.spec_from_file_location(file.stem, file)
        modules[kind] = importlib.util.module_from_spec(spec)
        sys.modules[file.stem] = modules[kind]  # dataclasses and pickle look classes up there
        spec.loader.exec_module(modules[kind])
    yield modules
    for kind, registry in REGISTRIES.items():
        for name in set(registry) - set(before[kind]):
            registry.remove(name)
        del sys.modules[modules[kind].__name__]


# parameters of the estimators, with members by name and as objects
CHOICES = {
    "path scheme by name": ("path", lambda m: "staircase"),
    "path scheme": ("path", lambda m: m["path scheme"].Staircase(height=0.1)),
    "field by name": ("field", lambda m: "sine"),
    "field": ("field", lambda m: m["field"].SineField.with_options(speed=2.0)),
    "solver by name": ("solver", lambda m: "kutta3"),
    "solver": ("solver", lambda m: m["solver"].kutta3),
    "model by name": ("model", lambda m: "pointwise"),
    "model": ("model", lambda m: m["model"].Pointwise.with_options(hidden=6)),
    "task by name": ("task", lambda m: "doubtful"),
    "task": ("task", lambda m: m["task"].DoubtfulLabels(classes=(0, 1), doubt=0.3)),
}


@pytest.fixture(scope="module")
def plain():
    """Predictions with the package's own parts."""
    return nc.NeuralCDEClassifier(**FAST).fit(SERIES[TRAINING], Y[TRAINING]).predict_proba(SERIES[TEST])


@pytest.mark.parametrize("choice", CHOICES)
def test_a_member_from_outside_is_fitted_saved_loaded_and_reported(choice, members, plain, tmp_path):
    parameter, chosen = CHOICES[choice]
    clf = nc.NeuralCDEClassifier(**FAST, **{parameter: chosen(members)}).fit(SERIES[TRAINING], Y[TRAINING])
    expected = clf.predict_proba(SERIES[TEST])
    assert not np.array_equal(expected, plain)  # the member takes effect
    clf.save(tmp_path)
    loaded = nc.load(tmp_path)
    assert np.array_equal(loaded.predict_proba(SERIES[TEST]), expected)
    assert getattr(loaded, parameter) == getattr(clf, parameter)
    assert loaded.predict_proba_at(SERIES[TEST], [2.5]).shape == (len(TEST), 1, 2)
    record_run(tmp_path, loaded, SERIES, Y, test=TEST)
    page = write_report(tmp_path).read_text()
    assert "AUROC" in page
    if parameter == "model":
        assert members["model"].Pointwise.title in page


def test_options_of_members_are_cloned_and_searched(members):
    scheme, field = (CHOICES[kind][1](members) for kind in ("path scheme", "field"))
    clf = nc.NeuralCDEClassifier(path=scheme, field=field)
    other = clone(clf).set_params(path__height=0.3, field__speed=3.0)
    assert (other.path.height, other.field.options) == (0.3, {"speed": 3.0})
    assert (scheme.height, field.options) == (0.1, {"speed": 2.0})


@pytest.mark.parametrize("kind", REGISTRIES)
def test_a_member_by_name_loads_only_after_its_module_was_imported(kind, members, tmp_path):
    parameter, chosen = CHOICES[f"{kind} by name"]
    name, registry = chosen(members), REGISTRIES[kind]
    nc.NeuralCDEClassifier(**FAST | {"max_epochs": 1}, **{parameter: name}).fit(SERIES, Y).save(tmp_path)
    member = registry[name]
    registry.remove(name)
    try:
        with pytest.raises(ValueError, match=name):
            nc.load(tmp_path)
    finally:
        registry.add(name, member)
    assert len(nc.load(tmp_path).predict(SERIES)) == 24


def test_an_experiment_is_added_as_a_folder(tmp_path):
    """The command of the section runs it in a copy of experiments/, without changes to the harness."""
    for folder in ("experiments", "benchmarks"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("results", "*.jsonl"))
    waves = tmp_path / "experiments" / "waves"
    waves.mkdir()
    (waves / "__init__.py").touch()
    (waves / "run.py").write_text(block("experiment"))
    (waves / "config.toml").write_text(block("experiment", "toml"))
    command = [sys.executable, "-m", "experiments", "waves"]
    for more in (["--epochs", "2", "--workers", "1"], ["tables"]):
        done = subprocess.run([*command, *more], cwd=tmp_path, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
    assert len((waves / "results.jsonl").read_text().splitlines()) == 1
    assert re.search(
        r"Waves: test accuracy.*\n.*\n.*noise of 0.1, paper.*\n.*\n\| GRU-dt \| 99.0 ± 0.5 \| [\d.]+ \(1\)", done.stdout
    )
