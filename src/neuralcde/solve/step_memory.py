"""Refusal of solves whose steps would not fit in memory, or would take hours."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import torch
from torch import Tensor

from ..paths import ControlPath
from ..series import ragged

MOST_STEPS = 1e9  # an hour of a small field on one core; more are a mistake in the size or in the times
BYTES_PER_STEP = 160  # peak memory of the columns of `Events`, per step; measured: 113 to 137
LANES = 16  # the native engine stores states in tiles this many series wide, even for a single series
CONTROL_GROUPS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def check_step_memory(
    path: ControlPath, per_piece: Tensor, state_bytes: float, steps: object, *, listed: bool = True
) -> None:
    """Raise `ValueError` if the steps, with the states kept at them, need more than half of the available memory.

    Also if there are more than `MOST_STEPS`, whatever memory they need.

    Parameters
    ----------
    path
        The paths to solve along.
    per_piece
        Number of steps in each piece, float64.
    state_bytes
        Memory per series and step for the backward pass, in bytes; 0 without gradients.
    steps
        The `steps` argument of the solve, for the message.
    listed
        Whether there will be a list of the steps.
    """
    if len(per_piece) == 0:
        return
    owner = ragged.series_of_rows(path.piece_offsets)
    per_series = per_piece.new_zeros(len(path)).index_add(0, owner, per_piece)
    total, longest = float(per_series.sum()), float(per_series.max())
    needed = (BYTES_PER_STEP if listed else 0) * total + state_bytes * max(total, LANES * longest)
    allowed = memory_limit() / 2
    if needed <= allowed and total <= MOST_STEPS:
        return
    worst = int(per_series.argmax())
    gap = float(path.durations[path.piece_offsets[worst] : path.piece_offsets[worst + 1]].max())
    excess = f"A solve takes at most {MOST_STEPS:g} steps."
    if needed > allowed:
        excess = (
            f"They need about {needed / 2**30:.1f} GB of memory; half of the available memory is "
            f"{allowed / 2**30:.1f} GB."
        )
    raise ValueError(
        f"steps={steps!r} asks for {total:.2g} steps, {longest:.2g} of them in series "
        f"{ragged.series_name(path.series.ids, worst)}, whose longest gap is {gap:.3g} units of time. {excess} Check "
        "the times of that series, cut it at the gap, take longer steps, or use steps=AtKnots()."
    )


def memory_limit() -> int:
    """Bytes of memory that this process may use: the machine's memory, or less if the system sets a limit."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limits = [machine, resource.getrlimit(resource.RLIMIT_AS)[0]]  # -1: no limit
    for file in map(Path, CONTROL_GROUPS):
        try:
            limits.append(int(file.read_text()))
        except (OSError, ValueError):  # not there, or "max"
            continue
    return min(limit for limit in limits if limit > 0)


def kept_bytes(z0: Tensor, every: int) -> float:
    """Bytes per series and step of the states that the gradient keeps, one at every `every`-th step."""
    return z0.shape[1] * z0.element_size() / every if torch.is_grad_enabled() else 0.0
