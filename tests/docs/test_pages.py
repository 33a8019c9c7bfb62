"""The pages of the documentation: their code and commands run in order and print what the page shows."""

import json
import re
import shlex

import numpy as np
import pandas as pd
import pytest
from page_runs import BLOCK, ROOT, command_output, compare, example_output, run_page

pytestmark = pytest.mark.xdist_group("examples")  # pages and test_examples.py share what the examples print

# pages, and the minimum number of blocks that run
PAGES = {
    "README.md": 1,
    "docs/quickstart.md": 9,
    "docs/choosing.md": 7,
    "docs/faq.md": 17,
    "docs/why_and_how_sure.md": 5,
    "docs/streaming.md": 2,
}
OTHERS = ["CHANGELOG.md", "CONTRIBUTING.md"]
LINKED = [*OTHERS, "README.md", *(f"docs/{file.name}" for file in sorted((ROOT / "docs").glob("*.md")))]
WORDS = ["Series", "Row", "Channel", "Control path", "Knot", "Field", "Flow", "Jump", "State", "Readout"]


RUN_ALONE = ["README.md", "docs/choosing.md", "docs/faq.md", "docs/why_and_how_sure.md", "docs/streaming.md"]


@pytest.mark.parametrize("page", RUN_ALONE)
def test_the_code_of_a_page_runs_and_prints_what_it_shows(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ran, _ = run_page(ROOT / page)
    assert ran >= PAGES[page]


def test_the_quickstart_runs_in_python_and_on_the_command_line(tmp_path, monkeypatch):
    """The figures change with every default, so only words are compared; the claims are checked with wide margins."""
    monkeypatch.chdir(tmp_path)
    ran, names = run_page(ROOT / "docs" / "quickstart.md", numbers=False)
    assert ran >= PAGES["docs/quickstart.md"]
    assert names["clf"].score(names["stays"], names["truth"]) > 0.85
    ill, last = (names["truth"] == "ill").to_numpy(), names["risk"][:, -1]
    assert last[ill].mean() > 0.6
    assert last[~ill].mean() < 0.3
    assert json.loads((tmp_path / "model" / "metrics.json").read_text())["test"]["auroc"] > 0.85
    assert len((tmp_path / "risk.csv").read_text().splitlines()) == 1 + len(names["series"])


# ---- the README: short, its commands run, and its figures equal those of the pages it links to ----


def readme_lines():
    return (ROOT / "README.md").read_text().splitlines()


def test_the_readme_is_a_landing_page():
    lines = readme_lines()
    assert len(lines) <= 90
    assert max(len(line) for line in lines if not line.startswith("|")) <= 121
    assert sum(line.startswith("![") for line in lines) == 1
    headings = [line.removeprefix("## ") for line in lines if line.startswith("## ")]
    assert headings[0] == "Install"
    assert headings[-4:] == ["How good", "How fast", "What it cannot do", "Read on"]


def stays(count, *, seed):
    """A table with the columns of the README's commands: one outcome and age per stay, some values missing."""
    rng, rows = np.random.default_rng(seed), []
    for stay in range(count):
        age, outcome = int(rng.integers(20, 90)), ("died", "survived")[stay % 2]
        for hour in np.sort(rng.uniform(0, 24, 6)):
            pulse = None if rng.random() < 0.2 else 80 + hour * (stay % 2) + rng.normal()
            rows.append((f"s{stay}", hour, pulse, age, outcome))
    return pd.DataFrame(rows, columns=["stay", "hour", "pulse", "age", "outcome"])


def test_the_commands_of_the_readme_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    stays(40, seed=0).to_csv(tmp_path / "vitals.csv", index=False)
    stays(7, seed=1).drop(columns="outcome").to_csv(tmp_path / "new_stays.csv", index=False)
    shown = [block for kind, block in BLOCK.findall((ROOT / "README.md").read_text()) if kind == "sh"]
    words = [shlex.split(line, comments=True) for block in shown for line in block.splitlines()]
    commands = [line[1:] for line in words if line[0] == "neuralcde"]
    assert [command[0] for command in commands] == ["info", "fit", "report", "predict"]
    for command in commands:
        more = ["--max-epochs", "2"] if command[0] == "fit" else []
        command_output([*command, *more])
    assert (tmp_path / "model" / "report.html").is_file()
    assert pd.read_csv(tmp_path / "risk.csv").columns.tolist() == ["stay", "outcome", "p_died", "p_survived"]
    assert len(pd.read_csv(tmp_path / "risk.csv")) == 7


def test_the_readme_has_the_figures_of_the_speed_page():
    rows = [line for line in readme_lines() if re.search(r"\| [\d.]+ \|$", line)]
    page = (ROOT / "docs" / "speed.md").read_text()
    measured = json.loads((ROOT / "benchmarks" / "results" / "solve.json").read_text())["results"]
    modes = {(row["mode"], row["against"]): row["ratio"] for row in measured["modes"]}
    adaptive, adjoint = rows[-2:]  # the others are rows of the page
    assert len(rows) >= 6
    assert all(row in page.splitlines() for row in rows[:-2])
    for row, mode, peer, shown in (
        (adaptive, "adaptive, forward and backward", "diffrax jit", "adaptive, forward and backward"),
        (adjoint, "adaptive, adjoint with the seminorm", "torchcde", "adaptive, continuous adjoint with the seminorm"),
    ):
        figure = f"{modes[mode, peer]:.0f}"
        assert row.endswith(f"| {figure} |")
        assert re.search(rf"^\| {shown} \| .* \| {figure} \|$", page, re.MULTILINE)
    ratios = {f"{row['ratio']:.{0 if row['ratio'] > 20 else 1}f}" for row in measured["peers"]}
    assert {row.split("|")[-2].strip() for row in rows[:-2]} <= ratios
    machine, day = re.search(r"on a (.+?), (\d{4}-\d\d-\d\d): medians", "\n".join(readme_lines())).groups()
    assert f"from a {machine} on {day}, medians" in " ".join(page.split())


def test_the_readme_has_the_figures_of_the_papers_table():
    """Each column has the Neural CDE's figure, the paper's, and the best of the other models."""
    (shown,) = (line for line in readme_lines() if "Table 1" in line)
    table = (ROOT / "docs" / "experiments.md").read_text().partition("<!-- end -->")[0]
    rows = re.findall(r"^\| ([\w -]+?) \| (\d[\d.]+ ±.*) \|$", table, re.MULTILINE)
    figures = {name: [float(cell.split()[0]) for cell in cells.split(" | ")[:6]] for name, cells in rows}
    assert len(figures) == 5
    cde = figures.pop("Neural CDE")
    best = [max(other[k] for other in figures.values()) for k in (1, 3, 5)]
    assert re.findall(r"([\d.]+ / [\d.]+ / [\d.]+) %", shown.partition("|")[2].partition("|")[2]) == [
        " / ".join(f"{figure:.1f}" for figure in three) for three in (cde[1::2], cde[::2], best)
    ]


def test_the_picture_of_the_readme_shows_what_its_caption_says():
    """Of two unseen stays, the risk of one rises and that of the other falls."""
    text = example_output(ROOT / "examples" / "landing_picture.py")
    risks = {name: [float(a), float(b)] for name, a, b in re.findall(r"(\w+): risk ([\d.]+) at.* ([\d.]+) at", text)}
    assert risks["died"][1] > 0.9
    assert risks["survived"][1] < 0.1


def test_the_glossary_has_ten_words_of_one_or_two_sentences():
    text = (ROOT / "docs" / "glossary.md").read_text()
    entries = re.findall(r"^- \*\*(.+?)\*\*(.*?)(?=^- |\Z)", text, re.MULTILINE | re.DOTALL)
    assert [word for word, _ in entries] == WORDS
    assert all(1 <= len(re.findall(r"[.](?:\s|$)", meaning)) <= 2 for _, meaning in entries)
    for page in ("README.md", "CONTRIBUTING.md", "docs/quickstart.md"):
        assert "glossary.md)" in (ROOT / page).read_text()


# ---- links ----


def anchors(text):
    """The anchors of the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", LINKED)
def test_links_point_to_existing_pages_and_headings(page):
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
def test_lines_that_were_not_printed_are_detected(shown, printed, numbers):
    with pytest.raises(AssertionError, match="was not printed"):
        compare(shown, printed, "page", numbers=numbers)


def test_printed_lines_are_found():
    compare("a 1.00 of 2,497\nc", "begun\na 1.01 of 2,497\nb\nc", "page", numbers=True)
    compare("took 3 s", "took 4 s", "page", numbers=False)
