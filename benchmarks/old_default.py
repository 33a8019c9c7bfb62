"""The estimators' first defaults, for comparisons with the present ones: no encoder, no rescaling of outputs."""

from __future__ import annotations

from typing import Any

OLD_DEFAULT: dict[str, Any] = {
    "encoder": None,
    "depth": 3,
    "solver": "rk4",
    "channel_dropout": 0.0,
    "readout": "linear",
    "pool": "last",
    "scale": "standard",
    "schedule": "cosine",
    "max_epochs": 100,
    "patience": 30,
    "learning_rate": 3e-3,
    "ema_decay": 0.99,
    "monitor": "metric",
    "weight_decay": 0.0,
    "average_epochs": 1,
    "channel_jitter": 0.0,
    "rescale_outputs": False,
}


def old_batch_size(series: int) -> int:
    """The old default batch size for so many training series."""
    return min(max(series // 60, 8), 512)
