"""Columns as they are named on the command line: one by one, separated by commas, or as patterns."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from fnmatch import fnmatchcase

from .errors import WrongUseError

WILD = "*?["


def named_columns(option: str, given: Iterable[str], columns: Sequence[str], *, taken: Collection[str]) -> list[str]:
    """The columns that an option names, in the order in which it names them, each once.

    The name of a column is taken literally, even if it has a comma or a star in it. Any other text is split at commas,
    and a part with `*`, `?` or `[` is a pattern: `lab_*`.

    Parameters
    ----------
    option
        The option, for error messages.
    given
        What was given for it.
    columns
        All columns of the table.
    taken
        Columns with another role, such as the id; a pattern does not match them.

    Raises
    ------
    WrongUseError
        If a pattern matches no column. Unknown names are returned as they are.
    """
    found: dict[str, None] = {}
    for text in given:
        for part in [text] if text in columns else split_names(text):
            if part in columns or not any(sign in part for sign in WILD):
                found[part] = None
                continue
            matching = [name for name in columns if fnmatchcase(name, part) and name not in taken]
            if not matching:
                raise WrongUseError(f"--{option} {part}: no column matches; the table has {', '.join(columns[:30])}.")
            found |= dict.fromkeys(matching)
    return list(found)


def split_names(text: str) -> list[str]:
    """The parts of a text that are separated by commas."""
    return [part.strip() for part in text.split(",") if part.strip()]
