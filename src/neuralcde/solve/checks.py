"""Validation of the arguments of a solve."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..engine import transformed
from ..fields import LowRankField, MLPField
from ..paths import ControlPath
from ..series import ragged
from .gradients import Backsolve, Gradient, Reversible
from .solvers import Solver, Tableau
from .steps import Adaptive, Steps
from .terms import Jump, Term


def check_problem(path: ControlPath, z0: Tensor, flow: Term | None, jump: Jump | None) -> None:
    """Raise an error unless shapes, dtypes and devices match and all numbers are finite."""
    if not isinstance(path, ControlPath):
        raise TypeError(
            f"path must be a ControlPath, got {type(path).__name__}; build one with e.g. nc.linear(series)."
        )
    if torch.is_autocast_enabled(path.device.type):
        raise ValueError(
            "a solve in half precision loses its accuracy; exclude it from autocast: "
            "with torch.autocast(device, enabled=False)."
        )
    if flow is None and jump is None:
        raise ValueError("there is nothing to solve: give a flow, a jump, or both.")
    if not isinstance(z0, Tensor) or z0.ndim != 2 or len(z0) != len(path) or z0.shape[1] == 0:
        found = tuple(z0.shape) if isinstance(z0, Tensor) else type(z0).__name__
        raise ValueError(f"z0 must have shape (series, hidden) = ({len(path)}, hidden), got {found}.")
    if z0.dtype != path.dtype or z0.device != path.device:
        raise ValueError(
            f"z0 is {z0.dtype} on {z0.device}, but the path is {path.dtype} on {path.device}; convert one: "
            "path.to(z0.dtype)."
        )
    if flow is not None and isinstance(flow.field, MLPField | LowRankField):
        _check_field(flow.field, z0, path)
    if jump is not None:
        _check_jump(jump, z0, path)
    if not _all_finite(z0):
        wrong = ~z0.isfinite().all(1)
        first = int(wrong.nonzero()[0, 0])
        raise ValueError(f"z0 of series {ragged.series_name(path.series.ids, first)} is not finite.")
    if not _all_finite(path.coefficients):
        bad = int((~path.coefficients.isfinite()).flatten(1).any(1).nonzero()[0, 0])
        owner = int(torch.searchsorted(path.piece_offsets, bad, right=True)) - 1
        name = ragged.series_name(path.series.ids, owner)
        raise ValueError(f"the path of series {name} is not finite; check its values and times.")


def _all_finite(x: Tensor) -> bool:
    plain = x.device.type == "cpu" and not transformed()
    if not plain or x.dtype not in (torch.float32, torch.float64):
        return bool(x.isfinite().all())
    # numpy, because torch would start its threads, which then spin for milliseconds on the cores that the solve needs.
    # Minimum and maximum, because they allocate nothing and both propagate NaN.
    numbers = x.detach().numpy()
    return numbers.size == 0 or (math.isfinite(numbers.min()) and math.isfinite(numbers.max()))


def has_failures(failed: Tensor) -> bool:
    """Whether any of these events is not -1."""
    plain = failed.device.type == "cpu" and not transformed()
    return bool(failed.numpy().max(initial=-1) >= 0) if plain else bool((failed >= 0).any())


def check_choices(steps: object, save: object) -> None:
    """Raise an error for unknown values of `steps` and `save`."""
    if not isinstance(steps, Steps):
        raise TypeError(f"steps must be AtKnots(), FixedSteps(size) or Adaptive(), got {steps!r}.")
    if not isinstance(save, Tensor) and not (isinstance(save, str) and save in ("last", "knots", "dense")):
        raise ValueError(f'save={save!r} is not "last", "knots", "dense" or a tensor of times.')


def check_solver(solver: Solver, steps: Steps, method: Gradient) -> None:
    """Raise `ValueError` if the solver does not support these steps or this gradient."""
    reverses = isinstance(method, Reversible)
    if reverses and not solver.reversible:
        raise ValueError(
            'gradient="reversible" needs a solver whose steps can be undone, "ees25" or "reversible_heun", got '
            f'{solver.name!r}; use gradient="checkpoint" with it.'
        )
    if reverses and isinstance(steps, Adaptive):
        raise ValueError('gradient="reversible" needs fixed steps; use gradient="checkpoint" with Adaptive.')
    if isinstance(steps, Adaptive) and not (isinstance(solver, Tableau) and solver.b_error):
        raise ValueError(f"Adaptive needs a solver with an error estimate (dopri5, tsit5), got {solver.name!r}.")
    if isinstance(method, Backsolve) and not isinstance(solver, Tableau):
        raise ValueError(
            f'gradient="backsolve" needs a Runge-Kutta method, got {solver.name!r}; use gradient="reversible" or '
            '"checkpoint" with it.'
        )


def _check_field(field: MLPField | LowRankField, z0: Tensor, path: ControlPath) -> None:
    if (field.hidden, field.channels) != (z0.shape[1], path.channels):
        raise ValueError(
            f"the field was made for hidden={field.hidden}, channels={field.channels}, but z0 has {z0.shape[1]} "
            f"features and the path {path.channels} channels; make it {type(field).__name__}(channels=path.channels, "
            "hidden=z0.shape[1])."
        )
    weight = next(field.parameters())
    if weight.dtype != z0.dtype or weight.device != z0.device:
        raise ValueError(
            f"the field is {weight.dtype} on {weight.device}, but z0 and the path are {z0.dtype} on {z0.device}; "
            "convert it: field.to(z0)."
        )


def _check_jump(jump: Jump, z0: Tensor, path: ControlPath) -> None:
    rows = len(path.knots)
    if jump.inputs.ndim != 2 or len(jump.inputs) != rows or jump.inputs.dtype != z0.dtype:
        raise ValueError(
            f"the inputs of a jump must be {z0.dtype} of shape (rows, features) = ({rows}, features), got "
            f"{jump.inputs.dtype} of shape {tuple(jump.inputs.shape)}."
        )
    if jump.rows.shape != (rows,) or jump.rows.dtype != torch.bool:
        raise ValueError(
            f"the rows of a jump must be {rows} booleans, got {jump.rows.dtype} of {tuple(jump.rows.shape)}."
        )
