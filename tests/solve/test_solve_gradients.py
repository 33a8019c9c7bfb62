"""Gradients of a solve by every method, with respect to everything that is differentiable."""

import dataclasses

import pytest
import torch
from torch import nn

import neuralcde as nc
from neuralcde._native import kernels
from neuralcde.engine import native
from neuralcde.solve import ControlTerm, TimeTerm, solve
from ragged_cases import random_series
from solve_cases import (
    Case,
    largest_difference,
    mlp,
    on_engine,
    some_flow,
    some_jump,
    some_path,
    states,
)

# name: the gradient, and the engine that it must run on
EXACT = {
    "backprop": ("backprop", "torch"),
    "checkpoint": ("checkpoint", "native"),
    "checkpoint every 3": (nc.Checkpoint(every=3), "native"),
    "checkpoint on torch": ("checkpoint", "torch"),
    "checkpoint every 3 on torch": (nc.Checkpoint(every=3), "torch"),
}
METHODS = {**EXACT, "backsolve": ("backsolve", "native")}


@pytest.fixture(params=EXACT)
def exact(request, monkeypatch):
    """Every exact gradient method, on its engine."""
    return chosen(monkeypatch, *EXACT[request.param])


@pytest.fixture(params=METHODS)
def gradient(request, monkeypatch):
    """Every gradient method, on its engine."""
    return chosen(monkeypatch, *METHODS[request.param])


def chosen(monkeypatch, gradient, engine):
    if engine == "native" and kernels is None:
        pytest.skip("the native kernels were not built or are turned off")
    on_engine(monkeypatch, engine)
    return gradient


def steps_for(gradient):
    """Steps for a gradient method: any for the exact ones, small ones for backsolve."""
    return nc.AtKnots(substeps=10 if gradient == "backsolve" else 2)


def small(flow="cde", jumps=True, scheme="hermite"):
    path = some_path(61, scheme=scheme, count=3, rows=(1, 4), channels=2)
    return Case(path, states(path, 2), some_flow(flow, path, 2), some_jump(path, 2, features=1) if jumps else None)


@pytest.mark.parametrize("flow", ["cde", "driven"])
def test_gradcheck(flow, exact):
    """Finite differences with respect to initial states, path, inputs of jumps and all parameters."""
    case = small(flow)
    asked = case.path.interval.detach().mean(1, keepdim=True)

    def function(*leaves):  # unused: gradcheck changes the leaves in place
        return case.outputs(gradient=exact, save=asked, solver="heun")[1]

    assert torch.autograd.gradcheck(function, tuple(case.leaves.values()), fast_mode=exact != "checkpoint")


@pytest.mark.parametrize("flow", ["none", "cde", "driven", "autonomous"])
@pytest.mark.parametrize("save", ["last", "knots", "dense"])
def test_checkpoint_equals_backprop(flow, save, engine):
    case = small(flow)
    _, expected, gradients = case.gradients(gradient="backprop", save=save)
    for every in (1, 2, 100):
        _, out, found = case.gradients(gradient=nc.Checkpoint(every=every), save=save)
        torch.testing.assert_close(out, expected, rtol=1e-12, atol=1e-12)
        assert largest_difference(found, gradients) < 1e-11


def slope_of(loss, x, where, step=1e-5):
    """The derivative of the loss in the direction `where`, by finite differences."""
    with torch.no_grad():
        return ((loss(x + step * where) - loss(x - step * where)) / (2 * step)).item()


def some_direction(x):
    return torch.linspace(-1, 2, x.numel(), dtype=torch.float64).sin().reshape(x.shape)


@pytest.mark.parametrize("build", [nc.natural_cubic, nc.hermite, nc.linear, nc.rectilinear])
def test_gradients_reach_the_data(build, gradient):
    """Gradients flow from z through the path to the values of the series, and are 0 for missing values."""
    series = random_series(62, count=2, rows=(4, 5), channels=2, missing=0.2)
    field, z0 = mlp(build(series), 3), states(series, 3)
    options = {"gradient": gradient, "solver": "tsit5", "steps": steps_for(gradient)}

    def loss(values):
        return nc.solve_cde(build(dataclasses.replace(series, values=values)), field, z0, **options).last.sin().sum()

    values = series.values.clone().requires_grad_()
    (found,) = torch.autograd.grad(loss(values), values)
    missing = series.values.isnan()
    assert missing.any()
    assert (found[missing] == 0).all()
    where = some_direction(values)
    assert (found * where).sum().item() == pytest.approx(slope_of(loss, series.values, where), abs=1e-6)


@pytest.mark.parametrize("build", [nc.natural_cubic, nc.hermite])
@pytest.mark.parametrize("kind", ["cde", "driven", "of time"])
def test_gradients_reach_the_times(build, kind, gradient):
    """Gradients flow through the coefficients, the durations of steps, and the argument t of f."""
    series = random_series(63, count=2, rows=(4, 5), channels=1, missing=0)
    flow = ControlTerm(OfTime()) if kind == "of time" else some_flow(kind, build(series), 3)
    z0 = states(series, 3)
    options = {"gradient": gradient, "solver": "tsit5", "steps": steps_for(gradient), "save": "knots"}

    def loss(times):
        return solve(build(dataclasses.replace(series, times=times)), z0, flow=flow, **options).at_knots.sin().sum()

    times = series.times.clone().requires_grad_()
    (found,) = torch.autograd.grad(loss(times), times)
    for where in (some_direction(times), some_direction(times).flip(0)):
        assert (found * where).sum().item() == pytest.approx(slope_of(loss, series.times, where), abs=1e-6)


class OfTime(nc.VectorField):
    def forward(self, t, z):
        return (torch.sin(t)[:, None] + 0.3 * z)[..., None]


@pytest.mark.parametrize("kind", ["cde", "driven"])
@pytest.mark.parametrize("save", ["times", "dense"])
def test_gradients_reach_the_times_from_states_between_knots(kind, save, gradient):
    """The requested time is fixed; the knots around it move."""
    series = random_series(64, count=2, rows=(4, 4), channels=2, missing=0)
    flow, z0 = some_flow(kind, nc.hermite(series), 3), states(series, 3)
    knots = series.times.reshape(2, 4)
    asked = torch.stack([knots[:, 0] + 0.3, knots[:, 3] - 0.1, knots[:, 1] + 0.2], 1)
    options = {"gradient": gradient, "solver": "tsit5", "steps": steps_for(gradient)}

    def loss(times):
        path = nc.hermite(dataclasses.replace(series, times=times))
        solution = solve(path, z0, flow=flow, save=asked if save == "times" else "dense", **options)
        return (solution.at_times if save == "times" else solution.evaluate(asked)).sin().sum()

    times = series.times.clone().requires_grad_()
    (found,) = torch.autograd.grad(loss(times), times)
    where = some_direction(times)
    assert (found * where).sum().item() == pytest.approx(slope_of(loss, series.times, where), abs=1e-6)


def test_requested_times_that_require_gradients_raise():
    case = small()
    asked = case.path.interval.detach().mean(1, keepdim=True).requires_grad_()
    with pytest.raises(ValueError, match=r"not differentiable in the times at which .* pass t.detach\(\)"):
        case.solve(save=asked)
    with pytest.raises(ValueError, match="not differentiable in the times"):
        case.solve(save="dense").evaluate(asked)


def test_the_gradient_to_the_initial_time():
    """At fixed X, dL/dt0 = -a(t0) f(z0) X'(t0+): the series starts later on the same line, z0 stays."""
    times, values = torch.tensor([0.0, 1.0, 1.7]).double(), torch.tensor([[0.0, 1.0], [2.0, 0.5], [1.0, 1.0]]).double()
    slope = (values[1] - values[0]) / (times[1] - times[0])
    series = nc.IrregularSeries.from_list([(times, values)], dtype=torch.float64)
    field, z0 = mlp(nc.linear(series), 3), states(series, 3).requires_grad_()

    def loss(start):
        moved_times, moved = times.clone(), values.clone()
        moved_times[0], moved[0] = start, values[0] + start * slope
        path = nc.linear(nc.IrregularSeries.from_list([(moved_times, moved)], dtype=torch.float64))
        return nc.solve_cde(path, field, z0, solver="tsit5", steps=nc.AtKnots(substeps=10)).last.sin().sum()

    (adjoint,) = torch.autograd.grad(loss(0.0), z0)
    said = -(adjoint * field.prod(torch.zeros(1), z0, slope[None])).sum().item()
    with torch.no_grad():
        difference = (loss(1e-4) - loss(-1e-4)).item() / 2e-4
    assert said == pytest.approx(difference, abs=1e-7)


def test_double_backward_with_backprop():
    case = small(jumps=False, scheme="linear")
    inputs = tuple(case.leaves.values())

    def function(*leaves):
        return case.outputs(gradient="backprop", solver="heun")[1]

    assert torch.autograd.gradgradcheck(function, inputs)


@pytest.mark.parametrize("method", ["checkpoint", "backsolve"])
@pytest.mark.parametrize("loss", [torch.sum, lambda x: x.sin().sum()])
def test_double_backward_without_backprop_raises(method, loss, monkeypatch):
    """Also if the incoming gradient is a constant: a gradient penalty must not silently be zero."""
    if kernels is None:
        pytest.skip("the native kernels were not built or are turned off")
    on_engine(monkeypatch, "native")
    case = small()
    out = loss(case.outputs(gradient=method)[1])
    leaves = [case.z0, case.leaves["flow layers.0.weight"]]
    first = torch.autograd.grad(out, leaves, create_graph=True)
    plain = torch.autograd.grad(loss(case.outputs(gradient=method)[1]), leaves)
    assert all(torch.equal(a, b) for a, b in zip(first, plain, strict=True))
    for gradient in first:
        with pytest.raises(RuntimeError, match='cannot be differentiated twice; use gradient="backprop"'):
            (out + gradient.square().sum()).backward(retain_graph=True)


def test_parameter_hooks_run_and_can_change_gradients(gradient):
    case = small()
    weight = case.leaves["flow layers.0.weight"]
    case.outputs(gradient=gradient)[1].sum().backward()
    plain, weight.grad, seen = weight.grad, None, []
    handles = [  # called once per backward pass, with the whole gradient
        weight.register_hook(lambda g: seen.append("hook") or 2 * g),
        weight.register_post_accumulate_grad_hook(lambda p: seen.append("after")),
    ]
    case.outputs(gradient=gradient)[1].sum().backward()
    for handle in handles:
        handle.remove()
    assert seen == ["hook", "after"]
    torch.testing.assert_close(weight.grad, 2 * plain, rtol=1e-12, atol=1e-12)


def test_two_uses_of_a_field_in_one_graph_add_up(gradient):
    """One solve starts where the other ended, with the same weights."""
    case = small()
    once, again = small(), small(scheme="linear")
    field = case.flow.field

    def twice(flow_one, flow_two):
        middle = solve(once.path, case.z0, flow=ControlTerm(flow_one), gradient=gradient).last
        return solve(again.path, middle, flow=ControlTerm(flow_two), gradient=gradient).last.sin().sum()

    shared = torch.autograd.grad(twice(field, field), list(field.parameters()))
    other = mlp(case.path, 2, seed=4)  # a second field with equal weights
    assert torch.equal(other.layers[0].weight, field.layers[0].weight)
    apart = torch.autograd.grad(twice(field, other), [*field.parameters(), *other.parameters()])
    for whole, first, second in zip(shared, apart[: len(shared)], apart[len(shared) :], strict=True):
        torch.testing.assert_close(whole, first + second, rtol=1e-11, atol=1e-11)


def test_a_module_shared_by_flow_and_jump(gradient):
    """Its gradient is the sum of both contributions, each counted once."""
    path = some_path(65, scheme="linear", count=3, rows=(2, 4), channels=2)
    shared = nn.Linear(2, 2).double()

    class Moves(nn.Module):
        def __init__(self):
            super().__init__()
            self.shared = shared

        def forward(self, *inputs):
            z, x = inputs[-2:]
            return torch.tanh(self.shared(z) + x)

    flow, jump = TimeTerm(Moves()), some_jump(path, 2, features=2)
    jump = dataclasses.replace(jump, cell=Moves())
    case = Case(path, states(path, 2), flow, jump)
    options = {"solver": "tsit5", "steps": steps_for(gradient)}
    loss = case.outputs(gradient=gradient, **options)[1].sin().sum()
    (found,) = torch.autograd.grad(loss, shared.weight)
    with torch.no_grad():
        kept, step = shared.weight.clone(), torch.zeros(2, 2).double()
        step[0, 1] = 1e-5
        ends = []
        for sign in (1, -1):
            shared.weight.copy_(kept + sign * step)
            ends.append(case.outputs(**options)[1].sin().sum().item())
        shared.weight.copy_(kept)
    assert found[0, 1].item() == pytest.approx((ends[0] - ends[1]) / 2e-5, abs=1e-6)


READ_AGAIN = {  # tensors that the backward pass reads again; torch's own operations keep copies of some
    "backprop": ["flow layers.0.weight", "jump gate_z.weight"],
    "checkpoint": ["flow layers.0.weight", "jump gate_z.weight", "path", "row inputs", "z0"],
    "checkpoint on torch": ["flow layers.0.weight", "jump gate_z.weight", "path", "row inputs"],
    "backsolve": ["flow layers.0.weight", "jump gate_z.weight", "path", "row inputs"],
}


@pytest.mark.parametrize(
    ("method", "leaf"), [(method, leaf) for method, leaves in READ_AGAIN.items() for leaf in leaves]
)
def test_a_change_in_place_before_backward_is_noticed(method, leaf, monkeypatch):
    case, gradient = small(), chosen(monkeypatch, *METHODS[method])
    loss = case.outputs(gradient=gradient)[1].sum()
    with torch.no_grad():
        case.leaves[leaf].add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_functional_call(gradient):
    """Gradients reach the tensors passed to torch.func.functional_call, computed with their values."""
    case = small()
    field = case.flow.field
    given = {f"field.{name}": (0.5 * p).detach().requires_grad_() for name, p in field.named_parameters()}

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.field = field

        def forward(self):
            flow, steps = ControlTerm(self.field), steps_for(gradient)
            return solve(case.path, case.z0, flow=flow, gradient=gradient, solver="tsit5", steps=steps).last.sin().sum()

    model = Model()
    found = torch.autograd.grad(torch.func.functional_call(model, given), list(given.values()))
    with torch.no_grad():
        for p in field.parameters():
            p.mul_(0.5)
    expected = torch.autograd.grad(model(), list(field.parameters()))
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11)


def test_backward_twice_and_retained(engine):
    case = small()
    loss = case.outputs(save="knots")[1].sin().sum()
    first = torch.autograd.grad(loss, list(case.leaves.values()), retain_graph=True)
    second = torch.autograd.grad(loss, list(case.leaves.values()))
    for a, b in zip(first, second, strict=True):
        assert torch.equal(a, b)
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(loss, case.z0)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_no_checkpoints_are_kept_without_gradients(mode, engine, monkeypatch):
    kept = []

    class Recorded:
        def __getattr__(self, name):
            return made if name == "Solve64" else getattr(kernels, name)

    def made(**arguments):
        call = kernels.Solve64(**arguments)
        kept.append(call.checkpoints)
        return call

    monkeypatch.setattr(native, "kernels", Recorded())
    case = small()
    expected = case.solve().last
    with mode():
        solution = case.solve()
    assert not solution.last.requires_grad
    assert torch.equal(solution.last, expected)
    if engine == "native":
        assert [room > 0 for room in kept] == [True, False]


def test_gradients_of_unused_outputs_are_zero(engine):
    case = small()
    solution = case.solve(save="knots")
    (found,) = torch.autograd.grad(solution.at_knots[:1].sum(), case.leaves["path"])
    assert found[case.path.piece_offsets[1] :].abs().max() == 0  # other series
    assert case.solve().last.requires_grad


def test_frozen_fields_and_plain_inputs(engine):
    """If no input requires gradients, the output does not either."""
    path = some_path(66)
    field = mlp(path, 3).requires_grad_(False)
    for gradient in ("backprop", "checkpoint", "backsolve"):
        assert not nc.solve_cde(path, field, states(path, 3), gradient=gradient).last.requires_grad


def test_unknown_gradients_list_the_choices():
    case = small()
    with pytest.raises(ValueError, match=r"gradient='adjoint' is not one of .*'checkpoint', 'backprop', 'backsolve'"):
        case.solve(gradient="adjoint")
