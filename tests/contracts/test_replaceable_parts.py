"""Replaceable parts: their names, their options, and how both are saved."""

import json
import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from sklearn.base import clone

import neuralcde as nc
from neuralcde.contracts import Named, Part, Recipe, Registry, plain


class Tool(Part):
    """A kind whose members are dataclasses."""

    registry: ClassVar[Registry]


Tool.registry = Registry("tool", Tool)


@dataclass
class Hammer(Tool, name="hammer"):
    weight: float = 1.0
    handle: str = "wood"

    def __post_init__(self):
        if self.weight <= 0:
            raise ValueError("weight must be positive")


@dataclass
class Unnamed(Hammer):
    pass


class Engine(Named):
    """A kind whose members are made when their sizes are known."""

    registry: ClassVar[Registry]


Engine.registry = Registry("engine", Engine)


class Motor(Engine, name="motor"):
    def __init__(self, size, *, power=1, colour="red"):
        self.size, self.power, self.colour = size, power, colour


class Turbo(Motor, name="turbo"):
    """Passes options on to its base class."""

    def __init__(self, size, *, boost=2.0, **options):
        super().__init__(size, **options)
        self.boost = boost


class Plain(Engine, name="plain"):
    """Passes no options on."""

    def __init__(self, size):
        self.size = size


class TestRegistry:
    def test_is_a_mapping_from_names_to_members(self):
        assert list(Engine.registry) == ["motor", "turbo", "plain"]
        assert isinstance(iter(Engine.registry), Iterator)
        assert len(Engine.registry) == 3
        assert "turbo" in Engine.registry
        assert "jet" not in Engine.registry
        assert Engine.registry["turbo"] is Turbo

    def test_a_subclass_without_a_name_is_not_registered(self):
        assert list(Tool.registry) == ["hammer"]

    @pytest.mark.parametrize("name", ["jet", "", None, 3, ["motor"], Motor])
    def test_errors_about_unknown_names_list_the_known_ones(self, name):
        with pytest.raises(
            ValueError, match=r"there is no engine .*; there are \['motor', 'turbo', 'plain'\].*import the module"
        ):
            Engine.registry[name]

    def test_the_name_of_a_member(self):
        assert Engine.registry.name_of(Motor) == "motor"
        with pytest.raises(ValueError, match=r"'Unnamed' is not registered as a tool; .*class Unnamed\(Tool, name="):
            Tool.registry.name_of(Unnamed)
        with pytest.raises(ValueError, match="3 is not registered as a tool"):
            Tool.registry.name_of(3)

    def test_a_name_cannot_be_registered_twice(self):
        with pytest.raises(
            ValueError, match=r"the engine 'motor' is already .*test_replaceable_parts\.Motor; choose another name"
        ):

            class Other(Engine, name="motor"):
                pass

        assert Engine.registry["motor"] is Motor

    def test_a_module_may_be_loaded_again(self):
        """A class of the same module and name replaces the old one."""
        registry = Registry("engine", Engine)
        again = type("Motor", (Engine,), {"__module__": Motor.__module__, "__qualname__": "Motor"})
        registry.add("motor", Motor)
        registry.add("motor", again)
        assert registry["motor"] is again
        assert len(registry) == 1

    def test_members_that_are_objects(self):
        registry = Registry("number", int)
        registry.add("one", 1)
        assert registry.name_of(registry["one"]) == "one"

    def test_a_member_can_be_removed(self):
        registry = Registry("engine", Engine)
        registry.add("motor", Motor)
        registry.remove("motor")
        assert "motor" not in registry
        with pytest.raises(KeyError):
            registry.remove("motor")


class TestPart:
    def test_options_are_the_fields(self):
        assert Hammer(2.0).get_params() == Hammer(2.0).get_params(deep=False) == {"weight": 2.0, "handle": "wood"}

    def test_set_params_changes_all_or_nothing(self):
        tool = Hammer()
        assert tool.set_params(weight=3.0) is tool
        assert tool == Hammer(3.0)
        with pytest.raises(ValueError, match="weight must be positive"):
            tool.set_params(handle="steel", weight=-1.0)
        with pytest.raises(TypeError, match="length"):
            tool.set_params(handle="steel", length=2)
        assert tool == Hammer(3.0, "wood")

    def test_clone_and_pickle(self):
        tool = Hammer(2.0, "steel")
        for copied in (clone(tool), pickle.loads(pickle.dumps(tool))):
            assert copied == tool
            assert copied is not tool

    def test_saved_and_loaded(self):
        tool = Hammer(np.float32(0.5))
        config = json.loads(json.dumps(tool.to_config()))
        assert config == {"name": "hammer", "weight": 0.5, "handle": "wood"}
        assert Tool.from_config(config) == tool
        assert config["name"] == "hammer"  # the given config is not changed

    def test_a_config_is_checked(self):
        with pytest.raises(ValueError, match="there is no tool 'saw'"):
            Tool.from_config({"name": "saw"})
        with pytest.raises(ValueError, match="there is no tool ''"):
            Tool.from_config({"weight": 1.0})
        with pytest.raises(TypeError, match="length"):
            Tool.from_config({"name": "hammer", "length": 2})
        with pytest.raises(ValueError, match="weight must be positive"):
            Tool.from_config({"name": "hammer", "weight": 0})

    def test_an_unregistered_part_cannot_be_saved(self):
        with pytest.raises(ValueError, match="'Unnamed' is not registered"):
            Unnamed().to_config()

    def test_names_classes_and_objects_are_accepted(self):
        tool = Hammer(2.0)
        assert Tool.of(tool) is tool
        assert Tool.of("hammer") == Tool.of(Hammer) == Hammer()
        with pytest.raises(ValueError, match="there is no tool 'saw'"):
            Tool.of("saw")


class TestRecipe:
    def test_builds_with_sizes_options_and_defaults(self):
        """Its own options take precedence; defaults that the constructor does not accept are dropped."""
        made = Motor.with_options(power=5).build(3, power=2, colour="blue", wheels=4)
        assert (type(made), made.size, made.power, made.colour) == (Motor, 3, 5, "blue")
        assert Plain.with_options().build(3, power=2).size == 3

    def test_options_of_base_classes_are_accepted_if_passed_on(self):
        made = Turbo.with_options(boost=3.0, power=7).build(1, colour="blue")
        assert (made.boost, made.power, made.colour) == (3.0, 7, "blue")
        with pytest.raises(TypeError, match=r"Plain has no option 'power'; it has \['size'\]"):
            Plain.with_options(power=1)

    def test_unknown_options_are_refused(self):
        with pytest.raises(
            TypeError, match=r"Turbo has no option 'wheels'; it has \['size', 'boost', 'power', 'colour'\]"
        ):
            Recipe(Turbo, wheels=4)
        recipe = Motor.with_options(power=5)
        with pytest.raises(TypeError, match="no option 'wheels'"):
            recipe.set_params(power=6, wheels=4)
        assert recipe == Motor.with_options(power=5)

    def test_is_what_it_says(self):
        recipe = Motor.with_options(power=5, colour="red")
        assert repr(recipe) == "Motor.with_options(power=5, colour='red')"
        assert recipe == Recipe(Motor, colour="red", power=5)
        assert recipe != Recipe(Turbo, colour="red", power=5)
        assert recipe != Recipe(Motor, power=5)
        assert recipe != "motor"
        with pytest.raises(TypeError, match="unhashable"):
            hash(recipe)

    def test_parameters_and_clones(self):
        recipe = Motor.with_options(colour=["red"])
        copied = clone(recipe)
        assert copied == recipe
        copied.options["colour"].append("blue")
        assert recipe.options == {"colour": ["red"]}
        assert recipe.set_params(power=2) is recipe
        assert recipe.get_params() == {"colour": ["red"], "power": 2}
        recipe.get_params()["power"] = 9
        assert recipe.options["power"] == 2

    def test_saved_and_loaded(self):
        recipe = Turbo.with_options(boost=np.float64(1.5), power=np.int64(3))
        config = json.loads(json.dumps(recipe.to_config(Engine.registry)))
        assert config == {"name": "turbo", "boost": 1.5, "power": 3}
        assert Recipe.of(config, Engine.registry) == recipe
        assert config["name"] == "turbo"
        with pytest.raises(ValueError, match="there is no engine 'jet'"):
            Recipe.of({"name": "jet"}, Engine.registry)
        with pytest.raises(TypeError, match="Motor has no option 'boost'"):
            Recipe.of({"name": "motor", "boost": 1.0}, Engine.registry)

    def test_names_classes_and_objects_are_accepted(self):
        recipe = Motor.with_options(power=2)
        assert Recipe.of(recipe, Engine.registry) is recipe
        assert Recipe.of("motor", Engine.registry) == Recipe.of(Motor, Engine.registry) == Recipe(Motor)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.float32(0.5), 0.5),
        (np.int64(3), 3),
        (np.True_, True),
        (np.str_("a"), "a"),
        ((1, (2.0, None)), [1, [2.0, None]]),
        ({"a": (np.int8(1),), "b": {"c": "d"}}, {"a": [1], "b": {"c": "d"}}),
        (None, None),
    ],
)
def test_plain_values(value, expected):
    found = plain(value)
    assert found == expected
    assert type(found) is type(expected)
    assert json.loads(json.dumps(found)) == expected


@pytest.mark.parametrize("value", [object(), {1: "a"}, {1, 2}, np.zeros(2), 1j, [object()], b"a"])
def test_values_that_json_cannot_hold_are_refused(value):
    with pytest.raises(TypeError, match=r"cannot be saved: it is not a number, a string, a boolean, None"):
        plain(value)


def test_a_solver_cannot_be_registered_under_an_existing_name():
    with pytest.raises(ValueError, match="the solver 'rk4' is already"):
        nc.solve.solvers.add("rk4", nc.Tableau("rk4", 1, "Euler 1768", a=((),), b=(1.0,), c=(0.0,)))
