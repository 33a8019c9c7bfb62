"""Which series failed, and when, does not depend on how gradients are computed."""

import dataclasses
import re

import pytest
import torch
from torch import nn

import neuralcde as nc
from neuralcde.fields import as_field
from neuralcde.solve import ControlTerm, SolveError, Status, solve
from solve_cases import mlp, some_jump, some_path, states

WAYS = [
    ("checkpoint", "rk4", nc.AtKnots()),
    ("backprop", "rk4", nc.AtKnots()),
    ("backsolve", "rk4", nc.AtKnots()),
    ("backsolve", "rk4", nc.AtKnots(substeps=3)),
    ("reversible", "ees25", nc.AtKnots()),
    ("reversible", "reversible_heun", nc.AtKnots(substeps=2)),
    ("checkpoint", "tsit5", nc.Adaptive()),
    ("backsolve", "tsit5", nc.Adaptive()),
]


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("which", ["first", "last"])
@pytest.mark.parametrize(("gradient", "solver", "steps"), WAYS)
def test_a_jump_that_is_not_finite(gradient, solver, steps, which, grad, engine):
    """A NaN in the inputs of one row: its series failed at that row's time, the others did not."""
    path = some_path(3, count=4, rows=(3, 6))
    z0, offsets = states(path, 2).requires_grad_(), path.series.offsets
    field, jump = mlp(path, 2), some_jump(path, 2, every_row=True)
    for bad in range(len(path)):
        row = int(offsets[bad] if which == "first" else offsets[bad + 1] - 1)
        inputs = jump.inputs.detach().clone()
        inputs[row] = torch.nan
        broken = dataclasses.replace(jump, inputs=inputs)
        options = {"flow": ControlTerm(field), "jump": broken, "solver": solver, "steps": steps, "gradient": gradient}
        with torch.set_grad_enabled(grad):
            solution = solve(path, z0, **options, throw=False)
            expected = path.interval[:, 1].clone()
            expected[bad] = path.series.times[row]
            assert solution.statuses.tolist() == [int(i == bad) for i in range(len(path))]
            torch.testing.assert_close(solution.reached, expected, rtol=0, atol=0)
            time = f"{float(path.series.times[row]):g}"
            with pytest.raises(SolveError, match=f"series 's{bad}' at t={re.escape(time)}: {Status.not_finite.value}"):
                solve(path, z0, **options)


class Scaled(nn.Module):
    """A field or cell that uses a tensor which is not its parameter."""

    def __init__(self, scale, channels=None):
        super().__init__()
        self.scale, self.channels = scale, channels

    def forward(self, *inputs):
        z = torch.tanh(inputs[0 if self.channels is None else 1] * self.scale)
        return z if self.channels is None else z[:, :, None].expand(-1, -1, self.channels)


@pytest.mark.parametrize("place", ["field", "cell"])
@pytest.mark.parametrize(
    ("gradient", "solver", "steps"), [way for way in WAYS if way[0] in ("backsolve", "reversible")]
)
def test_a_tensor_that_is_no_parameter_is_refused_in_the_solve(gradient, solver, steps, place, engine):
    """Even if nothing else requires gradients: then there is no backward pass in which to refuse it."""
    path = some_path(3, count=4, rows=(3, 6))
    scale = torch.tensor([2.0], dtype=torch.float64, requires_grad=True)
    own = {"field": scale if place == "field" else scale.detach(), "cell": scale if place == "cell" else scale.detach()}
    flow = ControlTerm(as_field(Scaled(own["field"], path.channels)))
    jump = dataclasses.replace(some_jump(path, 2), cell=Scaled(own["cell"]))
    z0 = states(path, 2)
    with pytest.raises(ValueError, match=r"another tensor of shape \(1,\) that requires gradients"):
        solve(path, z0, flow=flow, jump=jump, solver=solver, steps=steps, gradient=gradient)
    with torch.no_grad():  # nothing is dropped
        solve(path, z0, flow=flow, jump=jump, solver=solver, steps=steps, gradient=gradient)
    scale.requires_grad_(False)
    solve(path, z0, flow=flow, jump=jump, solver=solver, steps=steps, gradient=gradient)
