"""The compiled kernels, or the knowledge that there are none.

`kernels` is the compiled module, or None where it was not built or `NEURALCDE_ISA=none` turns it off; whoever calls it
has a plain-torch twin to fall back on. Kernels exist once per instruction-set level; the best that the processor can
run is picked at import, and `NEURALCDE_ISA` forces another. A leaf: imported by paths/ and engine/ only.
"""

from __future__ import annotations

import os
from importlib import import_module
from types import ModuleType

__all__ = ["kernels", "level"]


def _load() -> ModuleType | None:
    wanted = os.environ.get("NEURALCDE_ISA", "")
    if wanted == "none":
        return None
    try:
        _kernels = import_module("._kernels", __name__)
    except ImportError:
        if wanted:
            raise ImportError(
                f"NEURALCDE_ISA={wanted!r}, but the native kernels of neuralcde were not built."
            ) from None
        return None
    if wanted and wanted not in _kernels.supported_levels():
        known = ", ".join([*_kernels.supported_levels(), "none"])
        raise ImportError(f"NEURALCDE_ISA={wanted!r} cannot be used on this machine; choose one of: {known}.")
    if wanted:
        _kernels.use_level(wanted)
    return _kernels


kernels: ModuleType | None = _load()


def level() -> str:
    """The instruction-set level in use, `"none"` without kernels."""
    return "none" if kernels is None else str(kernels.level())
