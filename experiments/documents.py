"""The documents with tables: an experiment's RESULTS.md, and its main table in docs/experiments.md."""

from __future__ import annotations

from pathlib import Path

from .experiment import HERE, Experiment
from .tables import NOTHING, ablation_tables, extra_tables, main_table, tables

DOCS = HERE.parent / "docs"
PAGES = (DOCS / "experiments.md",)
REPRODUCING = DOCS / "reproducing.md"  # with the tables of ablations of the experiments that it has marks for
COMMAND = "python -m experiments tables --write"


def documents(experiment: Experiment) -> dict[Path, str]:
    """The current text of every document with tables of the experiment, by file.

    The pages in docs/ are included only if the results are in the experiment's own folder.
    """
    made = [table.markdown() for table in tables(experiment)]
    head = (
        f"# {experiment.config['title']}\n\nMade by `{COMMAND}` from the lines of results in this folder; "
        "[README.md](README.md) says what was done.\n\n"
    )
    texts = {experiment.folder / "RESULTS.md": head + "\n".join(made)} if made else {}
    if experiment.folder == HERE / experiment.name:
        main = main_table(experiment)
        shown = [*([] if main is None else [main]), *extra_tables(experiment)]
        text = "\n".join(table.markdown() for table in shown) or NOTHING
        texts |= {page: between_marks(page.read_text(), experiment.name, text) for page in PAGES}
        name, page = f"{experiment.name} ablations", REPRODUCING.read_text()
        if f"<!-- {name}: " in page:
            changes = "\n".join(table.markdown() for table in ablation_tables(experiment)) or NOTHING
            texts[REPRODUCING] = between_marks(page, name, changes)
    return texts


def between_marks(text: str, name: str, table: str, command: str = COMMAND) -> str:
    """Replace what is between the start mark of `name` and the next end mark.

    Raises
    ------
    ValueError
        If a mark is missing.
    """
    start, end = f"<!-- {name}: {command} -->\n", "<!-- end -->\n"
    before, first, rest = text.partition(start)
    _, last, after = rest.partition(end)
    if not (first and last):
        raise ValueError(f"the page must have the lines {start.strip()} and {end.strip()} around the table of {name}.")
    return before + start + table + end + after
