"""The replaceable parts of an estimator (model, field, path, task): checks, copies, and conversion to JSON."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

from ..contracts import Argument, ArgumentError, Part, Recipe, Registry
from ..fields import VectorField
from ..models import PathModel, Readout, RowEncoder
from ..paths import PathScheme
from ..solve import Solver, Tableau, solvers
from ..tasks import Task

Chosen = Any  # a name, a class, an object or a recipe; checked by the declared options
Value = TypeVar("Value")
KINDS: dict[str, Registry[Any]] = {
    "model": PathModel.registry,
    "field": VectorField.registry,
    "path": PathScheme.registry,
    "encoder": RowEncoder.registry,
    "readout": Readout.registry,
    "task": Task.registry,
}
# Far above useful sizes. They bound what a model folder from an untrusted source can ask for.
LARGEST = {"depth": 1000, "substeps": 1000}
LARGEST_OPTION = 100_000


def check_recipes(given: Mapping[str, Any]) -> None:
    """Refuse recipes whose integer options exceed the limits above."""
    for name in KINDS:
        for option, value in given[name].options.items() if isinstance(given[name], Recipe) else ():
            largest = LARGEST.get(option, LARGEST_OPTION)
            if isinstance(value, int) and value > largest:
                raise ArgumentError(Argument(name), f": {option} must be at most {largest}, got {value}.")


def copied(value: Value) -> Value:
    """A deep copy, so that later changes to the user's objects have no effect."""
    return copy.deepcopy(value)


def part_to_config(name: str, value: Any) -> Any:
    """Convert a part to JSON: its name, or its name and options; a tableau is converted to its coefficients."""
    if isinstance(value, Tableau):
        return value.to_config()
    if isinstance(value, Solver):
        solvers[value.name]  # one that is not registered raises an error that says how to find it again
        return value.name
    if name not in KINDS or value is None or isinstance(value, str):
        return value
    if isinstance(value, Part):
        return value.to_config()
    return Recipe.of(value, KINDS[name]).to_config(KINDS[name])


def part_from_config(name: str, config: Any) -> Any:
    """The inverse of `part_to_config`. Parts from outside the package must have been imported before."""
    if name == "solver" and isinstance(config, dict):
        return Tableau.from_config(config)
    if isinstance(config, str) and name in KINDS and (config != "auto" or config in KINDS[name]):
        KINDS[name][config]  # an unknown name raises an error that says how to register it
    if name not in KINDS or not isinstance(config, dict):
        return config
    if name == "path":
        return PathScheme.from_config(config)
    recipe = Recipe.of(config, KINDS[name])
    if name == "task" and recipe.options.keys() == {field.name for field in dataclasses.fields(recipe.member)}:
        return Task.from_config(config)
    return recipe
