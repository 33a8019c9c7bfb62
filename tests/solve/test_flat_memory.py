"""Gradients that go backwards in time list no steps: the memory of a solve does not grow with their number."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import neuralcde as nc
from neuralcde.solve import ControlTerm, solve
from neuralcde.solve.events import events_of, split_jumps
from neuralcde.solve.grid_events import GridEvents
from neuralcde.solve.steps import fixed_grid, steps_per_piece
from solve_cases import mlp, on_engine, smooth_path, some_jump, some_path, states


class Largest(TorchDispatchMode):
    """Notes the size of the largest tensor that any operation returns."""

    def __init__(self):
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        found = function(*arguments, **(options or {}))
        for part in found if isinstance(found, tuple | list) else [found]:
            if isinstance(part, torch.Tensor):
                self.bytes = max(self.bytes, part.numel() * part.element_size())
        return found


PLAIN = [
    ("backsolve", "euler", "last", False, True),
    ("backsolve", "euler", "knots", True, True),
    ("backsolve", "euler", "times", False, True),
    ("backsolve", "euler", "last", False, False),
    (nc.Reversible(every=10**6), "reversible_heun", "last", False, True),
    (nc.Reversible(every=10**6), "reversible_heun", "knots", True, True),
]


@pytest.mark.parametrize(("gradient", "solver", "save", "error", "grad"), PLAIN)
def test_plain_solves(monkeypatch, gradient, solver, save, error, grad):
    """No tensor grows with the steps."""
    on_engine(monkeypatch, "torch")
    path = smooth_path(count=2, rows=3)
    jump, field = some_jump(path, 2, every_row=True), mlp(path, 2)
    chosen = path.interval[:, :1] + torch.tensor([[0.31, 0.52]], dtype=torch.float64) if save == "times" else save
    found = []
    for substeps in (20, 80):
        z0 = states(path, 2).requires_grad_(grad)
        options = {"solver": solver, "gradient": gradient, "save": chosen, "error": error}
        with torch.set_grad_enabled(grad), Largest() as largest:
            solution = solve(path, z0, flow=ControlTerm(field), jump=jump, steps=nc.AtKnots(substeps), **options)
            if grad:
                solution.last.sum().backward()
        found.append(largest.bytes)
        assert solution.stats.engine.startswith("torch")
    assert found[0] == found[1]


@pytest.mark.parametrize("error", [False, True])
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize(("gradient", "solver"), [("backsolve", "rk4"), (nc.Reversible(every=10**7), "ees25")])
def test_native_solves(monkeypatch, gradient, solver, grad, error):
    on_engine(monkeypatch, "native")
    path, found = smooth_path(count=2, rows=3), []
    field = mlp(path, 2)
    for substeps in (2, 200, 2_000):  # the first one prepares what all solves share
        z0 = states(path, 2).requires_grad_(grad)
        with torch.set_grad_enabled(grad), Largest() as largest:
            solution = nc.solve_cde(
                path, field, z0, solver=solver, gradient=gradient, steps=nc.AtKnots(substeps), error=error
            )
        if not solution.stats.engine.startswith("native"):
            pytest.skip("the native kernels were not built or are turned off")
        found.append(largest.bytes)
        assert (solution.stats.error is not None) == error
    assert found[1] == found[2]


@pytest.mark.parametrize("save", ["last", "knots"])
@pytest.mark.parametrize("scheme", ["natural_cubic", "rectilinear"])
def test_the_same_without_a_gradient(scheme, save, engine):
    """A solve with `no_grad` is walked too, and gives the states and the error estimate of listed steps."""
    path = some_path(7, scheme=scheme, rows=(1, 6))
    z0, jump = states(path, 3).requires_grad_(), some_jump(path, 3)
    options = {"flow": ControlTerm(mlp(path, 3)), "jump": jump, "steps": nc.AtKnots(3), "save": save, "error": True}
    with torch.no_grad():
        listed = solve(path, z0, gradient="checkpoint", **options)
    for grad in (False, True):
        with torch.set_grad_enabled(grad):
            walked = solve(path, z0, gradient="backsolve", **options)
        for name in ("last", "statuses", "reached"):
            torch.testing.assert_close(getattr(walked, name), getattr(listed, name), rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(walked.stats.error, listed.stats.error, rtol=1e-6, atol=1e-12)
        assert torch.equal(walked.stats.evaluations, listed.stats.evaluations)
        if save == "knots":
            torch.testing.assert_close(walked.at_knots, listed.at_knots, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("jumps", [False, True])
@pytest.mark.parametrize("steps", [nc.AtKnots(3), nc.FixedSteps(0.3)])
@pytest.mark.parametrize("scheme", ["natural_cubic", "rectilinear"])
def test_columns_on_demand_are_those_of_the_list(scheme, steps, jumps):
    path = some_path(7, scheme=scheme, rows=(1, 6))
    rows = some_jump(path, 2).rows if jumps else None
    listed, reached = events_of(path, fixed_grid(path, steps), rows)
    found = GridEvents(path, steps_per_piece(path, steps).long(), rows)
    assert torch.equal(found.reached, reached)
    at = found.numbers()
    for mine, theirs in ((found, listed), (split_jumps(found), split_jumps(listed))):
        assert torch.equal(mine.offsets, theirs.offsets)
        at = mine.numbers()
        for name in ("piece", "start", "length", "duration", "time", "jump_row"):
            torch.testing.assert_close(getattr(mine, name)[at], getattr(theirs, name)[at], rtol=1e-15, atol=1e-15)
    split = split_jumps(found)
    assert torch.equal(split.jump_events(), (split.jump_row[at] >= 0).nonzero()[:, 0])
    assert torch.equal(split.originals(split.moved(found.numbers()))[0], found.numbers())
