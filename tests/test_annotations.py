"""Annotations: each can be read, and those of the folders named in conftest.py are checked while the tests run."""

import importlib
import inspect
import os
import pkgutil
import subprocess
import sys
import typing
from pathlib import Path

import pytest
import torch
from jaxtyping import TypeCheckError

import neuralcde as nc
from neuralcde.fields.vector_field import multiply
from neuralcde.tasks import BinaryTask
from type_checks import INNER_LOOPS, checked_modules

ROOT = Path(__file__).parents[1]
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


def test_every_annotation_can_be_evaluated():
    """Annotations with an undefined name or an invalid shape would silently not be checked."""
    unreadable, shapes = [], 0
    for name in MODULES:
        for value in annotated(importlib.import_module(name), name):
            try:
                hints = typing.get_type_hints(value, include_extras=True)
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


@pytest.mark.skipif("CHECK_INNER_LOOPS" not in os.environ, reason="run by test_the_inner_loops_keep_their_shapes")
def test_a_wrong_shape_in_the_innermost_function_is_found():
    with pytest.raises(TypeCheckError, match="multiply"):
        multiply(torch.zeros(2, 3, 4), torch.zeros(2, 5))


def test_the_inner_loops_keep_their_shapes():
    """A few tests again, with those modules checked that conftest.py leaves out for speed."""
    chosen = "innermost or test_outputs or test_ragged_batches or reverse or jump"
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-k", chosen, "tests/solve/test_outputs.py"]
    command += ["tests/solve/test_backsolve.py", "tests/test_annotations.py"]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"CHECK_INNER_LOOPS": "1"}, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert all(f"neuralcde.{name}" in checked_modules(inner_loops=True) for name in INNER_LOOPS)
