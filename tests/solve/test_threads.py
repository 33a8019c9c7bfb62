"""Loops of tiny torch operations do not use torch's thread pool: waking its threads takes longer than the work."""

import pytest
import torch

import neuralcde as nc
from neuralcde.solve import solvers
from solve_cases import some_path, states


class Watched(torch.nn.Module):
    """A field that notes the number of torch threads at each evaluation, and may fail at one of them."""

    def __init__(self, channels, hidden=3, fails_at=None):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(hidden, hidden * channels, dtype=torch.float64) / 10)
        self.shape, self.fails_at, self.seen = (hidden, channels), fails_at, []

    def forward(self, t, z):
        self.seen.append(torch.get_num_threads())
        if len(self.seen) == self.fails_at:
            raise ZeroDivisionError
        return torch.tanh(z @ self.weight).unflatten(-1, self.shape)


@pytest.fixture(autouse=True)
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


WAYS = [
    ("checkpoint", "rk4", nc.AtKnots()),
    ("backprop", "rk4", nc.AtKnots()),
    ("backsolve", "rk4", nc.AtKnots()),
    ("reversible", "ees25", nc.AtKnots()),
    ("checkpoint", "dopri5", nc.Adaptive()),
    ("backsolve", "dopri5", nc.Adaptive()),
]


@pytest.mark.parametrize(("gradient", "solver", "steps"), WAYS)
def test_one_thread_in_the_loop_and_as_many_as_before_after_it(gradient, solver, steps):
    path = some_path(0, count=4, rows=(3, 6))
    field, z0 = Watched(path.channels), states(path, 3).requires_grad_()
    solution = nc.solve_cde(path, field, z0, solver=solver, steps=steps, gradient=gradient)
    assert solution.stats.engine.startswith("torch")
    assert torch.get_num_threads() == 2
    forward = len(field.seen)
    solution.last.sum().backward()
    assert torch.get_num_threads() == 2
    assert (len(field.seen) > forward) == (gradient != "backprop")  # the backward pass evaluates the field again
    assert set(field.seen) == {1}


@pytest.mark.parametrize(("gradient", "solver", "steps"), WAYS)
def test_as_many_as_before_after_an_exception(gradient, solver, steps):
    path = some_path(0, count=4, rows=(3, 6))
    z0 = states(path, 3).requires_grad_()
    field = Watched(path.channels, fails_at=4)
    with pytest.raises(ZeroDivisionError):
        nc.solve_cde(path, field, z0, solver=solver, steps=steps, gradient=gradient)
    assert torch.get_num_threads() == 2
    if gradient == "backprop":
        return
    field = Watched(path.channels)
    last = nc.solve_cde(path, field, z0, solver=solver, steps=steps, gradient=gradient).last.sum()
    field.fails_at = len(field.seen) + 3
    with pytest.raises(ZeroDivisionError):
        last.backward()
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize("solver", [name for name in solvers if name in ("rk4", "dopri5", "reversible_heun")])
def test_large_products_keep_their_threads(solver):
    """A batch of 64 series and a field with 1e5 parameters: threads pay there."""
    path = some_path(0, count=64, rows=(2, 3))
    field = Watched(path.channels, hidden=180)
    steps = nc.Adaptive() if solver == "dopri5" else nc.AtKnots()
    with torch.no_grad():
        nc.solve_cde(path, field, states(path, 180), solver=solver, steps=steps)
    assert set(field.seen) == {2}
