"""Where the steps lie: at the knots, at a fixed size, or where the error asks for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..contracts import check_sizes
from ..paths import ControlPath
from ..series import ragged
from .step_memory import check_step_memory


@dataclass(frozen=True)
class AtKnots:
    """From knot to knot: `substeps` equal steps in each piece of the path, the default.

    Every series has its own grid: n observations take n - 1 steps, however uneven the gaps.
    """

    substeps: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "substeps", count("substeps", self.substeps))


@dataclass(frozen=True)
class FixedSteps:
    """Steps no longer than `size`, in the path's own unit of time: ceil(gap / size) equal steps in each piece.

    With the smallest gap of the data as size this is the paper's setting. A step never crosses a knot.
    """

    size: float

    def __post_init__(self) -> None:
        if not self.size > 0:
            raise ValueError(f"size must be positive, got {self.size!r}.")


@dataclass(frozen=True)
class Adaptive:
    """Steps as long as the error allows, for every series by itself; needs a solver with an error estimate.

    A step is accepted when its error, divided by atol + rtol |z| and averaged over the state (root mean square), is at
    most one. Steps are clipped to the pieces of the path. The accepted steps are then taken as given: values and
    gradients are those of the fixed grid they form.

    Parameters
    ----------
    rtol, atol
        Relative and absolute tolerance.
    max_steps
        Accepted and rejected steps a series may take; one that needs more stops where it is and says so in its status.
    """

    rtol: float = 1e-4
    atol: float = 1e-6
    max_steps: int = 4096

    def __post_init__(self) -> None:
        if not (self.rtol >= 0 and self.atol >= 0 and self.rtol + self.atol > 0):
            raise ValueError(f"rtol and atol must be >= 0 and not both 0, got {self.rtol!r} and {self.atol!r}.")
        object.__setattr__(self, "max_steps", count("max_steps", self.max_steps))


Steps = AtKnots | FixedSteps | Adaptive


def count(name: str, value: int) -> int:
    """A number of at least one, Python's or numpy's, as Python's."""
    check_sizes(**{name: value})
    return int(value)


class Grid(NamedTuple):
    """Steps of all series: the piece each lies in and where; and after how many steps each row is reached."""

    offsets: Int[Tensor, "bounds"]
    piece: Int[Tensor, "steps"]
    start: Float[Tensor, "steps"]
    length: Float[Tensor, "steps"]

    def halved(self) -> Grid:
        """Every step as two of half the length."""
        half = self.length / 2
        start = torch.stack([self.start, self.start + half], dim=1).flatten()
        piece, length = (part[:, None].expand(-1, 2).flatten() for part in (self.piece, half))
        return Grid(self.offsets * 2, piece, start, length)


def fixed_grid(path: ControlPath, steps: AtKnots | FixedSteps, *, state_bytes: float = 0.0) -> Grid:
    """Equal steps in every piece; refused where they, and `state_bytes` kept at each, would not fit the memory."""
    durations = path.durations.detach()
    if isinstance(steps, AtKnots):
        counts = torch.full_like(durations, float(steps.substeps))
    else:
        counts = (durations / steps.size - 1e-9).ceil().clamp(min=1)  # 3 steps of 0.1 for a gap of 0.3, rounded or not
    check_step_memory(path, counts, state_bytes, steps)
    counts = counts.long()
    firsts = ragged.offsets_of(counts)
    piece = ragged.series_of_rows(firsts)
    within = torch.arange(len(piece), device=path.device) - firsts[piece]
    length = 1.0 / counts.double()[piece]
    return Grid(firsts[path.piece_offsets], piece, within * length, length)
