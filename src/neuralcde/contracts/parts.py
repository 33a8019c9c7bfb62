"""Replaceable parts: members of a kind, known by name, with options that can be searched and saved.

A kind is a base class with a registry. A member is a subclass that names itself:

    class Smoothing(PathScheme, name="smoothing"):

Users pass a name, a class, or an object. A saved part is its name and its options; loading looks the name up among the
members that were imported, and imports nothing.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np

Member = TypeVar("Member")


class Registry(Generic[Member]):
    """The members of one kind by their names.

    Parameters
    ----------
    kind
        What a member is called in messages: "path scheme".
    base
        The class that members are subclasses, or objects, of.
    """

    def __init__(self, kind: str, base: type):
        self.kind, self.base = kind, base
        self._members: dict[str, Member] = {}

    def add(self, name: str, member: Member) -> None:
        """Make a member known; a name is given once."""
        known = self._members.get(name)
        if known is not None and _home(known) != _home(member):
            raise ValueError(f"the {self.kind} {name!r} is already {_home(known)}; choose another name.")
        self._members[name] = member  # the same again: its module was reloaded

    def remove(self, name: str) -> None:
        """Forget a member."""
        del self._members[name]

    def name_of(self, member: Any) -> str:
        """The name of a member."""
        for name, known in self._members.items():
            if known is member:
                return name
        raise ValueError(
            f"{getattr(member, '__name__', member)!r} is not registered as a {self.kind}; give its class a name: "
            f'class {getattr(member, "__name__", "Mine")}({self.base.__name__}, name="...").'
        )

    def __getitem__(self, name: str) -> Member:
        if not isinstance(name, str) or name not in self._members:
            raise ValueError(
                f"there is no {self.kind} {name!r}; there are {list(self._members)}. One of your own is known once the module "
                "that defines it was imported."
            )
        return self._members[name]

    def __contains__(self, name: object) -> bool:
        return name in self._members

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)


def _home(member: Any) -> str:
    kind = member if isinstance(member, type) else type(member)
    return f"{kind.__module__}.{kind.__qualname__}"


class Named:
    """A member of a kind; `class Mine(Kind, name="mine")` makes it known. Subclasses without a name are not members."""

    registry: ClassVar[Registry[Any]]

    def __init_subclass__(cls, *, name: str | None = None, **options: Any):
        super().__init_subclass__(**options)
        if name is not None:
            cls.registry.add(name, cls)

    @classmethod
    def with_options(cls, **options: Any) -> Recipe:
        """The class with some of its options, for whoever makes the object when its sizes are known."""
        return Recipe(cls, **options)


class Part(Named):
    """A part that is a dataclass: its fields are its options.

    `get_params` and `set_params` are scikit-learn's, so that `clone` and grid searches (`path__penalty`) work.
    """

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The options."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}  # type: ignore[arg-type]

    def set_params(self, **options: Any) -> Self:
        """Change options; refused as a whole where one is wrong."""
        changed = type(self)(**self.get_params() | options)
        for name in options:
            setattr(self, name, getattr(changed, name))
        return self

    def to_config(self) -> dict[str, Any]:
        """Name and options, as JSON holds them."""
        name = self.registry.name_of(type(self))
        return {"name": name} | {option: plain(value) for option, value in self.get_params().items()}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """The member that `to_config` described; it must have been imported."""
        options = dict(config)
        member = cls.registry[options.pop("name", "")]
        found: Self = member(**options)
        return found

    @classmethod
    def of(cls, given: Any) -> Self:
        """A member by its name or class, with default options; or as it is."""
        if isinstance(given, cls):
            return given
        if isinstance(given, str):
            given = cls.registry[given]
        made: Self = given()
        return made


class Recipe:
    """A class of a kind with some options, from which the part is made when its sizes are known.

    `nc.LowRankField.with_options(rank=4)` is one.

    Parameters
    ----------
    member
        The class.
    options
        Keyword arguments of its constructor.
    """

    member: Any

    def __init__(self, member: type, **options: Any):
        known = _options_of(member)
        for name in options:
            if name not in known:
                raise TypeError(f"{member.__name__} has no option {name!r}; it has {known}.")
        self.member, self.options = member, options

    def __repr__(self) -> str:
        return f"{self.member.__name__}.with_options({', '.join(f'{k}={v!r}' for k, v in self.options.items())})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Recipe) and (self.member, self.options) == (other.member, other.options)

    __hash__ = None  # type: ignore[assignment]

    def __sklearn_clone__(self) -> Recipe:
        return Recipe(self.member, **copy.deepcopy(self.options))

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The options."""
        return dict(self.options)

    def set_params(self, **options: Any) -> Recipe:
        """Change options."""
        self.options = Recipe(self.member, **self.options | options).options
        return self

    def build(self, *sizes: Any, **defaults: Any) -> Any:
        """The part; of the defaults those that its constructor takes and the recipe does not have."""
        known = _options_of(self.member)
        taken = {name: value for name, value in defaults.items() if name in known}
        return self.member(*sizes, **taken | self.options)

    def to_config(self, registry: Registry[Any]) -> dict[str, Any]:
        """Name and options, as JSON holds them."""
        return {"name": registry.name_of(self.member), **{name: plain(value) for name, value in self.options.items()}}

    @classmethod
    def of(cls, given: Any, registry: Registry[Any]) -> Recipe:
        """A recipe by the name of a member, its class, or a config; or as it is."""
        if isinstance(given, Recipe):
            return given
        options = dict(given) if isinstance(given, Mapping) else {}
        name = options.pop("name", None) if isinstance(given, Mapping) else given
        return Recipe(name if isinstance(name, type) else registry[name], **options)


def _options_of(member: type) -> list[str]:
    """Names that the constructor takes by keyword; where it passes some on, also those of the classes above."""
    found: list[str] = []
    for cls in member.__mro__:
        if "__init__" not in vars(cls):
            continue
        parameters = inspect.signature(vars(cls)["__init__"]).parameters.values()
        found += [
            p.name for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD) and p.name != "self"
        ]
        if not any(p.kind is p.VAR_KEYWORD for p in parameters):
            break
    return list(dict.fromkeys(found))


def plain(value: Any) -> Any:
    """A value as JSON holds it: Python's own numbers, text, truths, None, and lists and dictionaries of them."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: plain(part) for key, part in value.items()}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"{value!r} cannot be saved: it is not a number, a text, None, or a list of these.")
