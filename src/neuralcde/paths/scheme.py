"""What a path scheme is: a way to make a control path out of series, with options of its own."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Literal

from ..contracts import Part, Registry
from ..series import IrregularSeries
from .control_path import Causality, ControlPath

Fill = Literal["interpolate", "forward"]


class PathScheme(Part):
    """A way to make paths. Subclass it as a dataclass whose fields are its options, and give it a name.

    Examples
    --------
    >>> import neuralcde as nc
    >>> nc.Smoothing(penalty=2.0).to_config()
    {'name': 'smoothing', 'penalty': 2.0}
    >>> nc.Linear().causality, nc.Linear(fill="interpolate").causality
    ('knots', 'none')
    """

    registry: ClassVar[Registry[type[PathScheme]]]

    @abstractmethod
    def build(self, series: IrregularSeries) -> ControlPath:
        """The paths of a batch of series."""
        raise NotImplementedError(f"{type(self).__name__} must define build(series) -> ControlPath")

    @property
    @abstractmethod
    def causality(self) -> Causality:
        """Which values of X do not depend on later observations: `"none"`, those at `"knots"`, or `"everywhere"`."""
        raise NotImplementedError(f"{type(self).__name__} must define causality")


PathScheme.registry = Registry("path scheme", PathScheme)


def causality_of_fill(fill: Fill) -> Causality:
    """Of local schemes: values carried forward never look ahead, values read off the next observation do."""
    return "knots" if fill == "forward" else "none"
