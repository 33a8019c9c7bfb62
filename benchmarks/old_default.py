"""The estimators' defaults before issue 19, for comparisons with the present ones."""

from __future__ import annotations

from typing import Any

import neuralcde as nc

OLD_DEFAULT: dict[str, Any] = {
    "encoder": None,
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
}
# Options that this version of the package may not have; a comparison leaves them out then.
MAY_BE_ABSENT = {"scale", "members", "boosting"}


def present(options: dict[str, Any]) -> dict[str, Any]:
    """The options without those of `MAY_BE_ABSENT` that the classifier does not have."""
    absent = MAY_BE_ABSENT - set(nc.NeuralCDEClassifier().get_params())
    return {name: value for name, value in options.items() if name not in absent}
