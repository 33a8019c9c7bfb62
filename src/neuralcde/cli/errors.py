"""How commands end: 0 done, 1 failed, 2 wrong use; a paragraph in place of a traceback."""

from __future__ import annotations

import functools
import sys
import textwrap
import warnings
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, TypeVar

from ..contracts import ArgumentError
from .ctrl_c import ctrl_c_raises

Command = TypeVar("Command", bound=Callable[..., Any])


class WrongUseError(Exception):
    """What the user gave cannot be used; the message says what is wrong and how to mend it."""


def in_options(reason: Exception) -> str:
    """What an error says, with the options of the command line in place of Python's arguments."""
    return reason.on_the_command_line() if isinstance(reason, ArgumentError) else str(reason)


def in_file(reason: Exception, file: Path | None, names: Collection[str]) -> str:
    """What an error says, with the file in front if it is about one of the options that were read from it."""
    if isinstance(reason, ArgumentError) and reason.argument in names:
        return f"--config {file}: {reason}"
    return in_options(reason)


def report_errors(command: Command) -> Command:
    """Decorate a command with a `debug` option: its errors become a paragraph and an exit code."""

    @functools.wraps(command)
    def run(*arguments: Any, **options: Any) -> Any:
        if options.get("debug"):
            with ctrl_c_raises():
                return command(*arguments, **options)
        warnings.showwarning = _say
        try:
            with ctrl_c_raises():  # and no longer when what happened is being said
                return command(*arguments, **options)
        except WrongUseError as reason:
            return _end(2, str(reason))
        except KeyboardInterrupt as reason:
            _say(f"Interrupted. {_note(reason)}")
            sys.exit(1)
        except OSError as reason:
            where = f" ({reason.filename})" if reason.filename else ""
            return _end(
                1, f"{reason.strerror or reason}{where}. {_note(reason) or 'What was there before is as it was.'}"
            )
        except Exception as reason:
            return _end(1, f"{type(reason).__name__}: {reason}")

    return run  # type: ignore[return-value]


def _note(reason: BaseException) -> str:
    """What was written before the error, where the command said so."""
    return " ".join(getattr(reason, "__notes__", ()))


def _end(code: int, message: str) -> None:
    _say(message)
    print("  (--debug shows where)", file=sys.stderr)
    sys.exit(code)


def _say(message: Warning | str, *_: Any, **__: Any) -> None:
    paragraph = textwrap.TextWrapper(100, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    print(paragraph.fill(f"neuralcde: {message}"), file=sys.stderr)  # names of files and options stay whole
