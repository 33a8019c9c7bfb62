"""The native step of streams: plans for the compiled module, and calls into it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from .._native import kernels
from .._native.transforms import transformed
from .native import available
from .program import Program

SCHEMES = ("linear", "rectilinear", "hermite")
POOLS = ("last", "mean", "both")
CELLS = ("none", "values", "shifted", "decaying", "paper_decaying")
COUNTS = (None, "shared", "per_channel")


@dataclass(frozen=True, eq=False)
class StreamProgram:
    """A plan of the native step as the compiled module takes it, and the tensors that it was made of.

    Parameters
    ----------
    plan
        The plan: dictionaries of numbers, programs and lists, as `native/stream_bindings.cpp` reads them.
    sources
        Parameters and buffers that were copied into the plan, with the dictionaries that hold them.
    dtype
        The dtype of the states.
    """

    plan: dict[str, Any]
    sources: Sequence[tuple[dict[str, Any], str]]
    dtype: torch.dtype
    made: Any = field(init=False)
    versions: list[tuple[Any, int]] = field(init=False)

    def __post_init__(self) -> None:
        assert kernels is not None
        kind = kernels.Stream32 if self.dtype == torch.float32 else kernels.Stream64
        object.__setattr__(self, "made", kind(self.plan))
        object.__setattr__(self, "versions", [(held[name], held[name]._version) for held, name in self.sources])

    @property
    def current(self) -> bool:
        """Whether the weights are still those that the plan was made of."""
        return all(
            held[name] is tensor and tensor._version == version
            for (held, name), (tensor, version) in zip(self.sources, self.versions, strict=True)
        )

    def update(
        self,
        real: Float[Tensor, "streams numbers"],
        double: Float[Tensor, "streams doubles"],
        t: NDArray[np.float64],
        x: NDArray[np.float64],
    ) -> None:
        """Take the states to the next row, in place."""
        self.made.update(real.numpy(), double.numpy(), t, x, torch.get_num_threads())

    def read(
        self,
        real: Float[Tensor, "streams numbers"],
        double: Float[Tensor, "streams doubles"],
        models: int,
        outputs: int,
    ) -> Float[Tensor, "models streams outputs"]:
        """The outputs of every model."""
        found = torch.empty(models, len(real), outputs, dtype=real.dtype)
        self.made.read(real.numpy(), double.numpy(), found.numpy(), torch.get_num_threads())
        return found


def can_stream(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether the native step can run for states like these, here and now."""
    return available() and not transformed() and device.type == "cpu" and dtype in (torch.float32, torch.float64)


def described(program: Program | None) -> tuple[Any, ...] | None:
    """A program and its parameters, as the plan of a stream holds them."""
    if program is None:
        return None
    values = [parameter.detach().contiguous() for parameter in program.parameters]
    return program.ops, program.numbers, program.features, program.input, program.output, values


def numbers(values: Tensor) -> list[float]:
    """The entries of a tensor as a list, row by row."""
    found: list[float] = values.detach().double().flatten().tolist()
    return found
