"""Each option is declared once; signatures, docstrings and the command line agree with the declaration."""

import dataclasses
import inspect
import json
import re

import pytest

import neuralcde as nc
from fresh_python import fresh_python
from neuralcde.cli.options import DEFAULTS, OPTIONS, EstimatorOptions, help_of
from neuralcde.estimators.parameters import CHOSEN_BY_FIT
from neuralcde.estimators.path_estimator import PathEstimator
from neuralcde.train import TrainingSettings
from neuralcde.train.settings import OPTIONS as TRAINING

DECLARED = {
    TrainingSettings: TRAINING,
    PathEstimator: PathEstimator.options,
    nc.NeuralCDEClassifier: nc.NeuralCDEClassifier.options,
    nc.NeuralCDERegressor: nc.NeuralCDERegressor.options,
}
pytestmark = pytest.mark.xdist_group("options")  # these tests share a process
classes = pytest.mark.parametrize("cls", DECLARED, ids=lambda cls: cls.__name__)


@classes
def test_the_signature_has_the_declared_names_and_defaults(cls):
    parameters = inspect.signature(cls).parameters.values()
    assert {p.name: p.default for p in parameters} == {name: option.default for name, option in DECLARED[cls].items()}


@classes
def test_declared_defaults_are_valid_for_their_kind(cls):
    for name, option in DECLARED[cls].items():
        option.check(name, option.default)
        assert option.help.endswith("."), name


@pytest.fixture(scope="module")
def fresh():
    """The kind of every option in words, and the help of `neuralcde fit`, without parts that other tests registered."""
    done = fresh_python(
        """
        import json, neuralcde as nc
        from neuralcde.cli import main
        options = nc.NeuralCDEClassifier.options
        print(json.dumps({name: option.kind.words for name, option in options.items()}))
        main(["fit", "--help"])
        """,
        COLUMNS="1000",
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n", 1)


@pytest.fixture(scope="module")
def words(fresh):
    found = json.loads(fresh[0])
    return lambda cls, name: TRAINING[name].kind.words if cls is TrainingSettings else found[name]


@classes
def test_the_docstring_has_every_option_and_no_other(cls, words):
    section = inspect.getdoc(cls).split("----------\n", 1)[1].split("\n\n")[0]
    entries = dict(re.findall(r"^(\w+) : (.*(?:\n    .*)*)", section, re.MULTILINE))
    assert list(entries) == list(DECLARED[cls])
    for name, option in DECLARED[cls].items():
        first, *described = entries[name].splitlines()
        assert first == f"{words(cls, name)}, default {option.default!r}"
        assert " ".join(line.strip() for line in described) == f"{option.help} {option.in_python}".strip()


def test_training_options_keep_their_range_and_help():
    for name in PathEstimator.options.keys() & TRAINING.keys() - set(CHOSEN_BY_FIT):
        assert dataclasses.replace(PathEstimator.options[name], default=TRAINING[name].default) == TRAINING[name]


def test_the_command_has_every_option_except_those_it_renames():
    names = [field.name for field in dataclasses.fields(EstimatorOptions)]
    own = ("random_state", "task")
    assert names == list(OPTIONS) == [name for name in nc.NeuralCDEClassifier.options if name not in own]
    assert {name: OPTIONS[name].default for name in names} == {
        name: DEFAULTS.get(name, nc.NeuralCDEClassifier.options[name].default) for name in names
    }


def test_help_on_the_command_line_comes_from_the_declaration(fresh):
    said = fresh[1]
    letters = re.sub(r"\W", "", said)  # without the frame around the help, and whatever replaces quotes
    for name, option in OPTIONS.items():
        assert f"--{name.replace('_', '-')} " in said
        assert re.sub(r"\W", "", help_of(option)) in letters, name
