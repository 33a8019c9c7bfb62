"""`neuralcde info`: versions, engine, instruction set and threads."""

from __future__ import annotations

import platform

from .. import __version__


def info() -> None:
    """Print version, engine, instruction set and threads."""
    import torch  # here, so that --help does not wait for it

    from ..engine import engine_name
    from ..paths import native_level

    level = native_level()
    why = "no native kernels" if level == "none" else "NEURALCDE_ENGINE=torch"
    rows = {
        "neuralcde": __version__,
        "engine": "native kernels" if engine_name() != "torch" else f"plain torch ({why})",
        "instruction set": level,
        "threads": str(torch.get_num_threads()),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
    }
    for name, value in rows.items():
        print(f"{name:16}{value}")
