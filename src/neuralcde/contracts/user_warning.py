"""Warnings that point at the user's line, however deep in the package they are raised."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence

from .errors import Argument

SKIPPED = (__name__.partition(".")[0], "sklearn", "joblib")  # scikit-learn calls estimators on behalf of the user


def warn_user(message: str | Sequence[str | Argument], category: type[Warning] = UserWarning) -> None:
    """Warn with the file and the line of the first caller outside this package and scikit-learn.

    Parameters
    ----------
    message
        Text; or text and the arguments it names, which the command line spells as options (`on_the_command_line`).
    category
        Class of the warning.
    """
    parts = [message] if isinstance(message, str) else message
    warning = category("".join(part if isinstance(part, str) else part.in_python() for part in parts))
    options = "".join(part if isinstance(part, str) else part.on_the_command_line() for part in parts)
    warning.on_the_command_line = options  # type: ignore[attr-defined]
    level, frame = 2, sys._getframe(1)  # level 1 is this function
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in SKIPPED:
        level, frame = level + 1, frame.f_back
    warnings.warn(warning, stacklevel=level)
