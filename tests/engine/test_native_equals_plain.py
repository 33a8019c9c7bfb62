"""The native engine compared with the plain torch loop: values and all gradients."""

import pytest
import torch
from torch import nn

import neuralcde as nc
from neuralcde._native import kernels
from neuralcde.fields import activations, as_field
from neuralcde.solve import ControlTerm
from ragged_cases import SCHEMES
from solve_cases import (
    TABLEAUX,
    Case,
    largest_difference,
    mlp,
    on_engine,
    ran_on,
    some_flow,
    some_jump,
    some_path,
    states,
)

pytestmark = pytest.mark.skipif(kernels is None, reason="the native kernels were not built or are turned off")


def compare(monkeypatch, case, tolerance=1e-10, **options):
    """Check that both engines agree; return the names of the gradients that are zero."""
    results = {}
    for engine in ("native", "torch"):
        on_engine(monkeypatch, engine)
        solution, out, gradients = case.gradients(**options)
        assert ran_on(solution, engine), solution.stats.engine
        results[engine] = {"states": out, **gradients}
    assert largest_difference(results["native"], results["torch"]) < tolerance
    assert results["torch"]["states"].isfinite().all()
    return [name for name, gradient in results["torch"].items() if not gradient.any()]


def sequential(path, hidden, activation, bias=True):
    """A user's nn.Sequential, with activations in unusual places."""
    layers = [
        nn.Linear(hidden, 5, bias=bias),
        nn.Sequential(activations[activation](), nn.Identity()),
        nn.Linear(5, 6, bias=bias),
        nn.Linear(6, hidden * path.channels),
        nn.Sigmoid(),
        activations[activation](),
        nn.Unflatten(-1, (hidden, path.channels)),
    ]
    return nn.Sequential(*layers).to(path.dtype)


@pytest.mark.parametrize("solver", TABLEAUX)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_solver_on_every_path(solver, scheme, monkeypatch):
    path = some_path(1, scheme=scheme, rows=(1, 5))
    case = Case(path, states(path, 3), ControlTerm(mlp(path, 3)))
    assert compare(monkeypatch, case, solver=solver, save="knots") == []


@pytest.mark.parametrize("activation", activations)
@pytest.mark.parametrize("kind", ["mlp", "low rank", "sequential"])
def test_every_activation(kind, activation, monkeypatch):
    torch.manual_seed(0)
    path = some_path(2, scheme="hermite")
    options = {"width": 6, "depth": 2, "activation": activation}
    field = {
        "mlp": lambda: nc.MLPField(path.channels, 4, final=activation, **options).double(),
        "low rank": lambda: nc.LowRankField(path.channels, 4, rank=2, final=activation, **options).double(),
        "sequential": lambda: sequential(path, 4, activation),
    }[kind]()
    assert compare(monkeypatch, Case(path, states(path, 4), ControlTerm(as_field(field)))) == []


@pytest.mark.parametrize("rank", [1, 3])
def test_low_rank(rank, monkeypatch):
    torch.manual_seed(0)
    path = some_path(3, channels=5)
    field = nc.LowRankField(5, 3, rank=rank, width=4, activation="softplus").double()
    assert compare(monkeypatch, Case(path, states(path, 3), ControlTerm(as_field(field))), save="knots") == []


def test_layers_without_bias_and_weights_that_are_shared(monkeypatch):
    torch.manual_seed(0)
    path = some_path(4)
    field = sequential(path, 3, "tanh", bias=False)
    field[2] = nn.Linear(5, 5)
    field[3] = nn.Linear(5, 9)
    twice = nn.Sequential(*field[:3], field[2], *field[3:]).double()
    assert compare(monkeypatch, Case(path, states(path, 3), ControlTerm(as_field(twice)))) == []


def test_weights_that_are_not_contiguous(monkeypatch):
    path = some_path(5)
    field = mlp(path, 3)
    for layer in field.layers:
        if isinstance(layer, nn.Linear):
            layer.weight = nn.Parameter(layer.weight.detach().T.contiguous().T)
            assert not layer.weight.is_contiguous() or min(layer.weight.shape) == 1
    assert compare(monkeypatch, Case(path, states(path, 3).T.contiguous().T, ControlTerm(as_field(field)))) == []


FLOWS = ["none", "cde", "driven", "autonomous"]


@pytest.mark.parametrize(("flow", "jumps"), [*((flow, True) for flow in FLOWS), *((flow, False) for flow in FLOWS[1:])])
@pytest.mark.parametrize("save", ["last", "knots", "dense", "times"])
def test_flows_jumps_and_outputs(flow, jumps, save, monkeypatch):
    path = some_path(6, scheme="rectilinear" if jumps else "natural_cubic", rows=(1, 6))
    case = Case(path, states(path, 3), some_flow(flow, path, 3), some_jump(path, 3) if jumps else None)
    if save == "times":
        low, high = path.interval.unbind(1)
        save = low[:, None] + (high - low)[:, None] * torch.tensor([0.7, 0.0, 1.0, 0.21, 0.7], dtype=torch.float64)
    untouched = compare(monkeypatch, case, save=save)
    assert untouched == (["path"] if flow in ("none", "autonomous") else [])


@pytest.mark.parametrize("every", [1, 2, 3, 100, 10**15])
@pytest.mark.parametrize("jumps", [False, True])
def test_checkpoints(every, jumps, monkeypatch):
    path = some_path(7, scheme="linear", rows=(1, 9))
    case = Case(path, states(path, 3), ControlTerm(mlp(path, 3)), some_jump(path, 3) if jumps else None)
    assert compare(monkeypatch, case, gradient=nc.Checkpoint(every=every), save="knots") == []


@pytest.mark.parametrize("steps", [nc.AtKnots(substeps=3), nc.FixedSteps(0.45), nc.Adaptive(1e-2, 1e-3)])
def test_steps(steps, monkeypatch):
    path = some_path(8, scheme="hermite-forward", rows=(1, 5))
    for jump in (None, some_jump(path, 3)):
        case = Case(path, states(path, 3), ControlTerm(mlp(path, 3)), jump)
        assert compare(monkeypatch, case, steps=steps, solver="tsit5", save="knots") == []


# Sizes below, at and above registers of 2, 4, 8 and 16 lanes, and blocks of 4 and 8 outputs.
@pytest.mark.parametrize("batch", [1, 7, 8, 9, 16, 17, 40])
@pytest.mark.parametrize(("hidden", "channels"), [(1, 1), (5, 9), (33, 1), (33, 9)])
def test_odd_sizes(batch, hidden, channels, monkeypatch):
    path = some_path(batch, scheme="linear", count=batch, rows=(1, 5), channels=channels, missing=0.2)
    field = mlp(path, hidden, width=11, initial_scale=0.3)
    case = Case(path, states(path, hidden), ControlTerm(as_field(field)), some_jump(path, hidden, features=channels))
    assert compare(monkeypatch, case, save="knots") == []


@pytest.mark.parametrize("flow", FLOWS)
@pytest.mark.parametrize("batch", [3, 40])
def test_single_precision(flow, batch, monkeypatch):
    """The engine has its own tanh; with smooth activations the results agree to 1e-5."""
    path = some_path(9, scheme="linear", count=batch, dtype=torch.float32)
    case = Case(path, states(path, 5), some_flow(flow, path, 5), some_jump(path, 5))
    _, out, gradients = case.gradients()
    assert {out.dtype, *(g.dtype for g in gradients.values())} == {torch.float32}
    compare(monkeypatch, case, tolerance=1e-5, save="knots")


@pytest.mark.parametrize("final", activations)
def test_activations_in_single_precision(final, monkeypatch):
    path = some_path(10, scheme="linear", dtype=torch.float32)
    field = mlp(path, 4, activation="tanh", final=final)
    compare(monkeypatch, Case(path, states(path, 4), ControlTerm(as_field(field))), tolerance=1e-5)


def test_large_arguments_of_activations(monkeypatch):
    """Arguments where activations saturate, and where exp overflows; in float32 1000 has a rounding error of 6e-5."""
    for dtype, tolerance in ((torch.float64, 1e-10), (torch.float32, 1e-3)):
        path = some_path(11, scheme="linear", dtype=dtype)
        for activation in ("tanh", "sigmoid", "softplus", "silu"):
            field = mlp(path, 3, activation=activation)
            with torch.no_grad():
                field.layers[0].bias.copy_(torch.tensor([-1000.0, -90.0, -20.5, 19.9, 90.0, 1000.0]))
                field.layers[2].weight.mul_(1e-3)
            compare(monkeypatch, Case(path, states(path, 3), ControlTerm(as_field(field))), tolerance=tolerance)


def test_two_threads(monkeypatch):
    """With many tiles, the gradients of the threads are summed, also if requested times share pieces of a series."""
    path = some_path(12, scheme="natural_cubic", count=70, rows=(2, 8))
    case = Case(path, states(path, 3), ControlTerm(mlp(path, 3)), some_jump(path, 3))
    low, high = path.interval.unbind(1)
    save = low[:, None] + (high - low)[:, None] * torch.linspace(0, 1, 9, dtype=torch.float64)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        for _ in range(3):
            assert compare(monkeypatch, case, save=save) == []
    finally:
        torch.set_num_threads(before)


def test_gradients_that_are_not_required(monkeypatch):
    """If the path and the weights do not require gradients, the other gradients are unchanged."""
    path = some_path(13)
    field, z0 = mlp(path, 3), states(path, 3).requires_grad_()
    expected = torch.autograd.grad(nc.solve_cde(path, field, z0).last.square().sum(), [z0, *field.parameters()])
    field.layers[0].requires_grad_(False)
    nc.solve_cde(path, field, z0).last.square().sum().backward()
    assert torch.equal(z0.grad, expected[0])
    found = [p.grad for p in field.parameters()]
    assert found[:2] == [None, None]
    for gradient, wanted in zip(found[2:], expected[3:], strict=True):
        torch.testing.assert_close(gradient, wanted, rtol=1e-12, atol=1e-12)
