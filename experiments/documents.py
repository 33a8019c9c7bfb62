"""Tables where people read them: an experiment's RESULTS.md, and its main table in docs/experiments.md."""

from __future__ import annotations

from pathlib import Path

from .experiment import HERE, Experiment
from .tables import main_table, tables

PAGES = (HERE.parent / "docs" / "experiments.md",)
COMMAND = "python -m experiments tables --write"


def documents(experiment: Experiment) -> dict[Path, str]:
    """What the files that show an experiment's tables have to say, by file; pages are for the results of this folder alone."""
    made = [table.markdown() for table in tables(experiment)]
    head = (
        f"# {experiment.config['title']}\n\nMade by `{COMMAND}` from the lines of results in this folder; "
        "[README.md](README.md) says what was done.\n\n"
    )
    texts = {experiment.folder / "RESULTS.md": head + "\n".join(made)} if made else {}
    main = main_table(experiment)
    if main is not None and experiment.folder == HERE / experiment.name:
        texts |= {page: between_marks(page.read_text(), experiment.name, main.markdown()) for page in PAGES}
    return texts


def between_marks(text: str, name: str, table: str, command: str = COMMAND) -> str:
    """A text with what is between the two marks of a name replaced.

    Raises
    ------
    ValueError
        Where a mark is missing.
    """
    start, end = f"<!-- {name}: {command} -->\n", "<!-- end -->\n"
    before, first, rest = text.partition(start)
    _, last, after = rest.partition(end)
    if not (first and last):
        raise ValueError(f"the page must have the lines {start.strip()} and {end.strip()} around the table of {name}.")
    return before + start + table + end + after
