"""Warnings that point at the user's line, however deep in the package they are raised."""

from __future__ import annotations

import sys
import warnings

SKIPPED = (__name__.partition(".")[0], "sklearn", "joblib")  # scikit-learn calls estimators on behalf of the user


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn with the file and the line of the first caller outside this package and scikit-learn."""
    level, frame = 2, sys._getframe(1)  # level 1 is this function
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in SKIPPED:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
