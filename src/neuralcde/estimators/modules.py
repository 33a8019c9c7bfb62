"""The module that parameters describe, for series as they were prepared and for a task."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import Any

import torch

from ..models import GRUD, GRUODE, ODERNN, GRUDeltaT, NeuralCDE, PathModel
from ..solve import AtKnots, FixedSteps
from ..tasks import Task
from .preparation import Preparation

SEEDING = threading.Lock()  # torch's generator is everybody's
if hasattr(os, "register_at_fork"):  # a child that was forked while a thread held it would wait forever
    os.register_at_fork(before=SEEDING.acquire, after_in_parent=SEEDING.release, after_in_child=SEEDING.release)


def seeded_module(parameters: Mapping[str, Any], preparation: Preparation, task: Task, seed: int) -> PathModel:
    """A module with weights of this seed, in float32; torch's generator is as it was, whatever other threads do."""
    with SEEDING:
        state = torch.random.get_rng_state()
        torch.manual_seed(seed)
        try:
            return new_module(parameters, preparation, task).to(torch.float32)
        finally:
            torch.random.set_rng_state(state)


def new_module(parameters: Mapping[str, Any], preparation: Preparation, task: Task) -> PathModel:
    """A module on torch's current device, with weights of its current generator."""
    model, substeps = parameters["model"], parameters["substeps"]
    channels, outputs = preparation.channels, task.outputs
    network: dict[str, Any] = {"width": parameters["width"], "depth": parameters["depth"]}
    shared: dict[str, Any] = {
        "hidden": parameters["hidden"],
        "static": preparation.static_features,
        "pool": parameters["pool"],
        "solver": parameters["solver"],
        "steps": AtKnots(substeps),
    }
    if model == "neural_cde":
        return NeuralCDE(channels, outputs, **network, **shared)
    if model == "gru_ode":  # explicit steps must be short against its decay
        shared["steps"] = FixedSteps(1.0 / substeps)
        return GRUODE(channels, outputs, **shared)
    shared["intensity"] = preparation.intensity
    if model == "ode_rnn":
        return ODERNN(channels, outputs, **network, **shared)
    return (GRUDeltaT if model == "gru_dt" else GRUD)(channels, outputs, **shared)
