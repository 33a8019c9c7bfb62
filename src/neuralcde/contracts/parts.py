"""Registries of replaceable parts: path schemes, fields, models.

Each kind of part has a base class with a registry. A subclass registers itself by giving a name:

    class Smoothing(PathScheme, name="smoothing"):

Users pass a registered name, a class, or an object. A part is saved as its name and its options. Loading looks the name
up among the classes that have already been imported; it never imports anything.
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
    """The members of one kind, by name.

    Parameters
    ----------
    kind
        What error messages call a member, e.g. "path scheme".
    base
        The base class: a member is a subclass or an instance of it.
    """

    def __init__(self, kind: str, base: type):
        self.kind, self.base = kind, base
        self._members: dict[str, Member] = {}

    def add(self, name: str, member: Member) -> None:
        """Register a member; a name that another member already has is refused."""
        known = self._members.get(name)
        same = _home(known) == _home(member) if isinstance(member, type) else known == member
        if known is not None and not same:
            raise ValueError(f"the {self.kind} {name!r} is already {_home(known)}; choose another name.")
        self._members[name] = member  # the same class again: its module was reloaded

    def remove(self, name: str) -> None:
        """Unregister a member."""
        del self._members[name]

    def name_of(self, member: Any) -> str:
        """The name under which a member is registered."""
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
                f"there is no {self.kind} {name!r}; there are {list(self._members)}. To use one of your own, first "
                "import the module that defines it."
            )
        return self._members[name]

    def __contains__(self, name: object) -> bool:
        return name in self._members

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)


def _home(member: Any) -> str:
    """Module and qualified name of a class, or of an object's class."""
    kind = member if isinstance(member, type) else type(member)
    return f"{kind.__module__}.{kind.__qualname__}"


class Named:
    """Base class of registered parts.

    `class Mine(Kind, name="mine")` registers `Mine`. A subclass without a name is not registered.
    """

    registry: ClassVar[Registry[Any]]

    def __init_subclass__(cls, *, name: str | None = None, **options: Any):
        super().__init_subclass__(**options)
        if name is not None:
            cls.registry.add(name, cls)

    @classmethod
    def with_options(cls, **options: Any) -> Recipe:
        """A recipe: this class with some of its options, built later, when its sizes are known."""
        return Recipe(cls, **options)


class Part(Named):
    """A registered part that is a dataclass; its fields are its options.

    `get_params` and `set_params` follow scikit-learn, so `clone` and grid searches (`path__penalty`) work.
    """

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The options by name."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}  # type: ignore[arg-type]

    def set_params(self, **options: Any) -> Self:
        """Change options. If one value is invalid, none is changed."""
        changed = type(self)(**self.get_params() | options)
        for name in options:
            setattr(self, name, getattr(changed, name))
        return self

    def to_config(self) -> dict[str, Any]:
        """The registered name and the options, as values that JSON can store."""
        name = self.registry.name_of(type(self))
        return {"name": name} | {option: plain(value) for option, value in self.get_params().items()}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """Rebuild the part from what `to_config` returned; its class must have been imported before."""
        options = dict(config)
        member = cls.registry[options.pop("name", "")]
        found: Self = member(**options)
        return found

    @classmethod
    def of(cls, given: Any) -> Self:
        """A part from a registered name or a class, with default options; a part is returned unchanged."""
        if isinstance(given, cls):
            return given
        if isinstance(given, str):
            given = cls.registry[given]
        made: Self = given()
        return made


class Recipe:
    """A class and some of its options; the part is built later, when its sizes are known.

    `nc.LowRankField.with_options(rank=4)` makes one.

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
        """The options by name."""
        return dict(self.options)

    def set_params(self, **options: Any) -> Recipe:
        """Change options."""
        self.options = Recipe(self.member, **self.options | options).options
        return self

    def with_default(self, **options: Any) -> Recipe:
        """The recipe with more options, except those that it sets already or that the constructor does not take."""
        known = _options_of(self.member)
        return Recipe(self.member, **{name: value for name, value in options.items() if name in known} | self.options)

    def build(self, *sizes: Any, **defaults: Any) -> Any:
        """Build the part.

        Parameters
        ----------
        sizes
            Positional arguments of the constructor.
        defaults
            Values for options that the recipe does not set. Names that the constructor does not take are ignored.
        """
        known = _options_of(self.member)
        taken = {name: value for name, value in defaults.items() if name in known}
        return self.member(*sizes, **taken | self.options)

    def to_config(self, registry: Registry[Any]) -> dict[str, Any]:
        """The registered name and the options, as values that JSON can store."""
        return {"name": registry.name_of(self.member), **{name: plain(value) for name, value in self.options.items()}}

    @classmethod
    def of(cls, given: Any, registry: Registry[Any]) -> Recipe:
        """A recipe from a registered name, a class, or a config; a recipe is returned unchanged."""
        if isinstance(given, Recipe):
            return given
        options = dict(given) if isinstance(given, Mapping) else {}
        name = options.pop("name", None) if isinstance(given, Mapping) else given
        return Recipe(name if isinstance(name, type) else registry[name], **options)


def _options_of(member: type) -> list[str]:
    """Names of the constructor's keyword arguments; with `**options`, those of the base classes' constructors too."""
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
    """Convert to values that JSON can store: numbers, strings, booleans, None, and lists and dictionaries of these."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: plain(part) for key, part in value.items()}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(
        f"{value!r} cannot be saved: it is not a number, a string, a boolean, None, or a list or dictionary of these."
    )
