"""Options of `neuralcde fit`: the estimators' parameters, from a file, from the command line, and back into a file."""

from __future__ import annotations

import dataclasses
import inspect
import json
import math
import tomllib
import types
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from cyclopts import Parameter

from ..estimators import NeuralCDEClassifier
from ..estimators.parts import KINDS
from ..estimators.path_estimator import PathEstimator
from ..solve import solvers
from ..system import write_atomically
from ..train import TrainingSettings
from .errors import WrongUseError

# Where the estimators also take objects, the command line takes names.
TYPES: dict[str, Any] = {"class_weight": Literal["balanced"], "solver": Literal[tuple(solvers)]}
TYPES |= {name: Literal[tuple(registry)] for name, registry in KINDS.items()}
DEFAULTS = {"verbose": 1}  # where they are not the estimators'
NOT_GIVEN: Any = object()
NONE = "none"  # None in a file, which TOML does not know


def _described(documented: type) -> dict[str, str]:
    """What the docstring of a class says of each parameter."""
    found: dict[str, str] = {}
    names: list[str] = []
    for line in inspect.cleandoc(documented.__doc__ or "").splitlines():
        if line.startswith("    "):
            for name in names:
                found[name] = f"{found.get(name, '')} {line.strip()}".strip()
        else:
            names = [name.strip() for name in line.split(" : ")[0].split(",")]
    return found


def _options() -> type:
    """A dataclass of the classifier's parameters, each `NOT_GIVEN` until it is given: None says something."""
    hints = get_type_hints(NeuralCDEClassifier.__init__)
    described: dict[str, str] = {}
    for documented in (TrainingSettings, PathEstimator, NeuralCDEClassifier):
        described |= {name: text for name, text in _described(documented).items() if not text.startswith("As in")}
    fields = []
    for name, parameter in inspect.signature(NeuralCDEClassifier.__init__).parameters.items():
        if name not in ("self", "random_state", "task"):  # which are --seed and the command's own --task
            kind = TYPES.get(name, hints[name])
            text = f"{described.get(name, '')} Default: {DEFAULTS.get(name, parameter.default)}."
            help_ = Parameter(help=text, show_default=False)
            fields.append((name, Annotated[kind | None, help_], dataclasses.field(default=NOT_GIVEN)))
    made = dataclasses.make_dataclass("EstimatorOptions", fields, frozen=True)
    made.__module__ = __name__  # cyclopts takes a class of the module `types` for a plain value
    return made


EstimatorOptions: Any = _options()
MAY_BE_NONE = ("gradient_clip", "patience", "class_weight")


def given(options: Any) -> dict[str, Any]:
    """What was given on the command line."""
    found = {} if options is None else {k: v for k, v in vars(options).items() if v is not NOT_GIVEN}
    for name in (name for name, value in found.items() if value is None and name not in MAY_BE_NONE):
        raise WrongUseError(f"--{name.replace('_', '-')} cannot be none; leave it out for its default.")
    return found


def read_config(file: Path) -> dict[str, Any]:
    """A TOML file of options."""
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
    """Refuse an option of a file that is unknown, or one of the command's own whose value is of another type.

    Parameters
    ----------
    found
        What the file says.
    own
        Types of the command's own options.
    file
        For the message.
    """
    known = own.keys() | {field.name for field in dataclasses.fields(EstimatorOptions)}
    for name, value in found.items():
        if name == "random_state":
            raise WrongUseError(f"--config {file}: random_state is called seed here; write seed = {value}.")
        if name not in known:
            raise WrongUseError(f"--config {file} has the unknown option {name}.")
        if name in own and not _fits(value, own[name]):
            raise WrongUseError(f"--config {file}: {name} = {value!r} is not {_words(own[name])}.")


def check_parameters(parameters: dict[str, Any], seed: int) -> None:
    """Refuse parameters that are wrong whatever the table holds.

    Raises
    ------
    ValueError, TypeError
        With the name of the parameter.
    """
    if not 0 <= seed < 2**32:
        raise ValueError(f"seed must lie in [0, 2**32), got {seed}.")
    NeuralCDEClassifier(**parameters | {"random_state": seed}).check_parameters()


def write_config(file: Path, config: dict[str, Any]) -> None:
    """The options as TOML, those of None left out but where it says something; JSON's strings, numbers, truths and lists are TOML's."""
    told = {name: NONE if value is None and name in MAY_BE_NONE else value for name, value in config.items()}
    lines = [f"{name} = {_toml(value)}" for name, value in told.items() if value is not None]
    write_atomically(file, ("\n".join(lines) + "\n").encode())


def _toml(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # inf, -inf, nan: where TOML and JSON differ
    return json.dumps(value, ensure_ascii=False)


def _fits(value: Any, kind: Any) -> bool:
    """Whether a value of a TOML file can be of a type; types that TOML does not have fit nothing but themselves."""
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
    return kind is Any or type(value) is kind  # True is no number


def _words(kind: Any) -> str:
    """A type in words."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _words(inner[0])
    if origin in (Union, types.UnionType):
        return " or ".join(_words(one) for one in inner if one is not types.NoneType)
    if origin is Literal:
        return " or ".join(json.dumps(one) for one in inner)
    names = {float: "a number", int: "a whole number", bool: "true or false", Path: "the name of a file"}
    return "a list of names" if origin is list else names.get(kind, "text")
