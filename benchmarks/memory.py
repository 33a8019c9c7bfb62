"""Peak memory of a function, as reported by the Linux kernel."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path


def peak_megabytes(run: Callable[[], object]) -> float:
    """Peak resident memory during the run, minus the resident memory before it."""
    ctypes.CDLL(None).malloc_trim(0)  # return freed memory to the system: reusing it would not show in the peak
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak
    before = _status("VmRSS")
    run()
    return (_status("VmHWM") - before) / 1024


def _status(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1])
    raise RuntimeError(f"/proc/self/status has no {field}")
