"""Errors that carry the name of the argument at fault."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Argument:
    """An argument that is named in an error message; with the value `...`, only its name is shown.

    `option` is what the command line has in its place, where that is not an option of the same name.

    Examples
    --------
    >>> Argument("duplicates", "mean").in_python(), Argument("duplicates", "mean").on_the_command_line()
    ('duplicates="mean"', '--duplicates mean')
    >>> Argument("resume", False).in_python(), Argument("resume", False).on_the_command_line()
    ('resume=False', '--no-resume')
    >>> Argument("resume", False, option="--force").on_the_command_line()
    '--force'
    """

    name: str
    value: Any = ...
    option: str | None = None

    def in_python(self) -> str:
        """The argument in Python syntax."""
        if self.value is ...:
            return self.name
        return f'{self.name}="{self.value}"' if isinstance(self.value, str) else f"{self.name}={self.value!r}"

    def on_the_command_line(self) -> str:
        """The argument as a command-line option."""
        if self.option is not None:
            return self.option
        option = self.name.replace("_", "-")
        if self.value is False:
            return f"--no-{option}"
        return f"--{option}" if self.value is ... or self.value is True else f"--{option} {self.value}"


def listed(*names: str) -> list[str | Argument]:
    """Arguments separated by commas, as parts of a message."""
    return [part for name in names for part in (", ", Argument(name))][1:]


class ArgumentError(ValueError):
    """An invalid argument. The message can be given in Python syntax or with command-line options.

    Parameters
    ----------
    message
        Parts of the message, which says what is wrong and how to fix it: text, and the arguments it names.
    argument
        Name of the argument at fault; by default the first one in the message.

    Examples
    --------
    >>> error = ArgumentError("two rows at hour 7; pass ", Argument("duplicates", "mean"), ".")
    >>> str(error), error.argument, error.on_the_command_line()
    ('two rows at hour 7; pass duplicates="mean".', 'duplicates', 'two rows at hour 7; pass --duplicates mean.')
    """

    def __init__(self, *message: str | Argument, argument: str | None = None):
        self.message = message
        named = (part.name for part in message if isinstance(part, Argument))
        self.argument = argument if argument is not None else next(named, None)
        super().__init__("".join(part if isinstance(part, str) else part.in_python() for part in message))

    def on_the_command_line(self) -> str:
        """The message with arguments as command-line options."""
        return "".join(part if isinstance(part, str) else part.on_the_command_line() for part in self.message)


class ArgumentTypeError(ArgumentError, TypeError):
    """An argument of the wrong type."""
