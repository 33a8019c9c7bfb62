"""`neuralcde info`: versions, engine, instruction set and threads; and what a saved model is."""

from __future__ import annotations

import platform
from pathlib import Path

from .. import __version__
from .errors import report_errors


@report_errors
def info(model: Path | None = None, *, debug: bool = False) -> None:
    """Print version, engine, instruction set and threads.

    Parameters
    ----------
    model
        Folder of a saved model, which is then described, too.
    debug
        Show the traceback of an error.
    """
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
    for name, value in (rows | _of_model(model)).items():
        print(f"{name:16}{value}")


def _of_model(folder: Path | None) -> dict[str, str]:
    """What a saved model is; how much its members disagree on the test series, where that was recorded."""
    if folder is None:
        return {}
    from ..estimators import load
    from ..figures import number
    from ..report.run import recorded_spread

    estimator = load(folder)
    rows = {"model": f"{estimator.module_.title}, {estimator.task_.title.lower()}"}
    if estimator.ensemble_:
        spread = recorded_spread(folder)
        told = "" if spread is None else f"; mean spread of their outputs on the test series {number(spread)}"
        rows["ensemble"] = f"{estimator.ensemble_}{told}"
    return rows
