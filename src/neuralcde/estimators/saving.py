"""Fitted estimators as folders: weights as safetensors, everything else as JSON; loading runs no code."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from sklearn.utils.validation import check_is_fitted

from .. import __version__
from ..tasks import task_from_config
from .classifier import NeuralCDEClassifier
from .path_estimator import PathEstimator
from .preparation import Preparation
from .regressor import NeuralCDERegressor

FORMAT = 1
KINDS: dict[str, type[PathEstimator]] = {kind.__name__: kind for kind in (NeuralCDEClassifier, NeuralCDERegressor)}


def save(estimator: PathEstimator, folder: Path) -> None:
    """Write the folder whole or not at all: what was there before is replaced in one step."""
    check_is_fitted(estimator, "module_")
    folder.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        parameters = {
            name: value
            for name, value in estimator.get_params().items()
            if name != "random_state" or isinstance(value, int)
        }
        config = {
            "format": FORMAT,
            "neuralcde": __version__,
            "torch": torch.__version__,
            "estimator": type(estimator).__name__,
            "parameters": parameters,
            "task": estimator.task_.config(),
            "channels": estimator.module_.channels,
            "n_features_in": int(estimator.n_features_in_),
            "history": estimator.history_,
            "best_epoch": estimator.best_epoch_,
        }
        weights = {name: value.detach().cpu().contiguous() for name, value in estimator.module_.state_dict().items()}
        save_file(weights, part / "model.safetensors")
        (part / "config.json").write_text(json.dumps(config, indent=1) + "\n")
        (part / "preprocess.json").write_text(json.dumps(estimator.preparation_.to_state(), indent=1) + "\n")
        _replace(folder, part)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise


def _replace(folder: Path, part: Path) -> None:
    """The new files in place of the old ones; other files of the folder stay."""
    folder.mkdir(exist_ok=True)
    for name in ("preprocess.json", "model.safetensors", "config.json"):
        (part / name).replace(folder / name)
    part.rmdir()


def load(folder: str | Path, *, device: str = "cpu") -> PathEstimator:
    """The estimator that was saved in a folder.

    Raises
    ------
    FileNotFoundError
        Where there is no such folder, or a file of it is missing.
    ValueError
        Where it is damaged, was not written by us, or by a newer version.
    """
    folder = Path(folder)
    config, preparation = _read_json(folder, "config.json"), _read_json(folder, "preprocess.json")
    if not isinstance(config, dict) or "format" not in config or config.get("estimator") not in KINDS:
        raise ValueError(f"{folder} does not hold an estimator of neuralcde.")
    if config["format"] > FORMAT:
        raise ValueError(
            f"{folder} was written by neuralcde {config.get('neuralcde')}, in a newer format ({config['format']}, this version reads up "
            f"to {FORMAT}); update neuralcde."
        )
    try:
        estimator = KINDS[config["estimator"]](**config["parameters"])
        estimator.device = device
        estimator.task_ = task_from_config(config["task"])
        estimator.preparation_ = Preparation.from_state(preparation)
        estimator.n_features_in_ = config["n_features_in"]
        estimator.history_, estimator.best_epoch_ = config["history"], config["best_epoch"]
        estimator.n_iter_, estimator.interrupted_ = len(estimator.history_), False
        if isinstance(estimator, NeuralCDEClassifier):
            estimator.classes_ = np.asarray(getattr(estimator.task_, "classes", range(estimator.task_.outputs)))
        estimator.module_ = estimator._make_module(config["channels"])
        estimator.module_.load_state_dict(_read_weights(folder))
    except (KeyError, TypeError, AttributeError, RuntimeError) as reason:
        raise ValueError(f"{folder} is damaged: {reason}") from reason
    estimator.module_.to(device)
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
