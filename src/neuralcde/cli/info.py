"""`neuralcde info`: what is installed and what will run."""

from __future__ import annotations

import platform

from .. import __version__


def info() -> None:
    """Print version, engine, instruction set and threads."""
    import torch  # here, so that --help does not wait for it

    from ..paths import native_level

    level = native_level()
    rows = {
        "neuralcde": __version__,
        "engine": "plain torch (no native kernels)" if level == "none" else "native kernels",
        "instruction set": level,
        "threads": str(torch.get_num_threads()),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
    }
    for name, value in rows.items():
        print(f"{name:16}{value}")
