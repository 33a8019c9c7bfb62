"""Options: what each may be, its default and what it does, declared once and used by checks, docstrings and commands."""

from __future__ import annotations

import math
import textwrap
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np

from .errors import ArgumentError
from .parts import Recipe, Registry

Class = TypeVar("Class", bound=type)


class Kind(ABC):
    """What the values of an option have in common."""

    @abstractmethod
    def accepts(self, value: Any) -> bool:
        """Whether a value is one of them."""

    @property
    @abstractmethod
    def words(self) -> str:
        """The kind in words, as in "must be ..."."""

    @property
    @abstractmethod
    def annotation(self) -> Any:
        """The type that a command line reads."""


@dataclass(frozen=True)
class Whole(Kind):
    """An integer of at least `low`, Python's or numpy's."""

    low: int = 1
    annotation = int

    def accepts(self, value: Any) -> bool:
        """Whether a value is one of them."""
        return isinstance(value, int | np.integer) and not isinstance(value, bool) and int(value) >= self.low

    @property
    def words(self) -> str:
        """In words."""
        return f"an integer of at least {self.low}"


@dataclass(frozen=True)
class Number(Kind):
    """A finite number from `low` to `high`; the ends belong to it unless `open_low` or `open_high`."""

    low: float = -math.inf
    high: float = math.inf
    open_low: bool = False
    open_high: bool = False
    annotation = float

    def accepts(self, value: Any) -> bool:
        """Whether a value is one of them."""
        if not isinstance(value, int | float | np.integer | np.floating) or isinstance(value, bool):
            return False
        above = value > self.low if self.open_low else value >= self.low
        below = value < self.high if self.open_high else value <= self.high
        return bool(math.isfinite(value) and above and below)

    @property
    def words(self) -> str:
        """In words."""
        if math.isinf(self.low) and math.isinf(self.high):
            return "a finite number"
        left = "(" if self.open_low or math.isinf(self.low) else "["
        right = ")" if self.open_high or math.isinf(self.high) else "]"
        return f"a number in {left}{self.low:g}, {self.high:g}{right}"


@dataclass(frozen=True)
class Flag(Kind):
    """True or False."""

    annotation = bool
    words = "True or False"

    def accepts(self, value: Any) -> bool:
        """Whether a value is one of them."""
        return isinstance(value, bool | np.bool_)


@dataclass(frozen=True, init=False)
class Choice(Kind):
    """One of some strings."""

    values: tuple[str, ...]

    def __init__(self, *values: str):
        object.__setattr__(self, "values", values)

    def accepts(self, value: Any) -> bool:
        """Whether a value is one of them."""
        return isinstance(value, str) and value in self.values

    @property
    def words(self) -> str:
        """In words."""
        return _one_of([f'"{value}"' for value in self.values])

    @property
    def annotation(self) -> Any:
        """A literal."""
        return Literal[self.values]


@dataclass(frozen=True)
class Nothing(Kind):
    """None."""

    annotation = None
    words = "None"

    def accepts(self, value: Any) -> bool:
        """Whether a value is one of them."""
        return value is None


@dataclass(frozen=True)
class PartOf(Kind):
    """A member of a registry: its name, its class, an object of it, or a recipe."""

    registry: Registry[Any]
    annotation = str

    def accepts(self, value: Any) -> bool:
        """Whether a value is one of them."""
        if isinstance(value, str):
            return value in self.registry
        if isinstance(value, Recipe):
            value = value.member
        return isinstance(value, self.registry.base) or (
            isinstance(value, type) and issubclass(value, self.registry.base)
        )

    @property
    def words(self) -> str:
        """In words."""
        return (
            f"{_one_of([repr(name) for name in self.registry])}, or {_article(self.registry.base.__name__)} of your own"
        )


@dataclass(frozen=True, init=False)
class Either(Kind):
    """Any of several kinds."""

    kinds: tuple[Kind, ...]

    def __init__(self, *kinds: Kind):
        object.__setattr__(self, "kinds", kinds)

    def accepts(self, value: Any) -> bool:
        """Whether a value is one of them."""
        return any(kind.accepts(value) for kind in self.kinds)

    @property
    def words(self) -> str:
        """In words."""
        return _one_of([kind.words for kind in self.kinds])

    @property
    def annotation(self) -> Any:
        """The union of the types."""
        found = self.kinds[0].annotation
        for kind in self.kinds[1:]:
            found = found | kind.annotation
        return found


@dataclass(frozen=True)
class Option:
    """One option: what it may be, its default, and what it does in a sentence or two."""

    kind: Kind
    default: Any
    help: str

    def check(self, name: str, value: Any) -> None:
        """Refuse a value that is not of the kind."""
        if not self.kind.accepts(value):
            raise ArgumentError(f"{{}} must be {self.kind.words}, got {value!r}.", **{name: ...})  # type: ignore[arg-type]


def check_options(options: Mapping[str, Option], values: Mapping[str, Any]) -> None:
    """Refuse the first value that is not of its option's kind; values without a declaration are left alone."""
    for name, value in values.items():
        if name in options:
            options[name].check(name, value)


def check_sizes(**sizes: int) -> None:
    """Sizes are positive integers, Python's or numpy's."""
    for name, value in sizes.items():
        Option(Whole(1), 1, "").check(name, value)


def documented(options: Mapping[str, Option]) -> Any:
    """Decorate a class: the line `{options}` of its docstring becomes a numpydoc entry per option."""

    def decorate(cls: Class) -> Class:
        entries = []
        for name, option in options.items():
            text = textwrap.fill(f"{option.help}", 110)
            entries.append(f"{name} : {option.kind.words}, default {option.default!r}\n{textwrap.indent(text, '    ')}")
        listed = textwrap.indent("\n".join(entries), "    ")
        cls.__doc__ = (cls.__doc__ or "").replace("    {options}", listed)
        return cls

    return decorate


def _one_of(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def _article(name: str) -> str:
    return f"{'an' if name[0] in 'AEIOU' else 'a'} {name}"
