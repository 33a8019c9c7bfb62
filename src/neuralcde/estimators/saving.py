"""Fitted estimators as folders: weights as safetensors, everything else as JSON; loading runs no code."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from safetensors.torch import save as as_safetensors
from sklearn.utils.validation import check_is_fitted

from .. import __version__
from ..tasks import task_from_config
from ..train.whole_files import finish_moves, staged, write_atomically
from .classifier import NeuralCDEClassifier
from .path_estimator import PathEstimator, check_device
from .preparation import Preparation
from .regressor import NeuralCDERegressor

FORMAT = 3
OF_ARRAYS = ("n_features_in_", "feature_names_in_")  # what scikit-learn notes of an array or a data frame
KINDS: dict[str, type[PathEstimator]] = {kind.__name__: kind for kind in (NeuralCDEClassifier, NeuralCDERegressor)}


def save(estimator: PathEstimator, folder: Path) -> None:
    """Write the files whole or not at all; `config.json` says which others belong to it."""
    check_is_fitted(estimator, "module_")
    if type(estimator) not in KINDS.values():
        raise TypeError(
            f"only {' and '.join(KINDS)} can be saved, not {type(estimator).__name__}: loading runs no code."
        )
    weights = {name: value.detach().cpu().contiguous() for name, value in estimator.module_.state_dict().items()}
    contents = {
        "model.safetensors": as_safetensors(weights),
        "preprocess.json": (json.dumps(estimator.preparation_.to_state(), indent=1) + "\n").encode(),
    }
    config = {
        "format": FORMAT,
        "neuralcde": __version__,
        "torch": torch.__version__,
        "estimator": type(estimator).__name__,
        "parameters": _plain(
            getattr(estimator, "_fitted_params", None) or estimator.get_params()
        ),  # not what was set since
        "task": estimator.task_.config(),
        "channels": estimator.module_.channels,
        "array": {name: np.asarray(vars(estimator)[name]).tolist() for name in OF_ARRAYS if name in vars(estimator)},
        "history": estimator.history_,
        "best_epoch": estimator.best_epoch_,
        "files": {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()},
    }
    contents["config.json"] = (json.dumps(config, indent=1) + "\n").encode()
    with staged(folder) as part:
        for name, content in contents.items():
            write_atomically(part / name, content)


def _plain(parameters: dict[str, Any]) -> dict[str, Any]:
    """Parameters as JSON can hold them: numpy's numbers as Python's, a dictionary as pairs; a generator cannot be kept."""
    found: dict[str, Any] = {}
    for name, value in parameters.items():
        value = value.item() if isinstance(value, np.generic) else value
        value = str(value) if isinstance(value, torch.device) else value
        if isinstance(value, dict):
            value = [
                [key.item() if isinstance(key, np.generic) else key, float(weight)] for key, weight in value.items()
            ]
        if name != "random_state" or isinstance(value, int):
            found[name] = value
    return found


def load(folder: str | Path, *, device: str = "cpu") -> PathEstimator:
    """The estimator that was saved in a folder.

    Raises
    ------
    FileNotFoundError
        Where there is no such folder, or a file of it is missing.
    ValueError
        Where it is damaged, was not written by us, or by a newer or a much older version; or where there is no such device.
    """
    check_device(device)
    folder = Path(folder)
    finish_moves(folder)  # whoever saved it may have been killed between two moves
    config, preparation = _read_json(folder, "config.json"), _read_json(folder, "preprocess.json")
    if not isinstance(config, dict) or "format" not in config or config.get("estimator") not in KINDS:
        raise ValueError(f"{folder} does not hold an estimator of neuralcde.")
    if not isinstance(config["format"], int) or config["format"] > FORMAT:
        raise ValueError(
            f"{folder} was written by neuralcde {config.get('neuralcde')}, in a newer format ({config['format']}, this version reads up "
            f"to {FORMAT}); update neuralcde."
        )
    if config["format"] < FORMAT:
        raise ValueError(
            f"{folder} was written by an older version, in a format that is no longer read; fit and save again."
        )
    weights = _read_weights(folder)
    for name, digest in config.get("files", {}).items():
        if hashlib.sha256((folder / name).read_bytes()).hexdigest() != digest:
            raise ValueError(f"{folder} is damaged: {name} is not the one that config.json was written with.")
    try:
        given: dict[str, Any] = config["parameters"]
        parameters: dict[str, Any] = {k: dict(v) if isinstance(v, list) else v for k, v in given.items()}
        estimator = KINDS[config["estimator"]](**parameters)
        estimator.device = device
        estimator.task_ = task_from_config(config["task"])
        estimator.preparation_ = Preparation.from_state(preparation)
        for name in (name for name in OF_ARRAYS if name in config["array"]):
            value = config["array"][name]
            setattr(estimator, name, np.array(value, dtype=object) if isinstance(value, list) else value)
        estimator.history_, estimator.best_epoch_ = config["history"], config["best_epoch"]
        estimator.n_iter_, estimator.interrupted_ = len(estimator.history_), False
        if isinstance(estimator, NeuralCDEClassifier):
            estimator.classes_ = np.asarray(getattr(estimator.task_, "classes", range(estimator.task_.outputs)))
        estimator.module_ = estimator._make_module(config["channels"])
        estimator.module_.load_state_dict(weights)
        estimator._fitted_params = estimator.get_params()
    except (KeyError, TypeError, AttributeError, RuntimeError) as reason:
        raise ValueError(f"{folder} is damaged: {reason}") from reason
    return estimator


def _read_json(folder: Path, name: str) -> Any:
    file = folder / name
    if not file.is_file():
        raise FileNotFoundError(f"{file} is not there; {folder} was not written by neuralcde, or not wholly.")
    try:
        return json.loads(file.read_text())
    except (json.JSONDecodeError, UnicodeDecodeError) as reason:
        raise ValueError(f"{file} is damaged: {reason}") from reason


def _read_weights(folder: Path) -> dict[str, torch.Tensor]:
    file = folder / "model.safetensors"
    if not file.is_file():
        raise FileNotFoundError(f"{file} is not there; {folder} was not written by neuralcde, or not wholly.")
    try:
        return load_file(file)
    except (SafetensorError, OSError, ValueError) as reason:
        raise ValueError(f"{file} is damaged: {reason}") from reason
