"""The base class of path schemes, which build a control path from series."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Literal

from ..contracts import Part, Registry
from ..series import IrregularSeries
from .control_path import Causality, ControlPath

Fill = Literal["interpolate", "forward"]


class PathScheme(Part):
    """Base class of path schemes. A subclass is a dataclass whose fields are its options, registered under a name.

    Examples
    --------
    >>> import neuralcde as nc
    >>> nc.Smoothing(penalty=2.0).to_config()
    {'name': 'smoothing', 'penalty': 2.0}
    >>> nc.Linear().causality, nc.Linear(fill="interpolate").causality
    ('knots', 'none')
    """

    registry: ClassVar[Registry[type[PathScheme]]]
    window: ClassVar[int | None] = None
    """The number of rows up to the end of a gap on which its pieces depend, given values carried forward; None for all.
    With a number, explanations are much faster for long series."""

    @abstractmethod
    def build(self, series: IrregularSeries) -> ControlPath:
        """The paths of a batch of series."""
        raise NotImplementedError(f"{type(self).__name__} must define build(series) -> ControlPath")

    @property
    @abstractmethod
    def causality(self) -> Causality:
        """Where X(t) depends only on observations up to t: `"everywhere"`, at `"knots"`, or nowhere (`"none"`)."""
        raise NotImplementedError(f"{type(self).__name__} must define causality")


PathScheme.registry = Registry("path scheme", PathScheme)


def causality_of_fill(fill: Fill) -> Causality:
    """Causality of a local scheme: values carried forward do not depend on later observations, interpolated ones do."""
    return "knots" if fill == "forward" else "none"
