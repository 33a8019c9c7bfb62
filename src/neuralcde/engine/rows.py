"""Programs and layers applied row by row, such that the result of a row is bitwise independent of the other rows.

The matrix products of BLAS may sum in a different order for a different number of rows. Then the prediction for a
series would depend on the batch that it is in.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from .._native import kernels
from .._native.transforms import transformed
from .lowering import lower_layers
from .native import available
from .program import Program, array_of


def apply_layers(layers: nn.Module, rows: Float[Tensor, "*batch inputs"]) -> Float[Tensor, "*batch outputs"]:
    """`layers(rows)`; each row is evaluated independently if gradients are off and the engine supports the layers."""
    flat = rows.reshape(-1, rows.shape[-1])
    program = "gradients are on" if torch.is_grad_enabled() else _layer_program(layers, flat)
    if isinstance(program, str):
        found: Tensor = layers(rows)
        return found
    return evaluate_rows(program, flat).reshape(*rows.shape[:-1], program.outputs)


def evaluate_rows(program: Program, rows: Float[Tensor, "rows features"]) -> Float[Tensor, "rows outputs"]:
    """Evaluate the program on every row [state, input], without gradients."""
    assert kernels is not None
    results = rows.new_empty(len(rows), program.outputs)
    kernels.evaluate_rows(program.native, program.values, array_of(rows), results.numpy(), torch.get_num_threads())
    return results


def _layer_program(layers: nn.Module, rows: Tensor) -> Program | str:
    if not available() or transformed() or rows.device.type != "cpu":
        return "no native kernels for these rows"
    program = lower_layers(layers, rows.shape[1])
    if isinstance(program, Program) and any(p.dtype != rows.dtype for p in program.parameters):
        return f"parameters are not {rows.dtype}"
    return program
