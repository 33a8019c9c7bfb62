"""The memory that a list of steps takes, refused before it is taken."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import torch
from torch import Tensor

from ..paths import ControlPath
from ..series import ragged

BYTES_PER_STEP = 160  # of the columns that list the steps, at their peak; measured: 113 to 137
LANES = 16  # a single series keeps its states in a tile as wide as this many
CONTROL_GROUPS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def check_step_memory(path: ControlPath, per_piece: Tensor, state_bytes: float, steps: object) -> None:
    """Refuse steps whose list, and the states kept at them, would take more than half of the memory there is.

    Parameters
    ----------
    path
        Whose pieces are stepped along.
    per_piece
        Steps in each piece, float64.
    state_bytes
        Memory of what is kept of one series at one step for the way back; 0 where no gradient is wanted.
    steps
        What was asked for, for the message.
    """
    if len(per_piece) == 0:
        return
    owner = ragged.series_of_rows(path.piece_offsets)
    per_series = per_piece.new_zeros(len(path)).index_add(0, owner, per_piece)
    total, longest = float(per_series.sum()), float(per_series.max())
    needed = BYTES_PER_STEP * total + state_bytes * max(total, LANES * longest)
    allowed = memory_limit() / 2
    if needed <= allowed:
        return
    worst = int(per_series.argmax())
    gap = float(path.durations[path.piece_offsets[worst] : path.piece_offsets[worst + 1]].max())
    raise ValueError(
        f"steps={steps!r} asks for {total:.2g} steps, {longest:.2g} of them in series "
        f"{ragged.series_name(path.series.ids, worst)}, whose longest gap is {gap:.3g} units of time. They need about "
        f"{needed / 2**30:.1f} GB of memory; half of what there is are {allowed / 2**30:.1f} GB. Check the times of that "
        "series, cut it at the gap, take longer steps, or steps=AtKnots()."
    )


def memory_limit() -> int:
    """Bytes that this process may use: the machine's memory, or less where the system sets a limit."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limits = [machine, resource.getrlimit(resource.RLIMIT_AS)[0]]  # -1: no limit
    for file in map(Path, CONTROL_GROUPS):
        try:
            limits.append(int(file.read_text()))
        except (OSError, ValueError):  # not there, or "max"
            continue
    return min(limit for limit in limits if limit > 0)


def kept_bytes(z0: Tensor, every: int) -> float:
    """Memory of a state per step, where one of `every` is kept for the gradient."""
    return z0.shape[1] * z0.element_size() / every if torch.is_grad_enabled() else 0.0
