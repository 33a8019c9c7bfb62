"""The base class of path schemes, which build a control path from series."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Literal

from jaxtyping import Float
from torch import Tensor

from ..contracts import Part, Registry
from ..series import IrregularSeries
from ..series.channels import Role
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
    memory: ClassVar[int] = 0
    """Number of rows before the last one that the pieces of the last gap depend on, given values carried forward; 0 if
    `gap` is not defined. With a number, the scheme runs on streams, and long series are explained much faster."""

    def gap(
        self,
        times: Float[Tensor, "streams rows"],
        values: Float[Tensor, "streams rows channels"],
        roles: Sequence[Role],
    ) -> Float[Tensor, "streams pieces powers channels"]:
        """The pieces of the gap before the last row, for streams, which get one row at a time. Optional.

        Parameters
        ----------
        times, values
            The last `memory + 1` rows, with missing values carried forward; at the start of a stream, the first row
            repeated.
        roles
            Roles of the channels.
        """
        raise NotImplementedError(f"{type(self).__name__} must define gap(times, values, roles), and memory")

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
