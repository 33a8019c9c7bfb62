"""How commands end: 0 done, 1 failed, 2 wrong use; a paragraph in place of a traceback."""

from __future__ import annotations

import functools
import re
import sys
import textwrap
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

Command = TypeVar("Command", bound=Callable[..., Any])


class WrongUseError(Exception):
    """What the user gave cannot be used; the message says what is wrong and how to mend it."""


def in_options(reason: Exception) -> str:
    """What an error says, with the options of the command line in place of Python's arguments."""
    text = re.sub(r"\b(?:use )?resume=False\b", "leave --resume out", str(reason))
    return re.sub(
        r"\b(duplicates|static|device)=(?:([\"'])(.*?)\2|(?!\w))",
        lambda m: " ".join(filter(None, (f"--{m[1]}", m[3]))),
        text,
    )


def ends_well(command: Command) -> Command:
    """Decorate a command with a `debug` option: its errors become a paragraph and an exit code."""

    @functools.wraps(command)
    def run(*arguments: Any, **options: Any) -> Any:
        if options.get("debug"):
            return command(*arguments, **options)
        warnings.showwarning = _say
        try:
            return command(*arguments, **options)
        except WrongUseError as reason:
            return _end(2, str(reason))
        except KeyboardInterrupt:
            return _end(1, "Interrupted; nothing was written.")
        except OSError as reason:
            where = f" ({reason.filename})" if reason.filename else ""
            return _end(1, f"{reason.strerror or reason}{where}. What was there before is as it was.")
        except Exception as reason:
            return _end(1, f"{type(reason).__name__}: {reason}")

    return run  # type: ignore[return-value]


def _end(code: int, message: str) -> None:
    _say(message)
    print("  (--debug shows where)", file=sys.stderr)
    sys.exit(code)


def _say(message: Warning | str, *_: Any, **__: Any) -> None:
    print(textwrap.fill(f"neuralcde: {message}", width=100, subsequent_indent="  "), file=sys.stderr)
