"""Declarations of options: kind, default and help text.

Each option is declared once. Validation, docstrings and the command line are derived from its declaration.
"""

from __future__ import annotations

import math
import reprlib
import textwrap
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import NoneType
from typing import Any, Literal, Never, TypeVar, Union, get_args, get_origin

import numpy as np

from .errors import Argument, ArgumentError
from .parts import Recipe, Registry

Class = TypeVar("Class", bound=type)


class Kind(ABC):
    """The kind of values that an option accepts."""

    @abstractmethod
    def accepts(self, value: Any) -> bool:
        """Whether a value is of this kind."""

    @property
    def words(self) -> str:
        """Description of the kind for messages, as in "must be ..."."""
        return _one_of(self.alternatives)

    @property
    @abstractmethod
    def alternatives(self) -> list[str]:
        """Descriptions of the accepted values, one per alternative."""

    @property
    @abstractmethod
    def annotation(self) -> Any:
        """The type that the command line parses; `Never` if such a value cannot be given there."""


@dataclass(frozen=True)
class Whole(Kind):
    """An integer from `low` to `high`, of Python or numpy; with `booleans` also True and False, as 1 and 0."""

    low: int = 1
    high: int | None = None
    booleans: bool = False
    annotation = int

    def accepts(self, value: Any) -> bool:
        """Whether a value is of this kind."""
        if isinstance(value, bool | np.bool_):
            return self.booleans
        if not isinstance(value, int | np.integer):
            return False
        return int(value) >= self.low and (self.high is None or int(value) <= self.high)

    @property
    def alternatives(self) -> list[str]:
        """Descriptions of the accepted values."""
        if self.high is None:
            return [f"an integer of at least {self.low}"]
        return [f"an integer from {self.low} to {self.high}"]


@dataclass(frozen=True)
class Number(Kind):
    """A number from `low` to `high`, both included unless `open_low` or `open_high`; infinity only if `infinite`."""

    low: float = -math.inf
    high: float = math.inf
    open_low: bool = False
    open_high: bool = False
    infinite: bool = False
    annotation = float

    def accepts(self, value: Any) -> bool:
        """Whether a value is of this kind."""
        if not isinstance(value, int | float | np.integer | np.floating) or isinstance(value, bool):
            return False
        try:
            number = float(value)
        except OverflowError:  # an integer beyond the range of floats
            return False
        above = number > self.low if self.open_low else number >= self.low
        below = number < self.high if self.open_high else number <= self.high
        return above and below and (self.infinite or math.isfinite(number))

    @property
    def alternatives(self) -> list[str]:
        """Descriptions of the accepted values."""
        if math.isinf(self.low) and math.isinf(self.high):
            return ["a number" if self.infinite else "a finite number"]
        left = "(" if self.open_low or (math.isinf(self.low) and not self.infinite) else "["
        right = ")" if self.open_high or (math.isinf(self.high) and not self.infinite) else "]"
        return [f"a number in {left}{self.low:g}, {self.high:g}{right}"]


@dataclass(frozen=True)
class Flag(Kind):
    """True or False."""

    annotation = bool

    @property
    def alternatives(self) -> list[str]:
        """Descriptions of the accepted values."""
        return ["True", "False"]

    def accepts(self, value: Any) -> bool:
        """Whether a value is of this kind."""
        return isinstance(value, bool | np.bool_)


@dataclass(frozen=True, init=False)
class Choice(Kind):
    """One of several strings."""

    values: tuple[str, ...]

    def __init__(self, *values: str):
        object.__setattr__(self, "values", values)

    def accepts(self, value: Any) -> bool:
        """Whether a value is of this kind."""
        return isinstance(value, str) and value in self.values

    @property
    def alternatives(self) -> list[str]:
        """Descriptions of the accepted values."""
        return [f'"{value}"' for value in self.values]

    @property
    def annotation(self) -> Any:
        """A `Literal` of the strings."""
        return Literal[self.values]


@dataclass(frozen=True)
class Nothing(Kind):
    """None, with its `meaning` for this option."""

    meaning: str = ""
    annotation = NoneType

    def accepts(self, value: Any) -> bool:
        """Whether a value is of this kind."""
        return value is None

    @property
    def alternatives(self) -> list[str]:
        """Descriptions of the accepted values."""
        return [f"None for {self.meaning}" if self.meaning else "None"]


@dataclass(frozen=True)
class Instance(Kind):
    """An instance of one of the classes, described by `name`; the command line parses `read_as` instead."""

    classes: type | tuple[type, ...]
    name: str
    read_as: Any = Never

    def accepts(self, value: Any) -> bool:
        """Whether a value is of this kind."""
        return isinstance(value, self.classes)

    @property
    def alternatives(self) -> list[str]:
        """Descriptions of the accepted values."""
        return [self.name]

    @property
    def annotation(self) -> Any:
        """The type that the command line parses in place of an instance."""
        return self.read_as


@dataclass(frozen=True)
class PartOf(Kind):
    """A member of a registry: its name, its class, an instance of it, or a recipe."""

    registry: Registry[Any]

    def accepts(self, value: Any) -> bool:
        """Whether a value is of this kind."""
        if isinstance(value, str):
            return value in self.registry
        if isinstance(value, Recipe):
            value = value.member
        base = self.registry.base
        return isinstance(value, base) or (isinstance(value, type) and issubclass(value, base) and value is not base)

    @property
    def words(self) -> str:
        """Descriptions of the accepted values."""
        names, own = self.alternatives[:-1], self.alternatives[-1]
        return f"{_one_of(names)}, or {own}"

    @property
    def alternatives(self) -> list[str]:
        """Descriptions of the accepted values."""
        return [*(repr(name) for name in self.registry), f"{_article(self.registry.base.__name__)} of your own"]

    @property
    def annotation(self) -> Any:
        """A `Literal` of the names that are registered at this time."""
        return Literal[tuple(self.registry)]


@dataclass(frozen=True, init=False)
class Either(Kind):
    """Any of several kinds."""

    kinds: tuple[Kind, ...]

    def __init__(self, *kinds: Kind):
        object.__setattr__(self, "kinds", kinds)

    def accepts(self, value: Any) -> bool:
        """Whether a value is of this kind."""
        return any(kind.accepts(value) for kind in self.kinds)

    @property
    def alternatives(self) -> list[str]:
        """Descriptions of the accepted values."""
        return [words for kind in self.kinds for words in kind.alternatives]

    @property
    def annotation(self) -> Any:
        """The union of the types that the command line parses; several sets of names are one."""
        known = [kind.annotation for kind in self.kinds if kind.annotation is not Never]
        names = tuple(name for kind in known if get_origin(kind) is Literal for name in get_args(kind))
        others = tuple(kind for kind in known if get_origin(kind) is not Literal)
        every = (Literal[names], *others) if names else others
        return Union[every] if every else Never  # noqa: UP007 (the members are known only at run time)


@dataclass(frozen=True)
class Option:
    """One option: the kind of its values, its default, and a help text of one or two sentences.

    `in_python` is added to the help in Python only, because the command line does not take such values.
    """

    kind: Kind
    default: Any
    help: str
    in_python: str = ""

    def check(self, name: str, value: Any) -> None:
        """Refuse a value that is not of the kind."""
        if not self.kind.accepts(value):
            raise ArgumentError(Argument(name), f" must be {self.kind.words}, got {reprlib.repr(value)}.")

    def entry(self, name: str) -> str:
        """The numpydoc entry of the option, for a Parameters section."""
        described = textwrap.indent(textwrap.fill(f"{self.help} {self.in_python}".strip(), 112), "    ")
        return f"{name} : {self.kind.words}, default {self.default!r}\n{described}"


def check_options(options: Mapping[str, Option], values: Mapping[str, Any]) -> None:
    """Refuse the first value that is not of its option's kind; values without a declared option are not checked."""
    for name, value in values.items():
        if name in options:
            options[name].check(name, value)


def check_sizes(**sizes: int) -> None:
    """Refuse sizes that are not positive integers, of Python or numpy."""
    for name, value in sizes.items():
        Option(Whole(1), 1, "").check(name, value)


def documented(options: Mapping[str, Option]) -> Callable[[Class], Class]:
    """Class decorator that replaces the line `{options}` of the docstring by one numpydoc entry per option."""

    def decorate(cls: Class) -> Class:
        entries = "\n".join(option.entry(name) for name, option in options.items())
        cls.__doc__ = (cls.__doc__ or "").replace("    {options}", textwrap.indent(entries, "    "))
        return cls

    return decorate


def _one_of(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def _article(name: str) -> str:
    return f"{'an' if name[0] in 'AEIOU' else 'a'} {name}"
