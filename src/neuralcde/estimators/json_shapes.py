"""Schemas of JSON files as Python values, and a check that names the first place that differs."""

from __future__ import annotations

import reprlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..tasks import is_finite


@dataclass(frozen=True)
class Leaf:
    """A single value.

    Parameters
    ----------
    words
        What is expected, for error messages.
    fits
        Whether a value is as expected.
    """

    words: str
    fits: Callable[[Any], bool]


@dataclass(frozen=True)
class Each:
    """An object with any keys, whose values all have the same shape."""

    shape: Shape


@dataclass(frozen=True)
class OrNull:
    """Null, or a value of this shape."""

    shape: Shape


Shape = Leaf | Each | OrNull | list[Any] | dict[str, Any]
"""A leaf; `[shape]`, a list of such values (`[]`: of any); `{name: shape}`, an object with at least these keys."""


def _is_text(value: Any) -> bool:
    """Whether it is text that can be encoded: JSON may hold lone surrogates, which are not characters."""
    try:
        return isinstance(value, str) and value.encode() is not None
    except UnicodeEncodeError:
        return False


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


TEXT = Leaf("text", _is_text)
TRUTH = Leaf("true or false", lambda value: isinstance(value, bool))
WHOLE = Leaf("an integer of at least 0", _is_whole)
COUNT = Leaf("an integer of at least 1", lambda value: _is_whole(value) and value > 0)
FINITE = Leaf("a finite number", is_finite)
POSITIVE = Leaf("a number between 1e-170 and 1e155", lambda value: is_finite(value) and 1e-170 < value < 1e155)
MODERATE = Leaf("a number between -1e100 and 1e100", lambda value: is_finite(value) and abs(value) < 1e100)
NOT_NEGATIVE = Leaf("a number from 0 to 1e100", lambda value: is_finite(value) and 0 <= value < 1e100)
SHARE = Leaf("a number from 0 to 1", lambda value: is_finite(value) and 0 <= value <= 1)
DIGEST = Leaf("the SHA-256 of a file", lambda value: isinstance(value, str) and len(value) == 64)


def one_of(*choices: str | float | None) -> Leaf:
    """One of these values, with the same type."""
    words = " or ".join("null" if choice is None else repr(choice) for choice in choices)
    return Leaf(words, lambda value: any(type(value) is type(choice) and value == choice for choice in choices))


def check_shape(value: Any, shape: Shape, where: str = "") -> None:
    """Refuse a value of another shape.

    Parameters
    ----------
    value
        What a JSON file holds.
    shape
        The expected shape.
    where
        Path to the value from the top of the file, for error messages.

    Raises
    ------
    ValueError
        If the shape differs. The message names the place, the value and the expected shape.
    """

    def refuse(words: str) -> None:
        raise ValueError(f"{where or 'its content'} is {reprlib.repr(value)}, expected {words}.")

    if isinstance(shape, OrNull):
        if value is not None:
            check_shape(value, shape.shape, where)
    elif isinstance(shape, Leaf):
        if not shape.fits(value):
            refuse(shape.words)
    elif isinstance(shape, list):
        if not isinstance(value, list):
            refuse("a list")
        for position, item in enumerate(value if shape else ()):
            check_shape(item, shape[0], f"{where}[{position}]")
    else:
        if not isinstance(value, dict):
            refuse("an object")
        named = dict.fromkeys(value, shape.shape) if isinstance(shape, Each) else shape
        missing = [name for name in named if name not in value]
        if missing:
            raise ValueError(f"{where or 'its content'} has no {missing[0]!r}.")
        for name, part in named.items():
            check_shape(name, TEXT, f"a name in {where or 'it'}")
            check_shape(value[name], part, f"{where}.{name}" if where else name)
