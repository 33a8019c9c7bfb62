"""Which modules are lowered to native programs, and that results do not depend on it."""

import copy
import dataclasses
import itertools
import re
import types

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize

import neuralcde as nc
from neuralcde._native import kernels
from neuralcde.engine import lower, most_stages
from neuralcde.fields import GRUCell, as_field
from neuralcde.solve import TimeTerm, solve
from solve_cases import Driven, GatedCell, mlp, on_engine, ran_on, some_path, states

HIDDEN, CHANNELS = 4, 3


@pytest.fixture
def path():
    return some_path(41, scheme="linear", channels=CHANNELS)


def layers(*extra):
    return nn.Sequential(
        nn.Linear(HIDDEN, 5), *extra, nn.Linear(5, HIDDEN * CHANNELS), nn.Tanh(), nn.Unflatten(-1, (HIDDEN, CHANNELS))
    ).double()


class Subclass(nc.MLPField):
    def forward(self, t, z):
        return 2 * super().forward(t, z)


class OtherProd(nc.MLPField):
    def prod(self, t, z, dx):
        return 2 * super().prod(t, z, dx)


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = layers()

    def forward(self, t, z):
        return self.inner(z)


class Counting(nc.VectorField):
    """A field with arbitrary Python code: a counter, branches, the time."""

    def __init__(self):
        super().__init__()
        self.inner, self.calls = layers(), 0

    def forward(self, t, z):
        self.calls += 1
        factor = 1.0 if self.calls % 2 else 0.5
        return factor * self.inner(z) * torch.cos(t)[:, None, None]


def hooked():
    field = nc.MLPField(CHANNELS, HIDDEN, width=5).double()
    field.layers[2].register_forward_hook(lambda module, inputs, output: 2 * output)
    return field


def replaced():
    field = nc.MLPField(CHANNELS, HIDDEN, width=5).double()
    original = field.layers[0].forward
    field.layers[0].forward = lambda z: original(z) + 1
    return field


def replaced_prod():
    field = nc.MLPField(CHANNELS, HIDDEN, width=5).double()
    field.prod = types.MethodType(lambda self, t, z, dx: 3 * nc.VectorField.prod(self, t, z, dx), field)
    return field


def parametrized():
    return nn.Sequential(*[parametrizations.weight_norm(x) if isinstance(x, nn.Linear) else x for x in layers()])


def pruned():
    field = layers()
    parametrize.register_parametrization(field[0], "weight", Doubled())
    return field


class Doubled(nn.Module):
    def forward(self, x):
        return 2 * x


def closure():
    inner = layers()

    def f(t, z):
        return inner(z) * 2

    return f


NOT_LOWERED = {
    "closure": (closure, "f is a function, not a composition of layers"),
    "lambda": (lambda: (lambda inner: lambda t, z: inner(z))(layers()), "<lambda> is a function"),
    "subclass": (
        lambda: Subclass(CHANNELS, HIDDEN, width=5).double(),
        "Subclass is not a module that the engine knows",
    ),
    "other prod": (lambda: OtherProd(CHANNELS, HIDDEN, width=5).double(), "OtherProd is not a module"),
    "module": (lambda: Plain(), "Plain is a custom module, not a composition of layers"),
    "arbitrary Python": (Counting, "Counting is not a module that the engine knows"),
    "hooks": (hooked, "Linear has hooks"),
    "replaced forward": (replaced, "the forward of a Linear was replaced"),
    "replaced prod": (replaced_prod, "the forward of a MLPField was replaced"),
    "weight norm": (parametrized, "ParametrizedLinear is not a layer that the engine knows"),
    "parametrization": (pruned, "ParametrizedLinear is not a layer"),
    "layer norm": (lambda: layers(nn.LayerNorm(5)), "LayerNorm is not a layer that the engine knows"),
    "dropout": (lambda: layers(nn.Dropout(0.5)).eval(), "Dropout is not a layer"),
    "leaky": (lambda: layers(nn.LeakyReLU()), "LeakyReLU is not a layer"),
    "another softplus": (lambda: layers(nn.Softplus(beta=2.0)), "Softplus is not a layer"),
    "a cut-off of its own": (lambda: layers(nn.Softplus(threshold=5.0)), "Softplus is not a layer"),
    "no end": (
        lambda: nn.Sequential(nn.Linear(HIDDEN, HIDDEN * CHANNELS), Shaped()).double(),
        r"does not end in nn.Unflatten\(-1, \(4, 3\)\)",
    ),
    "another unflatten": (
        lambda: nn.Sequential(nn.Linear(HIDDEN, HIDDEN * CHANNELS), nn.Unflatten(-1, (HIDDEN, -1))).double(),
        "does not end in nn.Unflatten",
    ),
}


class Shaped(nn.Module):
    def forward(self, x):
        return x.reshape(-1, HIDDEN, CHANNELS)


def by_hand(field, path, z0):
    """One Euler step per gap, written out with nothing of the library but the field's product."""
    field = as_field(field)
    out = []
    for i, series in enumerate(path.series):
        z, since = z0[i : i + 1], series.times - series.times[0]
        for k in range(len(since) - 1):
            rise = path[i].increment(series.times[k].item(), series.times[k + 1].item())
            z = z + field.prod(since[k : k + 1], z, rise)
        out.append(z)
    return torch.cat(out)


@pytest.mark.parametrize("name", NOT_LOWERED)
def test_modules_that_cannot_be_lowered_run_on_torch(name, path, monkeypatch):
    on_engine(monkeypatch, "native")
    torch.manual_seed(0)
    make, reason = NOT_LOWERED[name]
    field, z0 = make(), states(path, HIDDEN)
    expected = by_hand(copy.deepcopy(field), path[0], z0[:1])
    solution = nc.solve_cde(path[0], field, z0[:1], solver="euler")
    assert solution.stats.engine.startswith("torch: ")
    if kernels is not None:
        assert re.search(reason, solution.stats.engine)
    torch.testing.assert_close(solution.last, expected, rtol=1e-12, atol=1e-12)


def test_global_hooks_are_respected(path, monkeypatch):
    on_engine(monkeypatch, "native")
    seen = []
    field, z0 = mlp(path, HIDDEN), states(path, HIDDEN)
    handle = nn.modules.module.register_module_forward_hook(lambda module, inputs, output: seen.append(module))
    try:
        solution = nc.solve_cde(path, field, z0)
    finally:
        handle.remove()
    assert solution.stats.engine.startswith("torch: ")
    assert seen
    assert nc.solve_cde(path, field, z0).stats.engine != solution.stats.engine or kernels is None


def lowered():
    yield "mlp", nc.MLPField(CHANNELS, HIDDEN).double()
    yield "low rank", nc.LowRankField(CHANNELS, HIDDEN, rank=2).double()
    yield "sequential", layers(nn.SiLU(), nn.Identity(), nn.Softplus())
    yield (
        "nested",
        nn.Sequential(nn.Sequential(nn.Linear(HIDDEN, 12)), nn.ReLU(), nn.Unflatten(1, (HIDDEN, CHANNELS))).double(),
    )
    yield "in place", layers(nn.ReLU(inplace=True))


@pytest.mark.skipif(kernels is None, reason="the native kernels were not built or are turned off")
@pytest.mark.parametrize(("name", "field"), list(lowered()))
def test_what_is_lowered(name, field, path, monkeypatch):
    on_engine(monkeypatch, "native")
    z0 = states(path, HIDDEN)
    solution = nc.solve_cde(path, field, z0, solver="euler")
    assert ran_on(solution, "native")
    torch.testing.assert_close(solution.last[:1], by_hand(field, path[0], z0[:1]), rtol=1e-12, atol=1e-12)


@pytest.mark.skipif(kernels is None, reason="the native kernels were not built or are turned off")
def test_the_memory_of_weights_may_change(path, monkeypatch):
    """New memory for the same parameter, another order of the same memory, and weights that are not contiguous."""
    field, z0 = mlp(path, HIDDEN, width=HIDDEN), states(path, HIDDEN)
    weight = field.layers[0].weight

    def replaced():
        weight.data = torch.randn(HIDDEN, HIDDEN, dtype=weight.dtype)

    def turned():
        weight.data = weight.data.t()

    def changed_in_place():
        with torch.no_grad():
            weight.add_(1.0)

    for change in (replaced, changed_in_place, turned, changed_in_place, changed_in_place, turned, replaced, turned):
        change()
        found = []
        for engine in ("native", "torch"):
            on_engine(monkeypatch, engine)
            found.append(nc.solve_cde(path, field, z0).last)
        torch.testing.assert_close(*found, rtol=1e-10, atol=1e-10)


@pytest.mark.skipif(kernels is None, reason="the native kernels were not built or are turned off")
def test_the_engine_reads_the_current_weights(path, monkeypatch):
    """Weights changed in place, replaced, loaded, or converted to another dtype and back."""
    on_engine(monkeypatch, "native")
    field, z0 = mlp(path, HIDDEN), states(path, HIDDEN)
    results = [nc.solve_cde(path, field, z0).last]
    with torch.no_grad():
        field.layers[0].weight.mul_(2)
    results.append(nc.solve_cde(path, field, z0).last)
    field.layers[0].weight = nn.Parameter(-field.layers[0].weight.detach())
    results.append(nc.solve_cde(path, field, z0).last)
    field.layers[1] = nn.Sigmoid()
    results.append(nc.solve_cde(path, field, z0).last)
    for before, after in itertools.pairwise(results):
        assert (before - after).abs().max() > 1e-6
    on_engine(monkeypatch, "torch")
    torch.testing.assert_close(results[-1], nc.solve_cde(path, field, z0).last, rtol=1e-10, atol=1e-10)


def test_the_reason_why_the_engine_did_not_run(path, monkeypatch):
    """Reasons that depend on the solve, not on the field."""
    on_engine(monkeypatch, "native")
    if kernels is None:
        assert nc.solve_cde(path, mlp(path, HIDDEN), states(path, HIDDEN)).stats.engine == "torch: no native kernels"
        return
    field, z0 = mlp(path, HIDDEN), states(path, HIDDEN)

    def engine(**options):
        return nc.solve_cde(path, field, z0, **options).stats.engine

    assert engine() == f"native ({kernels.level()})"
    assert engine(gradient="backprop") == "torch: backprop differentiates the plain loop"
    assert engine(gradient="backsolve") == engine(gradient="backsolve", save="knots") == f"native ({kernels.level()})"
    between = {"gradient": "backsolve", "save": torch.tensor([0.5], dtype=torch.float64)}
    assert engine(**between) == f"native ({kernels.level()}) forward, torch backward"
    with torch.no_grad():
        assert engine(gradient="backprop") == engine(gradient="backsolve") == f"native ({kernels.level()})"
    stages = most_stages() + 1
    a = tuple((0.0,) * i for i in range(stages))
    long = nc.Tableau("long", 1, "", a=a, b=(1.0, *[0.0] * (stages - 1)), c=(0.0,) * stages)
    assert engine(solver=long) == f"torch: long has more than {most_stages()} stages"
    on_engine(monkeypatch, "torch")
    assert engine() == "torch: NEURALCDE_ENGINE=torch"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_runs_on_torch(dtype, path, monkeypatch):
    """With and without parameters. (Series are never in half precision; coefficients may be.)"""
    on_engine(monkeypatch, "native")
    half = dataclasses.replace(path, coefficients=path.coefficients.to(dtype))
    for field in (mlp(half, HIDDEN), lambda t, z: torch.tanh(z)[..., None].expand(-1, -1, CHANNELS)):
        solution = nc.solve_cde(half, field, states(half, HIDDEN))
        assert solution.stats.engine.startswith("torch: ")
        assert solution.last.dtype == dtype
    one = dataclasses.replace(half, coefficients=half.coefficients[..., :1])
    bare = nn.Sequential(nn.Tanh(), nn.Unflatten(-1, (2, 1)))
    assert nc.solve_cde(one, bare, states(one, 2)).last.dtype == dtype


def test_inside_torch_func(path, monkeypatch):
    """torch.func differentiates the plain loop; its gradient equals that of the engine."""
    on_engine(monkeypatch, "native")
    field, z0 = mlp(path, HIDDEN), states(path, HIDDEN).requires_grad_()

    def loss(z0):
        return nc.solve_cde(path, field, z0, gradient="backprop").last.square().sum()

    found = torch.func.grad(loss)(z0.detach())
    nc.solve_cde(path, field, z0).last.square().sum().backward()
    torch.testing.assert_close(found, z0.grad, rtol=1e-10, atol=1e-10)


def test_reasons_are_strings_and_programs_are_programs():
    assert lower(nn.Linear(4, 4), 4, 3) == "Linear is not a module that the engine knows"
    assert lower(nn.GRUCell(3, 4), 4, 3) == "GRUCell is not a module that the engine knows"
    program = lower(GatedCell(3, 4), 4, 3)
    assert len(program.parameters) == 5
    assert lower(GatedCell(3, 4), 4, 2).startswith("a weight of shape (4, 3) does not fit 2 inputs")
    assert lower(GatedCell(3, 4).half(), 4, 3) == "a parameter is torch.float16 on cpu"
    assert lower(GatedCell(3, 4).to("meta"), 4, 3) == "a parameter is torch.float32 on meta"


def test_a_flow_in_time_is_not_a_matrix(path):
    with pytest.raises(TypeError, match="but MLPField is a VectorField, which returns a matrix"):
        TimeTerm(nc.MLPField(CHANNELS, HIDDEN))
    wide = Driven(CHANNELS, HIDDEN).double()
    wide.inner = nn.Linear(HIDDEN + CHANNELS, 1).double()
    wide.forward = lambda t, z, x: torch.zeros(len(z), 1, dtype=z.dtype)
    with pytest.raises(ValueError, match=r"Driven returned an increment of shape \(5, 1\) for z of shape \(5, 4\)"):
        solve(path, states(path, HIDDEN), flow=TimeTerm(wide))


@pytest.mark.skipif(kernels is None, reason="the native kernels were not built or are turned off")
def test_networks_with_more_parameters_than_features(monkeypatch):
    """A deep network of width 1 has more parameter tensors than features in its workspace."""
    path = some_path(47, scheme="linear", channels=1, dtype=torch.float32)
    for depth in (4, 40):
        field, z0 = nc.MLPField(channels=1, hidden=1, width=1, depth=depth), states(path, 1)
        found = nc.solve_cde(path, field, z0)
        assert found.stats.engine.startswith("native")
        on_engine(monkeypatch, "torch")
        torch.testing.assert_close(found.last, nc.solve_cde(path, field, z0).last, rtol=1e-5, atol=1e-6)
        on_engine(monkeypatch, "native")


@pytest.mark.skipif(kernels is None, reason="the native kernels were not built or are turned off")
def test_a_field_too_large_for_the_engine_runs_on_the_plain_loop(monkeypatch):
    """A workspace of more than 2^24 features; only the size of the field matters, so it is not allocated in full."""
    path, field = some_path(48, scheme="linear", channels=CHANNELS, dtype=torch.float32), mlp_of(HIDDEN)
    z0 = states(path, HIDDEN)
    expected = nc.solve_cde(path, field, z0)
    assert expected.stats.engine.startswith("native")
    monkeypatch.setattr(kernels, "MOST_FEATURES", 20)
    field = copy.deepcopy(field)  # a copy, because the program of the first field is cached
    found = nc.solve_cde(path, field, z0)
    assert found.stats.engine.startswith("torch: one evaluation needs")
    torch.testing.assert_close(found.last, expected.last, rtol=1e-5, atol=1e-6)


def test_the_engine_exports_its_limit_of_features():
    """Lowering and the bindings use the same limit."""
    if kernels is None:
        pytest.skip("the native kernels were not built or are turned off")
    ops, numbers = torch.tensor([[5, 0, 1, 0, 0, 1, 0, -1, -1, 0, 0, 0]]), torch.zeros(1, 2, dtype=torch.float64)
    kernels.Program(ops, numbers, kernels.MOST_FEATURES, 0, 0)
    with pytest.raises(ValueError, match="features, input or output out of range"):
        kernels.Program(ops, numbers, kernels.MOST_FEATURES + 1, 0, 0)


def mlp_of(hidden):
    return nc.MLPField(CHANNELS, hidden, width=8, depth=1)


def test_a_program_is_cached_until_its_module_changes():
    if kernels is None:
        pytest.skip("the native kernels were not built or are turned off")
    field = nc.MLPField(CHANNELS, HIDDEN, width=5, depth=1, activation="softplus", final="identity")

    def program():
        return lower(field, HIDDEN, CHANNELS)

    with torch.no_grad():
        first = program()
    assert program() is first
    field.layers[0].weight.data.add_(1.0)  # like an optimizer: the cached program refers to the parameter
    assert program() is first
    field.double()
    assert program() is first
    field.layers[0].weight = nn.Parameter(torch.zeros(5, HIDDEN))
    kept = program()
    assert kept.parameters[0] is field.layers[0].weight
    field.eval()
    assert program() is kept
    field.train()
    assert program() is kept
    field.layers[0].weight.data = torch.zeros(3, HIDDEN)
    assert isinstance(program(), str)
    field.layers[0].weight.data = torch.zeros(5, HIDDEN)
    field.layers[1] = nn.Tanh()
    assert program().ops.tolist() != first.ops.tolist()
    field.layers[1] = nn.Softplus(beta=1.0)
    before = program()
    assert before.ops.tolist() == first.ops.tolist()
    field.layers[1].beta = 2.0
    assert program() != before
    field.layers[1].register_forward_hook(lambda *a: None)
    assert program() == "Softplus has hooks"
    assert lower(field, HIDDEN + 1, CHANNELS) == "Softplus has hooks"


def test_gradients_reach_a_gru_whose_program_was_cached_without_them():
    """The gates are slices of the parameters; the program refers to the parameters, not to slices of them."""
    if kernels is None:
        pytest.skip("the native kernels were not built or are turned off")
    cell = GRUCell(3, HIDDEN)
    with torch.no_grad():
        kept = lower(cell, HIDDEN, 3)
    assert lower(cell, HIDDEN, 3) is kept
    assert {*map(id, kept.parameters)} == {*map(id, cell.parameters())}
