"""Where the real data are: the folder NEURALCDE_DATA, or ../shared/data beside the clone."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import torch

import neuralcde as nc


def folder() -> Path:
    """The data folder; it may not exist."""
    return Path(os.environ.get("NEURALCDE_DATA", Path(__file__).parents[2] / "shared" / "data"))


def sepsis() -> nc.IrregularSeries | None:
    """The hourly records of the PhysioNet 2019 challenge (40,336 stays, 34 channels), None where they are absent."""
    file = folder() / "sepsis2019.npz"
    if not file.exists():
        return None
    with np.load(file) as pack:
        return nc.IrregularSeries(
            times=torch.from_numpy(pack["iculos"].astype(np.float64)),
            values=torch.from_numpy(pack["values"]),
            offsets=torch.from_numpy(pack["offsets"].astype(np.int64)),
            static=torch.from_numpy(pack["static"].astype(np.float32)),
            ids=pack["patient_id"],
            channel_names=tuple(f"channel {i}" for i in range(pack["values"].shape[1])),
            static_names=tuple(f"static {i}" for i in range(pack["static"].shape[1])),
            roles=("data",) * pack["values"].shape[1],
        )
