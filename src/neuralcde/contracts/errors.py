"""Errors that know which argument they are about."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class ArgumentError(ValueError):
    """An argument that cannot be used. The message names it the way its reader typed it.

    Parameters
    ----------
    message
        What is wrong and how to mend it; `{}` stands for each of the `options`, in their order.
    argument
        The name of the argument at fault; by default the first of the options.
    options
        Arguments that the message speaks of: `duplicates="mean"` is shown so in Python, and as `--duplicates mean` on the
        command line. A value of `...` shows the name alone.

    Examples
    --------
    >>> error = ArgumentError("two rows at hour 7; pass {}.", duplicates="mean")
    >>> str(error), error.argument, error.on_the_command_line()
    ('two rows at hour 7; pass duplicates="mean".', 'duplicates', 'two rows at hour 7; pass --duplicates mean.')
    """

    def __init__(self, message: str, *, argument: str | None = None, **options: Any):
        self.message, self.options = message, options
        self.argument = argument if argument is not None else next(iter(options), None)
        super().__init__(self.in_python())

    def in_python(self) -> str:
        """The message with arguments as Python has them."""
        return self._filled(_in_python)

    def on_the_command_line(self) -> str:
        """The message with arguments as options of the command line."""
        return self._filled(_as_option)

    def _filled(self, spelling: Callable[[str, Any], str]) -> str:
        """The message with its options; one without options may hold braces of its own."""
        if not self.options:
            return self.message
        return self.message.format(*(spelling(name, value) for name, value in self.options.items()))


def _in_python(name: str, value: Any) -> str:
    if value is ...:
        return name
    return f'{name}="{value}"' if isinstance(value, str) else f"{name}={value!r}"


def _as_option(name: str, value: Any) -> str:
    option = f"--{name.replace('_', '-')}"
    return option if value is ... or value is True else f"{option} {value}"
