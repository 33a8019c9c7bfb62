"""Options of `neuralcde fit`: the parameters of the estimators, on the command line and in TOML files."""

from __future__ import annotations

import dataclasses
import json
import math
import tomllib
import types
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from cyclopts import Parameter

from ..contracts import Choice, Either, Nothing, Number, Option, Whole
from ..estimators import NeuralCDEClassifier
from ..system import write_atomically
from ..tasks import Task
from ..train.settings import OPTIONS as TRAINING
from .errors import WrongUseError

DEFAULTS = {"verbose": 1}  # defaults that differ from those of the estimators
OPTIONS = {
    name: replace(option, default=DEFAULTS.get(name, option.default))
    for name, option in NeuralCDEClassifier.options.items()
    if name not in ("random_state", "task")  # the command has --seed and its own --task instead
}
MAY_BE_NONE = [name for name, option in OPTIONS.items() if option.kind.accepts(None)]
NOT_GIVEN: Any = object()
NONE = "none"  # stands for None in a file, because TOML has no null


def help_of(option: Option) -> str:
    """Help text of an option. cyclopts adds the choices itself."""
    kinds = option.kind.kinds if isinstance(option.kind, Either) else (option.kind,)
    unlisted = [kind for kind in kinds if isinstance(kind, Whole | Number | Nothing)]
    expected = f" Expects {Either(*unlisted).words}." if unlisted else ""
    return f"{option.help}{expected} Default: {option.default}."


class _AnyValue:
    """Tells pydantic to accept `NOT_GIVEN`: if anything in the process has imported it, cyclopts checks with it."""

    def __get_pydantic_core_schema__(self, *_: Any) -> dict[str, Any]:
        return {"type": "any"}


def _options() -> type:
    """Make a dataclass of the classifier's parameters. The default is `NOT_GIVEN`, because None is a valid value."""
    fields = []
    for name, option in OPTIONS.items():
        parameter = Parameter(help=help_of(option), show_default=False)
        kind: Any = option.kind.annotation | None
        fields.append((name, Annotated[kind, parameter, _AnyValue()], dataclasses.field(default=NOT_GIVEN)))
    made = dataclasses.make_dataclass("EstimatorOptions", fields, frozen=True)
    made.__module__ = __name__  # cyclopts would take a class of the module `types` for a plain value
    return made


EstimatorOptions: Any = _options()


def given(options: Any) -> dict[str, Any]:
    """The options that were given on the command line."""
    found = {} if options is None else {k: v for k, v in vars(options).items() if v is not NOT_GIVEN}
    for name in (name for name, value in found.items() if value is None and name not in MAY_BE_NONE):
        raise WrongUseError(f"--{name.replace('_', '-')} cannot be none; leave it out for its default.")
    return found


def read_config(file: Path) -> dict[str, Any]:
    """Read a TOML file of options."""
    try:
        found = tomllib.loads(file.read_text())
        return {k: None if k in MAY_BE_NONE and str(v).lower() == NONE else v for k, v in found.items()}
    except FileNotFoundError:
        raise WrongUseError(f"--config {file} does not exist.") from None
    except OSError as reason:
        raise WrongUseError(f"--config {file} cannot be read: {reason.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as reason:
        raise WrongUseError(f"--config {file} is not TOML: {reason}") from None


def check_config(found: dict[str, Any], own: dict[str, Any], file: Path | None) -> None:
    """Refuse unknown options in a config file, and options of the command with a value of the wrong type.

    Parameters
    ----------
    found
        Options and values in the file.
    own
        Types of the options that belong to the command rather than to the estimators.
    file
        Path of the file, for error messages.
    """
    known = own.keys() | OPTIONS.keys()
    for name, value in found.items():
        if name == "random_state":
            raise WrongUseError(f"--config {file}: random_state is called seed here; write seed = {value}.")
        if name not in known:
            raise WrongUseError(f"--config {file} has the unknown option {name}.")
        if name in own and not _fits(value, own[name]):
            raise WrongUseError(f"--config {file}: {name} = {value!r} is not {_words(own[name])}.")


def check_parameters(parameters: dict[str, Any], seed: int, task: str | None) -> None:
    """Check the parameters, the seed and the task, as far as that is possible without the table.

    Raises
    ------
    ArgumentError
        If one of them is invalid; the error holds its name.
    """
    TRAINING["seed"].check("seed", seed)
    if task is not None:
        Option(Choice("classification", *Task.registry), None, "").check("task", task)
    NeuralCDEClassifier(**parameters | {"random_state": seed}).check_parameters()


def write_config(file: Path, config: dict[str, Any]) -> None:
    """Write the options as TOML.

    None is left out unless it is a valid value of the option. Strings, numbers, booleans and lists are the same in JSON
    and TOML.
    """
    written = {name: NONE if value is None and name in MAY_BE_NONE else value for name, value in config.items()}
    lines = [f"{name} = {_toml(value)}" for name, value in written.items() if value is not None]
    write_atomically(file, ("\n".join(lines) + "\n").encode())


def _toml(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # inf, -inf and nan are written differently in TOML and JSON
    return json.dumps(value, ensure_ascii=False)


def _fits(value: Any, kind: Any) -> bool:
    """Whether a value from a TOML file is valid for an annotated type."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _fits(value, inner[0])
    if origin in (Union, types.UnionType):
        return any(_fits(value, one) for one in inner)
    if origin is Literal:
        return any(type(value) is type(one) and value == one for one in inner)
    if origin is list:
        return isinstance(value, list) and all(_fits(one, inner[0]) for one in value)
    if kind is float:
        return type(value) in (int, float)
    if kind is Path:
        return isinstance(value, str)
    return kind is Any or type(value) is kind  # not isinstance: True is an int


def _words(kind: Any) -> str:
    """An annotated type in words, for error messages."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _words(inner[0])
    if origin in (Union, types.UnionType):
        return " or ".join(_words(one) for one in inner if one is not types.NoneType)
    if origin is Literal:
        return " or ".join(json.dumps(one) for one in inner)
    names = {float: "a number", int: "an integer", bool: "true or false", Path: "the name of a file"}
    return "a list of names" if origin is list else names.get(kind, "text")
