"""The continuous adjoint: approximate gradients that converge as the steps get smaller."""

import math

import pytest
import torch
from torch import nn

import neuralcde as nc
from neuralcde.solve import ControlTerm, SolveError, backsolve, solvers
from solve_cases import (
    TABLEAUX,
    Case,
    largest_difference,
    mlp,
    on_engine,
    smooth_path,
    some_flow,
    some_jump,
    some_path,
    states,
)


def difference(case, **options):
    """Largest difference between the gradients of backsolve and the exact gradients of the same discretisation."""
    _, exact_states, exact = case.gradients(gradient="checkpoint", save="knots", **options)
    _, found_states, found = case.gradients(gradient="backsolve", save="knots", **options)
    torch.testing.assert_close(found_states, exact_states, rtol=1e-12, atol=1e-12)
    return largest_difference(found, exact)


def smooth_case(jumps, flow="cde"):
    path = smooth_path(rows=4)
    return Case(path, states(path, 3), some_flow(flow, path, 3), some_jump(path, 3) if jumps else None)


@pytest.mark.parametrize("jumps", [False, True])
@pytest.mark.parametrize("solver", TABLEAUX)
def test_converges_at_the_order_of_the_solver(solver, jumps, engine):
    case = smooth_case(jumps)
    order = solvers[solver].order
    substeps = {1: 8, 2: 4, 4: 2, 5: 2}[order]
    coarse, fine = (difference(case, solver=solver, steps=nc.AtKnots(substeps=k)) for k in (substeps, 2 * substeps))
    assert fine < 0.5
    assert math.log2(coarse / fine) > order - 0.4


@pytest.mark.parametrize("flow", ["driven", "autonomous"])
@pytest.mark.parametrize("jumps", [False, True])
def test_flows_in_time(flow, jumps, engine):
    case = smooth_case(jumps, flow)
    assert difference(case, solver="tsit5", steps=nc.AtKnots(substeps=8)) < 1e-7


@pytest.mark.parametrize("scheme", ["linear", "rectilinear", "hermite-forward"])
def test_ragged_batches_with_missing_values(scheme, engine):
    """Series of different lengths join the reverse sweep at their own last event."""
    path = some_path(71, scheme=scheme, rows=(1, 6))
    case = Case(path, states(path, 3), ControlTerm(mlp(path, 3)), some_jump(path, 3))
    assert difference(case, solver="tsit5", steps=nc.AtKnots(substeps=8)) < 1e-6


def test_jumps_alone_are_exact(engine):
    path = some_path(72)
    case = Case(path, states(path, 3), None, some_jump(path, 3))
    assert difference(case) < 1e-12


@pytest.mark.parametrize("save", ["times", "dense"])
def test_states_between_knots(save, engine):
    case = smooth_case(True)
    if save == "times":
        low, high = case.path.interval.detach().unbind(1)
        save = low[:, None] + (high - low)[:, None] * torch.tensor([0.5, 0.1, 1.0]).double()
    options = {"solver": "tsit5", "steps": nc.AtKnots(substeps=4), "save": save}
    _, _, exact = case.gradients(gradient="checkpoint", **options)
    _, _, found = case.gradients(gradient="backsolve", **options)
    assert largest_difference(found, exact) < 1e-7


@pytest.mark.parametrize("solver", ["dopri5", "tsit5"])
@pytest.mark.parametrize("jumps", [False, True])
def test_adaptive_steps_back(solver, jumps):
    """The backward solve chooses its own steps; smaller tolerances give more accurate gradients."""
    case = smooth_case(jumps)
    _, _, exact = case.gradients(gradient="checkpoint", solver="tsit5", steps=nc.AtKnots(substeps=20), save="knots")
    off = []
    for tolerance in (1e-4, 1e-7, 1e-10):
        steps = nc.Adaptive(tolerance, tolerance)
        _, _, found = case.gradients(gradient="backsolve", solver=solver, steps=steps, save="knots")
        off.append(largest_difference(found, exact))
    assert off[0] < 1e-2
    assert off[1] < 1e-5
    assert off[2] < 1e-8


class Counting(nc.VectorField):
    """An MLP field that counts its evaluations."""

    def __init__(self, inner, extra):
        super().__init__()
        self.inner, self.calls = inner, 0
        self.extra = nn.Parameter(torch.zeros(extra, dtype=torch.float64))

    def forward(self, t, z):
        self.calls += 1
        return self.inner(t, z) + 1e6 * self.extra.sum()


def test_the_integrals_over_the_parameters_do_not_make_steps_shorter():
    """The seminorm: a huge gradient with respect to a parameter does not add steps."""
    path = smooth_path()
    calls = []
    for extra in (0, 50):
        field = Counting(mlp(path, 3), extra)
        z0 = states(path, 3).requires_grad_()
        last = nc.solve_cde(path, field, z0, solver="tsit5", steps=nc.Adaptive(1e-6), gradient="backsolve").last
        before = field.calls
        last.sum().backward()
        calls.append(field.calls - before)
        if extra:
            assert field.extra.grad.abs().max() > 1e5
    assert calls[0] == calls[1] > 0


def test_memory_does_not_grow_with_steps():
    """With ten times the steps, no more states are saved for the backward pass."""
    path = smooth_path()
    field, z0 = mlp(path, 3), states(path, 3).requires_grad_()
    kept = {}
    for gradient in ("backsolve", "backprop"):
        for substeps in (2, 20):
            sizes = []
            with torch.autograd.graph.saved_tensors_hooks(
                lambda x, sizes=sizes: sizes.append(x.numel()) or x, lambda x: x
            ):
                nc.solve_cde(path, field, z0, steps=nc.AtKnots(substeps=substeps), gradient=gradient)
            kept[gradient, substeps] = sum(sizes)
    assert kept["backsolve", 20] == kept["backsolve", 2]
    assert kept["backprop", 20] > 5 * kept["backprop", 2]


def test_saved_tensor_hooks_that_return_copies():
    """torch.autograd.graph.save_on_cpu and similar hooks return other tensors; gradients still reach the parameters."""
    case = smooth_case(False)
    _, _, expected = case.gradients(gradient="backsolve")
    with torch.autograd.graph.saved_tensors_hooks(lambda x: x.clone(), lambda x: x):
        _, _, found = case.gradients(gradient="backsolve")
    assert expected["flow layers.0.weight"].any()
    assert largest_difference(found, expected) < 1e-12


def test_a_plain_function_is_refused():
    path = smooth_path()
    inner = mlp(path, 3)
    with pytest.raises(
        ValueError, match='gradient="backsolve" needs the parameters of the field, but the field is a plain'
    ):
        nc.solve_cde(path, lambda t, z: inner(t, z), states(path, 3), gradient="backsolve")
    with torch.no_grad():
        nc.solve_cde(path, lambda t, z: inner(t, z), states(path, 3), gradient="backsolve")


def test_a_module_may_have_an_attribute_called_function():
    class Named(nc.VectorField):
        def __init__(self, inner):
            super().__init__()
            self.inner, self.function = inner, torch.tanh

        def forward(self, t, z):
            return self.function(self.inner(t, z))

    path = smooth_path()
    case = Case(path, states(path, 3), ControlTerm(Named(mlp(path, 3))))
    assert difference(case, solver="tsit5", steps=nc.AtKnots(substeps=6)) < 1e-8


def test_a_backward_solve_with_too_many_steps_raises(monkeypatch):
    """This happens if a field contracts so fast forward in time that the backward solve explodes."""
    on_engine(monkeypatch, "torch")
    step = backsolve.reverse_step

    def never_good(*arguments, adding):
        new_z, new_a, error = step(*arguments, adding=adding)
        return new_z, new_a, error + 1e9

    path = smooth_path()
    case = Case(path, states(path, 3), ControlTerm(mlp(path, 3)))
    steps = nc.Adaptive(1e-3, max_steps=20)
    last = case.solve(solver="tsit5", steps=steps, gradient="backsolve").last
    monkeypatch.setattr(backsolve, "reverse_step", never_good)
    with pytest.raises(SolveError, match=r"3 of 3 series need more than 20 backward steps .* use gradient=.checkpoint"):
        last.sum().backward()


def test_a_stiff_field_takes_small_backward_steps():
    """dz = -40 (z - 1) dX: the backward solve rejects the forward steps and chooses smaller ones."""

    class Stiff(nc.VectorField):
        def __init__(self):
            super().__init__()
            self.rate = nn.Parameter(torch.tensor(40.0, dtype=torch.float64))

        def forward(self, t, z):
            return -self.rate * (z - 1)[..., None]

    path = nc.linear(nc.IrregularSeries.from_list([([0.0, 1.0], [[0.0], [0.1]])], dtype=torch.float64))
    field, z0 = Stiff(), torch.zeros((1, 1), dtype=torch.float64, requires_grad=True)
    steps = nc.Adaptive(1e-8, 1e-8)
    nc.solve_cde(path, field, z0, solver="tsit5", steps=steps, gradient="backsolve").last.sum().backward()
    assert z0.grad.item() == pytest.approx(math.exp(-4), rel=1e-5)
    assert field.rate.grad.item() == pytest.approx(0.1 * math.exp(-4), rel=1e-5)
