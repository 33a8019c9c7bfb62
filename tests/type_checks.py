"""The checker of annotations that the import hook of conftest.py applies to the package."""

from pathlib import Path
from typing import Any, Self

import numpy as np
from beartype import BeartypeConf, FrozenDict, beartype
from beartype._check.code import codemain

PACKAGE = Path(__file__).parents[1] / "src" / "neuralcde"
FOLDERS = ("series", "paths", "fields", "engine", "solve", "models", "tasks", "train")
INNER_LOOPS = (
    *("solve.step", "solve.terms", "solve.loop", "solve.adaptive", "solve.backsolve", "solve.run", "solve.events"),
    *("solve.asked_states", "solve.parameter_snapshot", "fields.mlp", "fields.low_rank", "fields.vector_field"),
    *("fields.cells", "fields.time_fields", "paths.control_path", "paths.pieces"),
)


def checked_modules(*, inner_loops: bool) -> list[str]:
    """Modules whose annotations are checked; with `inner_loops`, also those that run in every stage of a step."""
    found = [
        file.relative_to(PACKAGE).with_suffix("").as_posix().replace("/", ".").removesuffix(".__init__")
        for folder in FOLDERS
        for file in sorted((PACKAGE / folder).rglob("*.py"))
    ]
    return [f"neuralcde.{name}" for name in found if inner_loops or (name not in INNER_LOOPS and name not in FOLDERS)]


# beartype checks one item per list, drawn by random.getrandbits. Always take the first one, so that runs are repeatable
# and the state of Python's generator does not change.
codemain.getrandbits = lambda bits: 0

# Integers are accepted as floats, as in mypy, and numpy numbers as numbers, as in the package's own checks.
NUMBERS = FrozenDict({int: int | np.integer, float: float | int | np.integer | np.floating})
_checked = beartype(conf=BeartypeConf(hint_overrides=NUMBERS))


def checked(function):
    """Check a function's annotations, except `Self`, which beartype supports only if it decorates the class."""
    function.__annotations__ = {name: Any if hint is Self else hint for name, hint in function.__annotations__.items()}
    return _checked(function)
