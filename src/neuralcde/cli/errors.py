"""Error handling of the commands: a short message in place of a traceback, and an exit code.

The exit codes are 0 for success, 1 for a failure and 2 for a usage error.
"""

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
    """A usage error: an option or an input file cannot be used. The message says what is wrong and how to fix it."""


def in_options(reason: Exception) -> str:
    """The message of an error, with arguments named as command-line options."""
    return reason.on_the_command_line() if isinstance(reason, ArgumentError) else str(reason)


def in_file(reason: Exception, file: Path | None, names: Collection[str]) -> str:
    """The message of an error, prefixed with the config file if it is about an option read from that file."""
    if isinstance(reason, ArgumentError) and reason.argument in names:
        return f"--config {file}: {reason}"
    return in_options(reason)


def report_errors(command: Command) -> Command:
    """Decorator of a command: turn its errors into a message on stderr and an exit code.

    If the command is called with `debug=True`, errors propagate with their traceback.
    """

    @functools.wraps(command)
    def run(*arguments: Any, **options: Any) -> Any:
        if options.get("debug"):
            with ctrl_c_raises():
                return command(*arguments, **options)
        warnings.showwarning = _say
        try:
            with ctrl_c_raises():  # inside the try, so that Ctrl-C is ignored while an error is reported
                return command(*arguments, **options)
        except WrongUseError as reason:
            return _end(2, str(reason))
        except KeyboardInterrupt as reason:
            _say(f"Interrupted. {_note(reason)}")
            sys.exit(1)
        except OSError as reason:
            where = f" ({reason.filename})" if reason.filename else ""
            return _end(1, f"{reason.strerror or reason}{where}. {_note(reason) or 'Existing files are unchanged.'}")
        except Exception as reason:
            return _end(1, f"{type(reason).__name__}: {reason}")

    return run  # type: ignore[return-value]


def _note(reason: BaseException) -> str:
    """The notes attached to an error, which say what was written before it."""
    return " ".join(getattr(reason, "__notes__", ()))


def _end(code: int, message: str) -> None:
    _say(message)
    print("  (use --debug for the traceback)", file=sys.stderr)
    sys.exit(code)


def _say(message: Warning | str, *_: Any, **__: Any) -> None:
    paragraph = textwrap.TextWrapper(100, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    text = getattr(message, "on_the_command_line", message)
    print(paragraph.fill(f"neuralcde: {text}"), file=sys.stderr)  # file and option names are not broken
