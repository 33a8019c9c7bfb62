"""Limits of a service."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

from ..contracts import Argument, ArgumentError


@dataclass(frozen=True)
class Limits:
    """Limits of a service.

    Parameters
    ----------
    body
        Bytes of a request.
    rows
        Rows of a prediction.
    streams
        Number of streams.
    idle_hours
        A stream without a push for so long is forgotten; None for never.
    log_lines
        Lines of the log after which the states are saved and the log begins anew.
    waiting
        Number of requests for predictions of whole series that may wait for the one that is computed.
    body_seconds
        Seconds within which the body of a request must arrive.

    Raises
    ------
    ValueError
        If a limit is not positive and finite.
    """

    body: int = 8 * 2**20
    rows: int = 100_000
    streams: int = 1_000_000
    idle_hours: float | None = None
    log_lines: int = 100_000
    waiting: int = 16
    body_seconds: float = 30.0

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            check_positive(field.name, getattr(self, field.name))


def check_positive(name: str, value: float | None) -> None:
    """Refuse a limit that is not positive and finite; None is no limit."""
    if value is not None and not (value > 0 and math.isfinite(value)):
        raise ArgumentError(Argument(name, value), ": expected a positive number.", argument=name)
