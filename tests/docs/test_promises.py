"""docs/promises.md: every test that it names exists."""

import ast
import re

import pytest
from page_runs import ROOT

NAMED = sorted(set(re.findall(r"`(tests/[^`\n]+)`", (ROOT / "docs" / "promises.md").read_text())))


def test_the_page_names_tests():
    assert len(NAMED) > 30


@pytest.mark.parametrize("name", NAMED)
def test_a_test_that_is_named_exists(name):
    file, test = name.split("::")
    assert test in {getattr(node, "name", "") for node in ast.parse((ROOT / file).read_text()).body}
