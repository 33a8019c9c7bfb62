"""Ensembles of regression trees as plain arrays, which can be saved without pickle."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

CELLS = 1 << 21  # most pairs of case and tree that are evaluated at once
LARGEST = torch.finfo(torch.float64).max


@dataclass(frozen=True, eq=False)
class TreeEnsemble:
    r"""Sums of regression trees.

    Output j of a case x is $b_j + \sum_t v_t(x)$, the sum over the trees t of output j, with $v_t(x)$ the value of the
    leaf that x falls into. A node sends x to the left if its feature is at most the threshold.

    The nodes of all trees stand one after another. The children of a node come after it, in the same tree. A leaf is
    its own child on both sides.

    Parameters
    ----------
    baseline
        The numbers $b_j$.
    output
        The output that each tree belongs to.
    offsets
        The nodes of tree t are `offsets[t]` to `offsets[t + 1] - 1`; the first one is its root.
    feature, threshold
        Feature and threshold of each node.
    missing_left
        Whether a missing value (NaN) goes to the left.
    left, right
        The children of each node.
    value
        Value of each node; only those of leaves count.
    """

    baseline: Float[Tensor, " outputs"]
    output: Int[Tensor, " trees"]
    offsets: Int[Tensor, " bounds"]
    feature: Int[Tensor, " nodes"]
    threshold: Float[Tensor, " nodes"]
    missing_left: Bool[Tensor, " nodes"]
    left: Int[Tensor, " nodes"]
    right: Int[Tensor, " nodes"]
    value: Float[Tensor, " nodes"]

    @classmethod
    def of_boosting(cls, baseline: Float[Tensor, " outputs"], models: Sequence[tuple[Any, Sequence[int]]]) -> Self:
        """The trees of fitted `HistGradientBoosting` models of scikit-learn, without their baselines.

        Parameters
        ----------
        baseline
            The numbers $b_j$.
        models
            Each model, and the output of each of its trees per iteration.
        """
        trees, output = [], []
        for model, columns in models:
            for iteration in model._predictors:
                for tree, column in zip(iteration, columns, strict=True):
                    trees.append(tree.nodes)
                    output.append(column)
        sizes = np.array([len(nodes) for nodes in trees], dtype=np.int64)
        offsets = np.concatenate([[0], sizes.cumsum()]).astype(np.int64)

        def joined(name: str, dtype: Any) -> Any:
            return np.concatenate([nodes[name] for nodes in trees]).astype(dtype) if trees else np.zeros(0, dtype)

        leaf, here, root = joined("is_leaf", bool), np.arange(offsets[-1]), np.repeat(offsets[:-1], sizes)
        arrays = {
            "output": np.array(output, dtype=np.int64),
            "offsets": offsets,
            "feature": np.where(leaf, 0, joined("feature_idx", np.int64)),
            # A threshold of infinity separates the missing values from all others.
            "threshold": np.where(leaf, 0.0, joined("num_threshold", np.float64).clip(-LARGEST, LARGEST)),
            "missing_left": ~leaf & joined("missing_go_to_left", bool),
            "left": np.where(leaf, here, root + joined("left", np.int64)),
            "right": np.where(leaf, here, root + joined("right", np.int64)),
            "value": np.where(leaf, joined("value", np.float64), 0.0),
        }
        return cls(baseline.double(), **{name: torch.from_numpy(array) for name, array in arrays.items()})

    def __call__(self, X: Float[Tensor, "cases features"]) -> Float[Tensor, "cases outputs"]:
        """The outputs in float64. X may hold NaN."""
        found = self.baseline.repeat(len(X), 1)
        trees = len(self.output)
        if trees:
            for start in range(0, len(X), max(1, CELLS // trees)):
                part = slice(start, start + max(1, CELLS // trees))
                found[part].index_add_(1, self.output, self.value[self._leaves(X[part].double())])
        return found

    def _leaves(self, X: Float[Tensor, "cases features"]) -> Int[Tensor, "cases trees"]:
        """The leaf of each case in each tree. All pairs go down one level at a time."""
        node = self.offsets[:-1].expand(len(X), -1)
        while True:
            x = X.gather(1, self.feature[node])
            goes_left = torch.where(x.isnan(), self.missing_left[node], x <= self.threshold[node])
            below = torch.where(goes_left, self.left[node], self.right[node])
            if torch.equal(below, node):
                return node
            node = below

    def to_tensors(self) -> dict[str, Tensor]:
        """The arrays by name."""
        return {field.name: getattr(self, field.name).contiguous() for field in dataclasses.fields(self)}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor], *, features: int, outputs: int) -> Self:
        """The inverse of `to_tensors`; the tensors are not trusted.

        Parameters
        ----------
        tensors
            The arrays by name.
        features, outputs
            Number of features of a case, and of outputs.

        Raises
        ------
        ValueError
            If an array is missing or unknown, has another type or length, holds numbers that are not finite, or if the
            nodes are not trees on so many features.
        """
        _check_arrays(cls, tensors)
        found = dict(tensors)
        nodes, trees = len(found["feature"]), len(found["output"])
        lengths = {"baseline": outputs, "offsets": trees + 1} | dict.fromkeys(
            ("threshold", "missing_left", "left", "right", "value"), nodes
        )
        for name, length in lengths.items():
            if len(found[name]) != length:
                raise ValueError(f"trees.{name} has {len(found[name])} entries, expected {length}.")
        offsets = found["offsets"]
        if int(offsets[0]) != 0 or int(offsets[-1]) != nodes or bool((offsets.diff() < 1).any()):
            raise ValueError("trees.offsets do not split the nodes into trees.")
        for name, most in (("output", outputs), ("feature", features)):
            if bool(((found[name] < 0) | (found[name] >= most)).any()):
                raise ValueError(f"trees.{name} must be from 0 to {most - 1}.")
        here = torch.arange(nodes)
        end = offsets[1:][torch.searchsorted(offsets, here, right=True) - 1]
        left, right = found["left"], found["right"]
        leaf = (left == here) & (right == here)
        inner = (left > here) & (right > here) & (left < end) & (right < end)
        if not bool((leaf | inner).all()):
            raise ValueError("trees.left and trees.right are not later nodes of the same tree.")
        return cls(**found)


def _check_arrays(kind: type[TreeEnsemble], tensors: Mapping[str, Tensor]) -> None:
    """Refuse arrays with other names, types or numbers of dimensions, and numbers that are not finite."""
    names = {field.name for field in dataclasses.fields(kind)}
    if set(tensors) != names:
        raise ValueError(f"the arrays of the trees are {sorted(tensors)[:12]}, expected {sorted(names)}.")
    types = {"baseline": torch.float64, "threshold": torch.float64, "value": torch.float64, "missing_left": torch.bool}
    for name, tensor in tensors.items():
        wanted = types.get(name, torch.int64)
        if tensor.ndim != 1 or tensor.dtype != wanted:
            raise ValueError(f"trees.{name} is not a list of {wanted} numbers.")
        if wanted == torch.float64 and not bool(tensor.isfinite().all()):
            raise ValueError(f"trees.{name} is not made of finite numbers.")
