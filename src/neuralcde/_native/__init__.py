"""The compiled kernels, or None where there are none.

`kernels` is the compiled module. It is None if the module was not built, or if `NEURALCDE_ISA=none` turns it off; every
caller has an equivalent in plain torch to fall back on. The kernels are compiled once per instruction-set level. The
best level that the processor supports is selected at import; `NEURALCDE_ISA` selects another one.

Only series/, paths/ and engine/ import this folder.
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
