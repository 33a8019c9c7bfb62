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
    "PathScheme": "paths",
    "NaturalCubic": "paths",
    "Hermite": "paths",
    "Linear": "paths",
    "Rectilinear": "paths",
    "Smoothing": "paths",
    "PathDataset": "paths",
    "VectorField": "fields",
    "MLPField": "fields",
    "LowRankField": "fields",
    "as_cde": "fields",
    "solve_cde": "solve",
    "AtKnots": "solve",
    "FixedSteps": "solve",
    "Adaptive": "solve",
    "Checkpoint": "solve",
    "Backprop": "solve",
    "Backsolve": "solve",
    "Reversible": "solve",
    "Tableau": "solve",
    "Solution": "solve",
    "SolveError": "solve",
    "Status": "solve",
    "signature": "solve",
    "logsignature": "solve",
    "logsignature_windows": "solve",
    "channel_contributions": "solve",
    "NeuralCDE": "models",
    "GRUODE": "models",
    "GRUDeltaT": "models",
    "GRUD": "models",
    "ODERNN": "models",
    "RowMLP": "models",
    "SummaryReadout": "models",
    "PiecewiseLinearEncoding": "models",
    "NeuralCDEClassifier": "estimators",
    "NeuralCDERegressor": "estimators",
    "load": "estimators",
    "check_data": "estimators",
}
__all__ = list(_HOME)

if TYPE_CHECKING:
    from .estimators import NeuralCDEClassifier as NeuralCDEClassifier
    from .estimators import NeuralCDERegressor as NeuralCDERegressor
    from .estimators import check_data as check_data
    from .estimators import load as load
    from .fields import LowRankField as LowRankField
    from .fields import MLPField as MLPField
    from .fields import VectorField as VectorField
    from .fields import as_cde as as_cde
    from .models import GRUD as GRUD
    from .models import GRUODE as GRUODE
    from .models import ODERNN as ODERNN
    from .models import GRUDeltaT as GRUDeltaT
    from .models import NeuralCDE as NeuralCDE
    from .models import PiecewiseLinearEncoding as PiecewiseLinearEncoding
    from .models import RowMLP as RowMLP
    from .models import SummaryReadout as SummaryReadout
    from .paths import ControlPath as ControlPath
    from .paths import Hermite as Hermite
    from .paths import Linear as Linear
    from .paths import NaturalCubic as NaturalCubic
    from .paths import PathDataset as PathDataset
    from .paths import PathScheme as PathScheme
    from .paths import Rectilinear as Rectilinear
    from .paths import Smoothing as Smoothing
    from .paths import hermite as hermite
    from .paths import linear as linear
    from .paths import natural_cubic as natural_cubic
    from .paths import rectilinear as rectilinear
    from .paths import smoothing as smoothing
    from .series import IrregularSeries as IrregularSeries
    from .series import SeriesScaler as SeriesScaler
    from .solve import Adaptive as Adaptive
    from .solve import AtKnots as AtKnots
    from .solve import Backprop as Backprop
    from .solve import Backsolve as Backsolve
    from .solve import Checkpoint as Checkpoint
    from .solve import FixedSteps as FixedSteps
    from .solve import Reversible as Reversible
    from .solve import Solution as Solution
    from .solve import SolveError as SolveError
    from .solve import Status as Status
    from .solve import Tableau as Tableau
    from .solve import channel_contributions as channel_contributions
    from .solve import logsignature as logsignature
    from .solve import logsignature_windows as logsignature_windows
    from .solve import signature as signature
    from .solve import solve_cde as solve_cde


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'neuralcde' has no attribute {name!r}")
    value = getattr(import_module(f".{_HOME[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*globals(), *_HOME]
