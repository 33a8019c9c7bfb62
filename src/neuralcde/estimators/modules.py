"""Build the torch module of an estimator from its parameters, its preparation and its task."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import Any

import torch

from ..contracts import Recipe
from ..models import PathModel, Readout, RowEncoder
from ..tasks import Task
from .preparation import Preparation

SERIES_FOR_SUMMARIES = 1500  # fewer training series overfit a readout of encoded summaries
SEEDING = threading.Lock()  # torch's random generator is shared by all threads
if hasattr(os, "register_at_fork"):  # a child forked while another thread holds the lock would deadlock
    os.register_at_fork(before=SEEDING.acquire, after_in_parent=SEEDING.release, after_in_child=SEEDING.release)


def seeded_module(parameters: Mapping[str, Any], preparation: Preparation, task: Task, seed: int) -> PathModel:
    """Build a float32 module with weights drawn from this seed, and restore the state of torch's generator."""
    with SEEDING:
        state = torch.random.get_rng_state()
        torch.manual_seed(seed)
        try:
            return new_module(parameters, preparation, task).to(torch.float32)
        finally:
            torch.random.set_rng_state(state)


def new_module(parameters: Mapping[str, Any], preparation: Preparation, task: Task) -> PathModel:
    """Build a module on torch's current device, with weights from torch's current random state."""
    recipe = Recipe.of(parameters["model"], PathModel.registry)
    made: PathModel = recipe.build(
        preparation.channels,
        task.outputs,
        **_of_the_field(parameters, preparation),
        **_inputs_and_outputs(parameters, preparation),
        steps=recipe.member.default_steps(parameters["substeps"]),
        static=preparation.static_features,
        intensity=preparation.counts,
    )
    return made


def _of_the_field(parameters: Mapping[str, Any], preparation: Preparation) -> dict[str, Any]:
    """Sizes of the state and the field, and the solver, with "auto" replaced by a choice.

    The path of an encoder is learnt, so that a small field and a cheap solver will do.
    """
    suited = {"depth": 2, "solver": "heun"} if preparation.encoded else {"depth": 3, "solver": "rk4"}
    found = {name: parameters[name] for name in ("hidden", "width", "depth", "field", "solver")}
    return found | {name: value for name, value in suited.items() if _automatic(found[name])}


def _automatic(value: Any) -> bool:
    return isinstance(value, str) and value == "auto"


def _inputs_and_outputs(parameters: Mapping[str, Any], preparation: Preparation) -> dict[str, Any]:
    """Encoder, path scheme, readout and pooling of the model, with "auto" replaced by a choice."""
    encoder, readout, pool = (parameters[name] for name in ("encoder", "readout", "pool"))
    encoded = preparation.encoded
    found = {"pool": pool}
    if encoded:
        chosen = "mlp" if _automatic(encoder) else encoder
        found["encoder"] = Recipe.of(chosen, RowEncoder.registry).with_default(intensity=preparation.intensity)
        found["scheme"] = preparation.scheme
    if _automatic(readout):
        readout = suited_readout(preparation)
    data = len(preparation.scaler.channel_names_in_)  # the path may have counts, too
    found["readout"] = Recipe.of(readout, Readout.registry).with_default(intensity=preparation.intensity, data=data)
    return found


def suited_readout(preparation: Preparation) -> str:
    """The readout in place of "auto"."""
    return "summary" if preparation.encoded and preparation.fitted_on >= SERIES_FOR_SUMMARIES else "linear"
