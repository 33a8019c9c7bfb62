"""Save and load fitted estimators: weights as safetensors, everything else as JSON. Loading runs no code."""

from __future__ import annotations

import copy
import hashlib
import json
import reprlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save as as_safetensors
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from .. import __version__
from ..models import PathModel
from ..system import staged, that_counts, write_durably
from ..tasks import Task
from .boosting import feature_count
from .calibration import Calibration
from .classifier import NeuralCDEClassifier
from .inputs import OF_ARRAYS
from .json_shapes import COUNT, DIGEST, TEXT, WHOLE, Each, Leaf, OrNull, check_shape
from .members import MEMBERS_FOR_MANY, Member
from .modules import new_module
from .parameters import check_device
from .parts import part_from_config, part_to_config
from .path_estimator import PathEstimator
from .preparation import Preparation
from .regressor import NeuralCDERegressor
from .trees import TreeEnsemble
from .untrusted_folder import (
    LARGEST_JSON,
    LARGEST_TENSORS,
    damage_named,
    parse_json,
    parse_tensors,
    read_file,
)

FORMAT = 8
KINDS: dict[str, type[PathEstimator]] = {kind.__name__: kind for kind in (NeuralCDEClassifier, NeuralCDERegressor)}
FILES = {"config.json": LARGEST_JSON, "preprocess.json": LARGEST_JSON, "model.safetensors": LARGEST_TENSORS}
TREES = "trees."  # start of the names of the trees' arrays; those of the members start with their numbers
PERHAPS_NAN = Leaf("a number", lambda value: isinstance(value, int | float) and not isinstance(value, bool))
CONFIG = {
    "parameters": {},
    "task": {},
    "channels": WHOLE,
    "array": {},
    "calibration": OrNull({}),
    "members": [{"history": [Each(PERHAPS_NAN)], "best_epoch": WHOLE, "averaged_epochs": [COUNT]}],
    "files": {"preprocess.json": DIGEST, "model.safetensors": DIGEST},
}


def save(estimator: PathEstimator, folder: Path) -> None:
    """Write the files of a fitted estimator into a folder, atomically: all of them or none."""
    with staged(folder) as part:
        write_files(estimator, part)


def write_files(estimator: PathEstimator, folder: Path) -> None:
    """Write the files of a fitted estimator one after the other, for folders that the caller stages.

    `config.json` holds the digests of the others, so that `load` notices files of different models.
    """
    check_is_fitted(estimator, "members_")
    if type(estimator) not in KINDS.values():
        raise TypeError(
            f"only {' and '.join(KINDS)} can be saved, not {type(estimator).__name__}: loading runs no code."
        )
    contents = {
        "model.safetensors": as_safetensors(_tensors(estimator)),
        "preprocess.json": (json.dumps(estimator.preparation_.to_state(), indent=1) + "\n").encode(),
    }
    config = {
        "format": FORMAT,
        "neuralcde": __version__,
        "torch": torch.__version__,
        "estimator": type(estimator).__name__,
        "parameters": _plain(estimator._fitted_params),  # as of fit, not as changed by set_params since
        "task": estimator.task_.to_config(),
        "channels": estimator.module_.channels,
        "array": {name: np.asarray(vars(estimator)[name]).tolist() for name in OF_ARRAYS if name in vars(estimator)},
        "members": [
            {name: getattr(member, name) for name in ("history", "best_epoch", "averaged_epochs")}
            for member in estimator.members_
        ],
        "calibration": None if estimator.calibration_ is None else estimator.calibration_.to_state(),
        "files": {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()},
    }
    contents["config.json"] = (json.dumps(config, indent=1) + "\n").encode()
    for name, content in contents.items():
        if len(content) > FILES[name]:
            raise ValueError(f"{name} would have {len(content):,} bytes, and load reads up to {FILES[name]:,}.")
    for name, content in contents.items():
        write_durably(folder / name, content)


def _tensors(estimator: PathEstimator) -> dict[str, Tensor]:
    """The weights of the members as `0.…`, `1.…`, and the arrays of the trees as `trees.…`."""
    found = {
        f"{number}.{name}": value.detach().cpu().contiguous()
        for number, member in enumerate(estimator.members_)
        for name, value in member.module.state_dict().items()
    }
    trees = {} if estimator.trees_ is None else estimator.trees_.to_tensors()
    return found | {f"{TREES}{name}": value for name, value in trees.items()}


def _plain(parameters: dict[str, Any]) -> dict[str, Any]:
    """Parameters for JSON: numpy scalars as Python numbers, class weights as pairs; random generators are dropped."""
    found: dict[str, Any] = {}
    for name, value in parameters.items():
        value = part_to_config(name, value.item() if isinstance(value, np.generic) else value)
        value = str(value) if isinstance(value, torch.device) else value
        if isinstance(value, dict) and name == "class_weight":
            value = [
                [key.item() if isinstance(key, np.generic) else key, float(weight)] for key, weight in value.items()
            ]
        if name != "random_state" or isinstance(value, int):
            found[name] = value
    return found


def load(folder: str | Path, *, device: str = "cpu") -> PathEstimator:
    """Load an estimator that was saved in a folder.

    The folder is not trusted: only its three files are read, no code is run, and memory use is bounded by the size
    of the files.

    Raises
    ------
    FileNotFoundError
        If the folder or one of its files does not exist.
    ValueError
        If the folder is damaged, was not written by neuralcde, or was written in another format version; or if there
        is no such device.
    """
    check_device(device)
    folder = Path(folder)
    contents = {name: read_file(folder, that_counts(folder, name), largest) for name, largest in FILES.items()}
    config = parse_json(folder / "config.json", contents["config.json"])
    _check_format(folder, config)
    for name, digest in config["files"].items():
        if hashlib.sha256(contents[name]).hexdigest() != digest:
            raise ValueError(f"{folder} is damaged: {name} is not the one that config.json was written with.")
    state = parse_json(folder / "preprocess.json", contents["preprocess.json"])
    tensors = parse_tensors(folder / "model.safetensors", contents["model.safetensors"])
    with damage_named(folder / "preprocess.json"):
        preparation = Preparation.from_state(state)
    with damage_named(folder / "config.json"):
        estimator = KINDS[config["estimator"]](**_parameters(config["parameters"]) | {"device": device})
        estimator.check_parameters()
        task = Task.from_config(config["task"])
        if task.goal != estimator.goal:
            raise ValueError(f"{config['estimator']} does not train the task {config['task']['name']!r}.")
        if config["channels"] != preparation.channels:
            raise ValueError(f"channels is {config['channels']}, but preprocess.json makes {preparation.channels}.")
        _check_members(
            config["members"], estimator.members if isinstance(estimator.members, int) else MEMBERS_FOR_MANY, task
        )
        for name, value in _array(config["array"]).items():
            setattr(estimator, name, value)
        calibration = _calibration(config["calibration"], task)
        with torch.device("meta"):  # no memory yet: the file may ask for any size
            module = new_module(vars(estimator), preparation, task)
        weights = {name: value for name, value in tensors.items() if not name.startswith(TREES)}
        arrays = {name.removeprefix(TREES): value for name, value in tensors.items() if name.startswith(TREES)}
        _check_sizes(module, len(config["members"]), weights)
        if bool(arrays) != estimator.boosting:
            raise ValueError(
                f"boosting is {estimator.boosting}, but model.safetensors holds {len(arrays)} arrays of it."
            )
    with damage_named(folder / "model.safetensors"):
        for name, value in weights.items():
            if value.dtype != torch.float32 or not bool(value.isfinite().all()):
                raise ValueError(f"{name} is not made of finite float32 numbers.")
        estimator.trees_ = None
        if arrays:
            features = feature_count(preparation)
            estimator.trees_ = TreeEnsemble.from_tensors(arrays, features=features, outputs=task.outputs)
    estimator.task_, estimator.preparation_, estimator.interrupted_ = task, preparation, False
    estimator.calibration_ = calibration
    estimator.members_ = [
        Member(_with_weights(module, weights, f"{number}.").to(device), **dict(member))
        for number, member in enumerate(config["members"])
    ]
    estimator._fitted_params = estimator.get_params(deep=False)
    return estimator


def _check_format(folder: Path, config: dict[str, Any]) -> None:
    """Refuse folders of other programs and of other versions."""
    kind, version = config.get("estimator"), config.get("format")
    if not isinstance(kind, str) or kind not in KINDS or version is None:
        raise ValueError(f"{folder} does not hold an estimator of neuralcde.")
    with damage_named(folder / "config.json"):
        check_shape(version, WHOLE, "format")
    if version > FORMAT:
        raise ValueError(
            f"{folder} was written by neuralcde {reprlib.repr(config.get('neuralcde'))}, in a newer format ({version}, "
            f"this version reads {FORMAT}); update neuralcde."
        )
    if version < FORMAT:
        raise ValueError(
            f"{folder} was written by an older version, in a format that is no longer read; fit and save again."
        )
    with damage_named(folder / "config.json"):
        check_shape(config, CONFIG)
        others = sorted(set(config["files"]) - set(FILES))
        if others:
            raise ValueError(f"files has {reprlib.repr(others)}, which are not files of an estimator.")


def _parameters(given: dict[str, Any]) -> dict[str, Any]:
    """Parameters as the estimator takes them; class weights become a dictionary again."""
    weights = given.get("class_weight")
    given = {name: part_from_config(name, value) for name, value in given.items()}
    return given | ({"class_weight": dict(weights)} if isinstance(weights, list) else {})


def _calibration(state: dict[str, Any] | None, task: Task) -> Calibration | None:
    """The calibration; None if there is none, e.g. because the training was interrupted."""
    if state is None:
        return None
    if task.goal != "classification":
        raise ValueError("calibration is for classification, but this task is not.")
    return Calibration.from_state(state, task)


def _check_members(members: list[dict[str, Any]], most: int, task: Task) -> None:
    """Check the histories of the members. After Ctrl-C there may be fewer members than asked for."""
    if not 1 <= len(members) <= most:
        raise ValueError(f"there are {len(members)} members, expected 1 to {most}.")
    for member in members:
        if set(member) != {"history", "best_epoch", "averaged_epochs"}:
            raise ValueError(f"a member has {reprlib.repr(sorted(member))}, expected its history and best epochs.")
        _check_history(member["history"], [member["best_epoch"], *member["averaged_epochs"]], task)


def _check_history(history: list[dict[str, Any]], best: list[int], task: Task) -> None:
    """Check that epochs are numbered from 1 and have their losses, and that the best ones are among them."""
    if not all(1 <= epoch <= len(history) for epoch in best):
        raise ValueError(f"the best epochs are {reprlib.repr(best)}, but history has the epochs 1 to {len(history)}.")
    needed = {"epoch", "loss", "rate", "seconds"}
    if "validation_loss" in history[0]:
        needed |= {"validation_loss", f"validation_{task.metric}"}
    for epoch, row in enumerate(history, start=1):
        if not needed <= set(row) or row["epoch"] != epoch:
            raise ValueError(
                f"history[{epoch - 1}] is {reprlib.repr(row)}, expected epoch {epoch} with {sorted(needed)}."
            )


def _array(given: dict[str, Any]) -> dict[str, Any]:
    """The attributes that scikit-learn sets for the array or data frame that the estimator was fitted on."""
    found = {name: given[name] for name in OF_ARRAYS if name in given}
    if "n_features_in_" in found:
        check_shape(found["n_features_in_"], WHOLE, "array.n_features_in_")
    if "feature_names_in_" in found:
        check_shape(found["feature_names_in_"], [TEXT], "array.feature_names_in_")
        if len(found["feature_names_in_"]) != found.get("n_features_in_"):
            raise ValueError("array: feature_names_in_ are not n_features_in_ names.")
        found["feature_names_in_"] = np.array(found["feature_names_in_"], dtype=object)
    return found


def _with_weights(module: PathModel, weights: dict[str, Tensor], prefix: str) -> PathModel:
    """A copy of the module with the weights whose names start with the prefix."""
    found = copy.deepcopy(module)
    own = {name.removeprefix(prefix): value for name, value in weights.items() if name.startswith(prefix)}
    found.load_state_dict(own, assign=True)
    return found


def _check_sizes(module: PathModel, members: int, weights: dict[str, Tensor]) -> None:
    """Refuse weights whose names or shapes are not those of so many copies of the module."""
    shapes = {name: tuple(value.shape) for name, value in module.state_dict().items()}
    wanted = {f"{number}.{name}": shape for number in range(members) for name, shape in shapes.items()}
    found = {name: tuple(value.shape) for name, value in weights.items()}
    for name in sorted(wanted.keys() | found.keys()):
        if wanted.get(name) != found.get(name):
            raise ValueError(
                f"it describes a model with {name} of shape {wanted.get(name, 'none')}, but model.safetensors holds it "
                f"with shape {found.get(name, 'none')}."
            )
