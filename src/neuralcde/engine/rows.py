"""Programs and layers applied row by row: what a row gives has the same bits, whatever the other rows are.

The matrix products of a BLAS may sum in another order for another number of rows. Predictions must not show that.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from .._native import kernels
from .._native.transforms import transformed
from .lowering import lower_layers
from .native import available
from .program import Program


def apply_layers(layers: nn.Module, rows: Float[Tensor, "*batch inputs"]) -> Float[Tensor, "*batch outputs"]:
    """`layers(rows)`. Where gradients are off and the engine knows the layers, no row's result depends on other rows."""
    flat = rows.reshape(-1, rows.shape[-1])
    program = "gradients are on" if torch.is_grad_enabled() else _layer_program(layers, flat)
    if isinstance(program, str):
        found: Tensor = layers(rows)
        return found
    return evaluate_rows(program, flat).reshape(*rows.shape[:-1], program.outputs)


def evaluate_rows(program: Program, rows: Float[Tensor, "rows features"]) -> Float[Tensor, "rows outputs"]:
    """The program's result for every row of state and input features; without gradients."""
    assert kernels is not None
    results = rows.new_empty(len(rows), program.outputs)
    values = [parameter.detach().contiguous() for parameter in program.parameters]
    kernels.evaluate_rows(program.native, values, rows.detach().contiguous(), results, torch.get_num_threads())
    return results


def _layer_program(layers: nn.Module, rows: Tensor) -> Program | str:
    if not available() or transformed() or rows.device.type != "cpu":
        return "no native kernels for these rows"
    program = lower_layers(layers, rows.shape[1])
    if isinstance(program, Program) and any(p.dtype != rows.dtype for p in program.parameters):
        return f"parameters are not {rows.dtype}"
    return program
