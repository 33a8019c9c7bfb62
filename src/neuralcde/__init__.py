"""Neural controlled differential equations for irregular, partially observed time series.

The public names below are loaded when they are first used, so that `import neuralcde` and the command line's `--help`
do not wait for torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

# name -> the folder that defines it, in the order of the data flow
_HOME = {
    "IrregularSeries": "series",
    "SeriesScaler": "series",
    "ControlPath": "paths",
    "natural_cubic": "paths",
    "hermite": "paths",
    "linear": "paths",
    "rectilinear": "paths",
    "smoothing": "paths",
}
__all__ = list(_HOME)

if TYPE_CHECKING:
    from .paths import ControlPath as ControlPath
    from .paths import hermite as hermite
    from .paths import linear as linear
    from .paths import natural_cubic as natural_cubic
    from .paths import rectilinear as rectilinear
    from .paths import smoothing as smoothing
    from .series import IrregularSeries as IrregularSeries
    from .series import SeriesScaler as SeriesScaler


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'neuralcde' has no attribute {name!r}")
    value = getattr(import_module(f".{_HOME[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*globals(), *_HOME]
