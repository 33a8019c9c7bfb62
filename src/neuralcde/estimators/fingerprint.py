"""A digest of a fitted estimator, which says whether two of them are the same model."""

from __future__ import annotations

import hashlib
import json

from .fitted_estimator import FittedEstimator


def fingerprint_of(estimator: FittedEstimator) -> str:
    """A digest of the weights and the preparation of an estimator."""
    digest = hashlib.sha256(json.dumps(estimator.preparation_.to_state(), sort_keys=True).encode())
    trees = estimator.trees_
    parts = [member.module.state_dict() for member in estimator.members_]
    for tensors in [*parts, {} if trees is None else trees.to_tensors()]:
        for name, value in tensors.items():
            digest.update(name.encode())
            digest.update(value.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
