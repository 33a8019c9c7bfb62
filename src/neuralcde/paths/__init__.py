"""Path schemes: from an `IrregularSeries` to a `ControlPath` X. One file per scheme; all return the same class."""

from .._native import level as _level
from .control_path import ControlPath as ControlPath
from .control_path import Times as Times
from .hermite import Hermite as Hermite
from .hermite import hermite as hermite
from .linear import Linear as Linear
from .linear import linear as linear
from .natural_cubic import NaturalCubic as NaturalCubic
from .natural_cubic import natural_cubic as natural_cubic
from .path_dataset import PathDataset as PathDataset
from .rectilinear import Rectilinear as Rectilinear
from .rectilinear import rectilinear as rectilinear
from .scheme import PathScheme as PathScheme
from .smoothing import Smoothing as Smoothing
from .smoothing import smoothing as smoothing


def native_level() -> str:
    """The instruction-set level of the kernels in use; `"none"` if plain torch runs instead."""
    return _level()
