"""Every test named in docs/promises.md exists."""

import ast
import re

import pytest
from page_runs import ROOT

NAMED = sorted(set(re.findall(r"`(tests/[^`\n]+)`", (ROOT / "docs" / "promises.md").read_text())))


def test_the_page_names_more_than_thirty_tests():
    assert len(NAMED) > 30


@pytest.mark.parametrize("name", NAMED)
def test_every_named_test_exists(name):
    file, test = name.split("::")
    assert test in {getattr(node, "name", "") for node in ast.parse((ROOT / file).read_text()).body}
