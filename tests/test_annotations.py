"""Annotations: each can be read, and those of the folders named in conftest.py are checked while the tests run."""

import ast
import importlib
import inspect
import pkgutil
import typing

import pytest
import torch
from jaxtyping import TypeCheckError

import neuralcde as nc
import type_checks
from neuralcde.fields.vector_field import multiply
from neuralcde.tasks import BinaryTask

MODULES = [
    info.name
    for info in pkgutil.walk_packages(nc.__path__, "neuralcde.")
    if not info.name.endswith(("__main__", "_kernels"))
]


def annotated(owner, module):
    """Every function and class that the module defines, methods and properties too."""
    for value in vars(owner).values():
        value = getattr(value, "__func__", getattr(value, "fget", value))
        value = inspect.unwrap(value) if callable(value) else value
        if getattr(value, "__module__", None) != module:
            continue
        if inspect.isfunction(value):
            yield value
        if inspect.isclass(value) and value is not owner:
            yield value
            yield from annotated(value, module)


def imported_for_types(module):
    """Names that a module imports if TYPE_CHECKING; none where annotations are checked, which needs the names."""
    if module.__name__.split(".")[1] in type_checks.FOLDERS:
        return {}
    blocks = [node for node in ast.parse(inspect.getsource(module)).body if isinstance(node, ast.If)]
    names = {}
    for block in blocks:
        if ast.unparse(block.test) == "TYPE_CHECKING":
            exec(ast.unparse(block.body), {"__package__": module.__spec__.parent, "__name__": module.__name__}, names)
    return names


def test_every_annotation_can_be_evaluated():
    """Annotations with an undefined name or an invalid shape would silently not be checked."""
    unreadable, shapes = [], 0
    for name in MODULES:
        module = importlib.import_module(name)
        known = vars(module) | imported_for_types(module)
        for value in annotated(module, name):
            try:
                hints = typing.get_type_hints(value, localns=known, include_extras=True)
            except Exception as error:
                unreadable.append(f"{name}.{value.__qualname__}: {error!r}")
            else:
                shapes += sum(hasattr(hint, "dim_str") for hint in hints.values())
    assert unreadable == []
    assert shapes > 100


def test_a_wrong_shape_is_found():
    with pytest.raises(TypeCheckError, match="loss"):
        BinaryTask(("no", "yes")).loss(torch.zeros(3, 1), torch.zeros(4))


def test_a_wrong_type_is_found():
    with pytest.raises(TypeCheckError, match="substeps"):
        nc.AtKnots(substeps=1.5)


@pytest.mark.wrong_types
def test_marked_tests_see_the_errors_of_the_package():
    with pytest.raises(ValueError, match="substeps"):
        nc.AtKnots(substeps=1.5)


def test_annotations_are_checked_again_after_a_marked_test():
    with pytest.raises(TypeCheckError):
        nc.AtKnots(substeps=1.5)


def test_a_wrong_shape_in_the_innermost_function_is_found():
    with pytest.raises(TypeCheckError, match="multiply"):
        multiply(torch.zeros(2, 3, 4), torch.zeros(2, 5))


def plus_one(number: int) -> int:
    return number + 1


def test_the_first_calls_in_a_test_and_some_later_ones_are_checked():
    function = type_checks.sampled(plus_one, typechecker=type_checks.checked)
    found = []
    for _ in range(100):
        try:
            function(0.5)
        except TypeCheckError:
            found.append("wrong")
        else:
            found.append("not checked")
    assert found[:2] == ["wrong", "wrong"]
    assert found.count("wrong") == (100 if type_checks.all_calls else 5)
    type_checks.begin_test(check=True)
    with pytest.raises(TypeCheckError):
        function(0.5)
