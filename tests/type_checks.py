"""The checker of annotations that the import hook of conftest.py applies to the package."""

from typing import Any, Self

import numpy as np
from beartype import BeartypeConf, FrozenDict, beartype
from beartype._check.code import codemain

# Of a list beartype looks at one item, drawn by random.getrandbits. Here it is the first one: the same in every run, and
# the state of Python's generator is left to the tests.
codemain.getrandbits = lambda bits: 0

# An integer may stand wherever a float may, as mypy has it; and numbers of numpy are numbers, as in the package's own checks.
NUMBERS = FrozenDict({int: int | np.integer, float: float | int | np.integer | np.floating})
_checked = beartype(conf=BeartypeConf(hint_overrides=NUMBERS))


def checked(function):
    """The function with its annotations checked, but for `Self`, which beartype knows only where it decorates the class."""
    function.__annotations__ = {name: Any if hint is Self else hint for name, hint in function.__annotations__.items()}
    return _checked(function)
