"""Peak memory of a function, as the kernel counts it (Linux)."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path


def peak_megabytes(run: Callable[[], object]) -> float:
    """Resident memory at its highest during the run, less what was resident before it."""
    ctypes.CDLL(None).malloc_trim(0)  # give back what was freed, so that it is not taken again unseen
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    before = _status("VmRSS")
    run()
    return (_status("VmHWM") - before) / 1024


def _status(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1])
    raise RuntimeError(f"/proc/self/status has no {field}")
