"""The checker of annotations that the import hook of conftest.py applies to the package."""

import functools
import inspect
import os
from dataclasses import dataclass, is_dataclass
from types import CodeType
from typing import Any, Self

import jaxtyping
import numpy as np
from beartype import BeartypeConf, FrozenDict, beartype
from beartype._check.code import codemain

FOLDERS = ("series", "paths", "fields", "engine", "solve", "models", "tasks", "train")

# A check takes longer than many a function. Each test checks the first calls of every function, and then one call in
# 29, so that training and the stages of a step do not take twice the time. CHECK_ALL_CALLS=1 checks all.
FIRST, ONE_IN = 2, 29
all_calls = "CHECK_ALL_CALLS" in os.environ
current_test = 0

# beartype checks one item per list, drawn by random.getrandbits. Always take the first one, so that runs are repeatable
# and the state of Python's generator does not change.
codemain.getrandbits = lambda bits: 0

# Integers are accepted as floats, as in mypy, and numpy numbers as numbers, as in the package's own checks.
NUMBERS = FrozenDict({int: int | np.integer, float: float | int | np.integer | np.floating})
_checked = beartype(conf=BeartypeConf(hint_overrides=NUMBERS))
_jaxtyped = jaxtyping.jaxtyped


def install() -> None:
    """Check the annotations of the package; before it is imported."""
    jaxtyping.jaxtyped = lambda *, typechecker: functools.partial(sampled, typechecker=typechecker)
    jaxtyping.install_import_hook([f"neuralcde.{folder}" for folder in FOLDERS], "type_checks.checked")


def begin_test(*, check: bool) -> None:
    """Count the calls of every function from zero, and check them or not."""
    global current_test
    current_test += 1
    jaxtyping.config.update("jaxtyping_disable", not check)


@dataclass
class Count:
    """How often a function was called in a test."""

    test: int = 0
    calls: int = 0


_counts: dict[CodeType, Count] = {}


def checked(function):
    """Check a function's annotations, except `Self`, which beartype supports only if it decorates the class."""
    function.__annotations__ = {name: Any if hint is Self else hint for name, hint in function.__annotations__.items()}
    return _checked(function)


def sampled(function, *, typechecker):
    """The function, or the dataclass, with checks of some of its calls; see `FIRST`."""
    if inspect.isclass(function):
        if is_dataclass(function) and not hasattr(function.__init__, "has_checks"):
            function.__init__ = sampled(function.__init__, typechecker=typechecker)
        return function
    count = _counts.setdefault(function.__code__, Count())
    inner = "<locals>" in function.__qualname__  # defined anew in every call; to prepare its checks takes long
    with_checks = None

    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        nonlocal with_checks
        if count.test != current_test and not inner:
            count.test, count.calls = current_test, 0
        count.calls += 1
        if count.calls > FIRST and count.calls % ONE_IN and not all_calls:
            return function(*args, **kwargs)
        if with_checks is None:
            with_checks = _jaxtyped(function, typechecker=typechecker)
        return with_checks(*args, **kwargs)

    wrapper.has_checks = True
    return wrapper
