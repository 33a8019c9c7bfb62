"""Errors name the argument in an attribute, and in the form that the user typed it."""

import pickle

import pytest

from neuralcde.contracts import Argument, ArgumentError, ArgumentTypeError, listed


@pytest.mark.parametrize(
    ("argument", "python", "command_line"),
    [
        (Argument("max_epochs"), "max_epochs", "--max-epochs"),
        (Argument("max_epochs", 3), "max_epochs=3", "--max-epochs 3"),
        (Argument("device", "cpu"), 'device="cpu"', "--device cpu"),
        (Argument("resume", True), "resume=True", "--resume"),
        (Argument("resume", False), "resume=False", "--no-resume"),
    ],
)
def test_arguments_are_shown_as_typed(argument, python, command_line):
    assert (argument.in_python(), argument.on_the_command_line()) == (python, command_line)


def test_messages_fit_python_and_the_command_line():
    error = ArgumentError("found {x}; use ", Argument("per_row", True), " or ", Argument("device", "cpu"), ".")
    assert str(error) == 'found {x}; use per_row=True or device="cpu".'
    assert error.on_the_command_line() == "found {x}; use --per-row or --device cpu."
    assert error.argument == "per_row"


def test_the_argument_may_differ_from_those_in_the_message():
    assert ArgumentError("y is empty.", argument="y").argument == "y"
    assert ArgumentError("nothing is known.").argument is None
    assert ArgumentError(Argument("resume", True), " needs a seed.", argument="random_state").argument == "random_state"


def test_errors_are_subclasses_of_builtin_errors():
    assert issubclass(ArgumentError, ValueError)
    assert issubclass(ArgumentTypeError, TypeError)
    assert issubclass(ArgumentTypeError, ArgumentError)


def test_errors_survive_pickling():
    error = pickle.loads(pickle.dumps(ArgumentError(Argument("hidden", 3), " is odd.")))
    assert (str(error), error.argument, error.on_the_command_line()) == (
        "hidden=3 is odd.",
        "hidden",
        "--hidden 3 is odd.",
    )


def test_several_arguments_are_listed_with_commas():
    error = ArgumentError(*listed("seed", "max_epochs"), " differ.")
    assert (str(error), error.on_the_command_line()) == ("seed, max_epochs differ.", "--seed, --max-epochs differ.")
