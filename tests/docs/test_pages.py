"""The pages of the documentation: their code runs in order, their commands too, and both print what the page shows."""

import json
import re

import pytest
from page_runs import ROOT, compare, run_page

# a page, and the least number of blocks that run
PAGES = {"README.md": 1, "docs/quickstart.md": 8, "docs/choosing.md": 6, "docs/faq.md": 17}


@pytest.mark.parametrize("page", ["README.md", "docs/choosing.md", "docs/faq.md"])
def test_the_code_of_a_page_runs_and_prints_what_it_shows(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ran, _ = run_page(ROOT / page)
    assert ran >= PAGES[page]


def test_the_quickstart_runs_in_python_and_on_the_command_line(tmp_path, monkeypatch):
    """Its figures come of a short training and change with every default: the words are compared, and what it says of them."""
    monkeypatch.chdir(tmp_path)
    ran, names = run_page(ROOT / "docs" / "quickstart.md", numbers=False)
    assert ran >= PAGES["docs/quickstart.md"]
    assert names["clf"].score(names["stays"], names["truth"]) > 0.85
    ill, last = (names["truth"] == "ill").to_numpy(), names["risk"][:, -1]
    assert last[ill].mean() > 0.6
    assert last[~ill].mean() < 0.3
    assert json.loads((tmp_path / "model" / "metrics.json").read_text())["test"]["auroc"] > 0.85
    assert len((tmp_path / "risk.csv").read_text().splitlines()) == 1 + len(names["series"])


def anchors(text):
    """What the headings of a page are called in links to them."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    file = ROOT / page
    for target, anchor in re.findall(r"\]\(([^)#]*)#?([^)]*)\)", file.read_text()):
        if not target.startswith("http"):
            other = file.parent / target if target else file
            assert other.exists(), f"{page} links to {target}"
            assert not anchor or anchor in anchors(other.read_text()), f"{page} links to {target}#{anchor}"


@pytest.mark.parametrize(
    ("shown", "printed", "numbers"),
    [
        ("a 1.00", "a 1.20", True),
        ("a 1.00", "b 1.00", False),
        ("a 3e-05", "a 4e-04", True),
        ("b\na", "a\nb", False),
        ("1,000 rows", "2,000 rows", True),
    ],
)
def test_what_was_not_printed_is_noticed(shown, printed, numbers):
    with pytest.raises(AssertionError, match="was not printed"):
        compare(shown, printed, "page", numbers=numbers)


def test_what_was_printed_is_found():
    compare("a 1.00 of 2,497\nc", "begun\na 1.01 of 2,497\nb\nc", "page", numbers=True)
    compare("took 3 s", "took 4 s", "page", numbers=False)
