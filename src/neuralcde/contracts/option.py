"""Options: what each may be, its default and what it does, declared once and used by checks, docstrings and commands."""

from __future__ import annotations

import math
import reprlib
import textwrap
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import NoneType
from typing import Any, Literal, Never, TypeVar, Union

import numpy as np

from .errors import Argument, ArgumentError
from .parts import Recipe, Registry

Class = TypeVar("Class", bound=type)


class Kind(ABC):
    """What the values of an option have in common."""

    @abstractmethod
    def accepts(self, value: Any) -> bool:
        """Whether a value is one of them."""

    @property
    def words(self) -> str:
        """The kind in words, as in "must be ..."."""
        return _one_of(self.alternatives)

    @property
    @abstractmethod
    def alternatives(self) -> list[str]:
        """What a value may be, in words, one by one."""

    @property
    @abstractmethod
    def annotation(self) -> Any:
        """The type that a command line reads; `Never` where it cannot give such a value."""


@dataclass(frozen=True)
class Whole(Kind):
    """An integer from `low` to `high`, Python's or numpy's; with `booleans` True and False count as 1 and 0."""

    low: int = 1
    high: int | None = None
    booleans: bool = False
    annotation = int

    def accepts(self, value: Any) -> bool:
        """Whether a value is one of them."""
        if isinstance(value, bool | np.bool_):
            return self.booleans
        if not isinstance(value, int | np.integer):
            return False
        return int(value) >= self.low and (self.high is None or int(value) <= self.high)

    @property
    def alternatives(self) -> list[str]:
        """In words."""
        if self.high is None:
            return [f"an integer of at least {self.low}"]
        return [f"an integer from {self.low} to {self.high}"]


@dataclass(frozen=True)
class Number(Kind):
    """A number from `low` to `high`; the ends belong to it unless `open_low` or `open_high`, infinity if `infinite`."""

    low: float = -math.inf
    high: float = math.inf
    open_low: bool = False
    open_high: bool = False
    infinite: bool = False
    annotation = float

    def accepts(self, value: Any) -> bool:
        """Whether a value is one of them."""
        if not isinstance(value, int | float | np.integer | np.floating) or isinstance(value, bool):
            return False
        try:
            number = float(value)
        except OverflowError:  # an integer beyond all floating-point numbers
            return False
        above = number > self.low if self.open_low else number >= self.low
        below = number < self.high if self.open_high else number <= self.high
        return above and below and (self.infinite or math.isfinite(number))

    @property
    def alternatives(self) -> list[str]:
        """In words."""
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
        """In words."""
        return ["True", "False"]

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
    def alternatives(self) -> list[str]:
        """In words."""
        return [f'"{value}"' for value in self.values]

    @property
    def annotation(self) -> Any:
        """A literal."""
        return Literal[self.values]


@dataclass(frozen=True)
class Nothing(Kind):
    """None, and what it stands for."""

    meaning: str = ""
    annotation = NoneType

    def accepts(self, value: Any) -> bool:
        """Whether a value is one of them."""
        return value is None

    @property
    def alternatives(self) -> list[str]:
        """In words."""
        return [f"None for {self.meaning}" if self.meaning else "None"]


@dataclass(frozen=True)
class Instance(Kind):
    """An object of a class, or of one of several, which `name` describes."""

    classes: type | tuple[type, ...]
    name: str
    read_as: Any = Never

    def accepts(self, value: Any) -> bool:
        """Whether a value is one of them."""
        return isinstance(value, self.classes)

    @property
    def alternatives(self) -> list[str]:
        """In words."""
        return [self.name]

    @property
    def annotation(self) -> Any:
        """What a command line reads in its place."""
        return self.read_as


@dataclass(frozen=True)
class PartOf(Kind):
    """A member of a registry: its name, its class, an object of it, or a recipe."""

    registry: Registry[Any]

    def accepts(self, value: Any) -> bool:
        """Whether a value is one of them."""
        if isinstance(value, str):
            return value in self.registry
        if isinstance(value, Recipe):
            value = value.member
        base = self.registry.base
        return isinstance(value, base) or (isinstance(value, type) and issubclass(value, base) and value is not base)

    @property
    def words(self) -> str:
        """In words."""
        names, own = self.alternatives[:-1], self.alternatives[-1]
        return f"{_one_of(names)}, or {own}"

    @property
    def alternatives(self) -> list[str]:
        """In words."""
        return [*(repr(name) for name in self.registry), f"{_article(self.registry.base.__name__)} of your own"]

    @property
    def annotation(self) -> Any:
        """The names that are known now."""
        return Literal[tuple(self.registry)]


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
    def alternatives(self) -> list[str]:
        """In words."""
        return [words for kind in self.kinds for words in kind.alternatives]

    @property
    def annotation(self) -> Any:
        """The union of the types that a command line reads."""
        known = tuple(kind.annotation for kind in self.kinds if kind.annotation is not Never)
        return Union[known] if known else Never  # noqa: UP007 (the members are known at run time alone)


@dataclass(frozen=True)
class Option:
    """One option: what it may be, its default, and what it does in a sentence or two."""

    kind: Kind
    default: Any
    help: str

    def check(self, name: str, value: Any) -> None:
        """Refuse a value that is not of the kind."""
        if not self.kind.accepts(value):
            raise ArgumentError(Argument(name), f" must be {self.kind.words}, got {reprlib.repr(value)}.")

    def entry(self, name: str) -> str:
        """The option in a section Parameters of numpydoc."""
        described = textwrap.indent(textwrap.fill(self.help, 112), "    ")
        return f"{name} : {self.kind.words}, default {self.default!r}\n{described}"


def check_options(options: Mapping[str, Option], values: Mapping[str, Any]) -> None:
    """Refuse the first value that is not of its option's kind; values without a declaration are left alone."""
    for name, value in values.items():
        if name in options:
            options[name].check(name, value)


def check_sizes(**sizes: int) -> None:
    """Sizes are positive integers, Python's or numpy's."""
    for name, value in sizes.items():
        Option(Whole(1), 1, "").check(name, value)


def documented(options: Mapping[str, Option]) -> Callable[[Class], Class]:
    """Decorate a class: the line `{options}` of its docstring becomes a numpydoc entry per option."""

    def decorate(cls: Class) -> Class:
        entries = "\n".join(option.entry(name) for name, option in options.items())
        cls.__doc__ = (cls.__doc__ or "").replace("    {options}", textwrap.indent(entries, "    "))
        return cls

    return decorate


def _one_of(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def _article(name: str) -> str:
    return f"{'an' if name[0] in 'AEIOU' else 'a'} {name}"
