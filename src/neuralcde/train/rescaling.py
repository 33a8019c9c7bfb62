"""Scaling of outputs after training, so that probabilities are not too near 0 and 1."""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ..models import PathModel
from ..paths import PathDataset
from ..tasks import Task

FACTORS = tuple(np.geomspace(0.1, 2.0, 121).tolist())
DEVIATION = 0.7  # of the logarithm of the factor, before anything is known


@torch.no_grad()
def rescale_outputs(
    model: PathModel,
    task: Task,
    training: PathDataset,
    found: tuple[Float[Tensor, "cases outputs"], Float[Tensor, "cases ..."]],
    validation: PathDataset,
) -> float:
    """Scale the outputs of a model about those of a constant prediction, by the factor with the least validation loss.

    The factor is at least 0.1 and at most 2. A few validation cases move it little from 1: its logarithm has a normal
    prior distribution. It is 1 if the validation has no known target, or if the readout cannot be rescaled.

    Parameters
    ----------
    model, task, training, validation
        The trained model, and what it was trained and validated on.
    found
        Outputs and targets of the validation data.

    Returns
    -------
    float
        The factor.
    """
    outputs, targets = found
    if not task.weight(targets):
        return 1.0
    assert training.targets is not None
    prior = task.weighted_prior(training.targets, training.weights).to(outputs)

    def loss(factor: float) -> float:
        scaled = prior + factor * (outputs - prior)
        if validation.weights is None:
            mean = float(task.loss(scaled, targets))
        else:
            mean = float(task.weighted_loss(scaled, targets, validation.weights)[0])
        return mean + 0.5 * (math.log(factor) / DEVIATION) ** 2 / task.weight(targets)

    best = min(FACTORS, key=loss)
    best = best if loss(best) < loss(1.0) else 1.0
    return best if best == 1.0 or model.readout.rescale(best, prior) else 1.0
