"""Step sizes: from knot to knot, of fixed size, or adaptive."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..contracts import check_sizes
from ..paths import ControlPath
from ..series import ragged
from .step_memory import check_step_memory

CONTROLLERS = {"i": 0.0, "pi": 0.4}  # exponent of the error of the step before, times the order of the solver


@dataclass(frozen=True)
class AtKnots:
    """Steps from knot to knot, the default: `substeps` equal steps in each piece of the path.

    Every series has its own grid: with `substeps=1`, n observations take n - 1 steps, however uneven the gaps.
    """

    substeps: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "substeps", count("substeps", self.substeps))


@dataclass(frozen=True)
class FixedSteps:
    """Steps no longer than `size`, in the unit of time of the path: ceil(gap / size) equal steps in each piece.

    A step never crosses a knot. The paper's setting is the smallest gap of the data as size.
    """

    size: float

    def __post_init__(self) -> None:
        if not self.size > 0:
            raise ValueError(f"size must be positive, got {self.size!r}.")


@dataclass(frozen=True)
class Adaptive:
    """Adaptive step sizes, chosen for each series by its own error; needs a solver with an error estimate.

    A step is accepted if the root mean square over the state of error / (atol + rtol |z|) is at most one. A step never
    crosses the end of a piece. The states and gradients are then those of a solve on the fixed grid of accepted steps.

    Parameters
    ----------
    rtol, atol
        Relative and absolute tolerance.
    max_steps
        Maximum number of accepted and rejected steps per series. A series that needs more stops where it is, with
        status `max_steps`.
    controller
        "i": the next step length depends on the error of this step. "pi": also on that of the step before (Gustafsson
        1991), which avoids rejections where the error grows steadily.
    """

    rtol: float = 1e-4
    atol: float = 1e-6
    max_steps: int = 4096
    controller: Literal["i", "pi"] = "i"

    def __post_init__(self) -> None:
        if not (self.rtol >= 0 and self.atol >= 0 and self.rtol + self.atol > 0):
            raise ValueError(f"rtol and atol must be >= 0 and not both 0, got {self.rtol!r} and {self.atol!r}.")
        if self.controller not in CONTROLLERS:
            raise ValueError(f"controller={self.controller!r} is not one of {list(CONTROLLERS)}.")
        object.__setattr__(self, "max_steps", count("max_steps", self.max_steps))

    @property
    def smoothing(self) -> float:
        """How much the error of the step before counts."""
        return CONTROLLERS[self.controller]


Steps = AtKnots | FixedSteps | Adaptive


def count(name: str, value: int) -> int:
    """Check that the value is an integer of at least 1, and convert it to a Python int."""
    check_sizes(**{name: value})
    return int(value)


class Grid(NamedTuple):
    """The steps of a batch of series, concatenated.

    Parameters
    ----------
    offsets
        Index of the first step of each series; the last entry is the total number of steps.
    piece
        The piece of the path that contains the step.
    start, length
        Start and length of the step in u, the variable of its piece.
    """

    offsets: Int[Tensor, "bounds"]
    piece: Int[Tensor, "steps"]
    start: Float[Tensor, "steps"]
    length: Float[Tensor, "steps"]

    def halved(self) -> Grid:
        """The grid with every step split into two of half the length."""
        half = self.length / 2
        start = torch.stack([self.start, self.start + half], dim=1).flatten()
        piece, length = (part[:, None].expand(-1, 2).flatten() for part in (self.piece, half))
        return Grid(self.offsets * 2, piece, start, length)


def steps_per_piece(path: ControlPath, steps: AtKnots | FixedSteps) -> Float[Tensor, "pieces"]:
    """Number of equal steps in every piece, in float64."""
    durations = path.durations.detach()
    if isinstance(steps, AtKnots):
        return torch.full_like(durations, float(steps.substeps))
    # The small term makes a gap of 0.3 take 3 steps of 0.1, and not 4 because of rounding.
    return (durations / steps.size - 1e-9).ceil().clamp(min=1)


def fixed_grid(path: ControlPath, steps: AtKnots | FixedSteps, *, state_bytes: float = 0.0) -> Grid:
    """Equal steps in every piece; `ValueError` if they, with `state_bytes` kept per step, do not fit in memory."""
    counts = steps_per_piece(path, steps)
    check_step_memory(path, counts, state_bytes, steps)
    counts = counts.long()
    firsts = ragged.offsets_of(counts)
    piece = ragged.series_of_rows(firsts)
    within = torch.arange(len(piece), device=path.device) - firsts[piece]
    length = 1.0 / counts.double()[piece]
    return Grid(firsts[path.piece_offsets], piece, within * length, length)
