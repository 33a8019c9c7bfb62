"""The parameters of an estimator, checked before anything else happens."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from sklearn.utils import check_random_state

from ..solve.solvers import as_solver
from ..train import TrainingSettings
from ..train.settings import check_choice, check_integer, check_number
from .parts import LARGEST, LARGEST_OPTION, check_parts

SETTINGS = (
    "max_epochs",
    "batch_size",
    "learning_rate",
    "readout_lr_scale",
    "weight_penalty",
    "weight_decay",
    "gradient_clip",
    "schedule",
    "patience",
    "ema_decay",
    "channel_dropout",
    "channel_jitter",
    "verbose",
)


def check_parameters(given: Mapping[str, Any]) -> TrainingSettings:
    """Refuse wrong parameters; those of the training are returned, with a batch size of 1 in place of "auto"."""
    check_parts(given)
    for name in ("hidden", "width", "depth", "substeps"):
        check_integer(name, given[name], low=1, high=LARGEST.get(name, LARGEST_OPTION))
    if not isinstance(given["intensity"], bool | np.bool_):
        check_choice("intensity", given["intensity"], ("auto",), "True, False")
    if not isinstance(given["per_row"], bool | np.bool_):
        raise ValueError(f"per_row must be True or False, got {reprlib.repr(given['per_row'])}.")
    check_choice("pool", given["pool"], ("last", "mean"))
    as_solver(given["solver"])
    check_number("validation_fraction", given["validation_fraction"], below=1.0)
    check_device(given["device"])
    _check_random_state(given["random_state"])
    options = {name: given[name] for name in SETTINGS}
    if isinstance(given["batch_size"], str):
        check_choice("batch_size", given["batch_size"], ("auto",), "an integer of at least 1")
        options["batch_size"] = 1
    return TrainingSettings(**options)


def check_device(device: Any) -> None:
    """Refuse a device that is not there."""
    if not isinstance(device, str | torch.device):
        raise ValueError(f"device={reprlib.repr(device)} is not the name of a device; use device='cpu'.")
    if str(device).startswith("cuda") and not torch.cuda.is_available():
        raise ValueError(f"device={device!r}, but torch finds no GPU here; use device='cpu'.")
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as reason:
        raise ValueError(
            f"device={device!r} cannot be used: {str(reason).splitlines()[0]}; use device='cpu'."
        ) from reason


def _check_random_state(given: Any) -> None:
    try:
        if isinstance(given, bool | np.bool_):
            raise ValueError("truth values are no seeds")
        check_random_state(given)
    except (TypeError, ValueError) as reason:
        raise ValueError(
            f"random_state={reprlib.repr(given)} is not None, an integer from 0 to 4294967295 or a numpy.random.RandomState."
        ) from reason
