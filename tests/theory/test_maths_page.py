"""docs/maths.md: every name on the page exists."""

import ast
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "maths.md").read_text()
QUOTED = sorted(set(re.findall(r"`([^`\n]+)`", PAGE)))
FILES = [name for name in QUOTED if re.match(r"(tests|examples)/", name)]
NAMES = [name for name in QUOTED if re.match(r"(nc|neuralcde)\.", name)]


def test_the_page_names_something():
    assert len(FILES) > 30
    assert len(NAMES) > 20
    assert PAGE.count("`") % 2 == 0


@pytest.mark.parametrize("name", FILES)
def test_files_and_tests_exist(name):
    file, *inner = name.split("::")
    body = ast.parse((ROOT / file).read_text()).body
    for wanted in inner:
        found = [node for node in body if getattr(node, "name", None) == wanted]
        assert found, f"{file} has no {wanted}"
        body = getattr(found[0], "body", [])


@pytest.mark.parametrize("name", NAMES)
def test_functions_and_classes_exist(name):
    parts = name.replace("nc.", "neuralcde.", 1).split(".") if name.startswith("nc.") else name.split(".")
    thing = importlib.import_module("neuralcde")
    for depth, part in enumerate(parts[1:], start=2):
        if not hasattr(thing, part):
            thing = importlib.import_module(".".join(parts[:depth]))
        else:
            thing = getattr(thing, part)
    assert thing.__doc__
