"""Models as torch modules: dtypes, copies, state dicts, modes, gradient methods, custom fields and steps."""

import copy
import pickle

import pytest
import torch
from model_cases import OUTPUTS, SOLVED, VARIANTS, ModelCase, gradients_of, make, outputs_of, path_of, raw_batch
from torch import nn

import neuralcde as nc
from ragged_cases import random_series
from solve_cases import largest_difference, ran_on

SOLVES = [kind for kind in VARIANTS if kind.split()[0] in SOLVED]
FLOWS = [kind for kind in SOLVES if make(kind, 4).flow() is not None]


def batch(intensity=False, dtype=torch.float32):
    return path_of(raw_batch(dtype), intensity=intensity)


@pytest.mark.parametrize("kind", VARIANTS)
def test_double_precision(kind, engine):
    """Outputs have the dtype of model and path; float32 and float64 agree to float32 precision."""
    path = batch()
    model = make(kind, path.channels, static=2, dtype=torch.float32)
    single = model(path)
    assert single.dtype == torch.float32
    assert model.double() is model
    double = model(path.to(torch.float64))
    assert double.dtype == torch.float64
    torch.testing.assert_close(single.double(), double, rtol=1e-5, atol=1e-5)
    assert {x.dtype for x in model.state_dict().values()} == {torch.float64}


@pytest.mark.parametrize("intensity", [False, True], ids=["values", "intensity"])
@pytest.mark.parametrize("kind", VARIANTS)
def test_state_dict(kind, intensity):
    """Loading a state dict makes another model of the same sizes equal."""
    path = batch(intensity)
    model, other = (
        make(kind, path.channels, intensity=intensity, static=2, dtype=torch.float32, seed=s) for s in (1, 2)
    )
    assert not torch.allclose(other(path), model(path))
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(path), model(path))


@pytest.mark.parametrize(
    "again", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))], ids=["copy", "pickle"]
)
@pytest.mark.parametrize("kind", VARIANTS)
def test_copies(kind, again):
    """Copies give the same outputs and gradients, and share neither parameters nor options."""
    path = batch()
    model = make(kind, path.channels, static=2, dtype=torch.float32, pool="mean", gradient=nc.Checkpoint(every=2))
    other = again(model)
    assert torch.equal(other(path), model(path))
    assert other.gradient == nc.Checkpoint(every=2)
    found, expected = (gradients_of(x(path), dict(x.named_parameters())) for x in (other, model))
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    before = model(path)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(0.1)
    assert torch.equal(model(path), before)
    assert not torch.allclose(other(path), before)


@pytest.mark.parametrize("kind", VARIANTS)
def test_modes_change_nothing(kind, engine):
    path = batch()
    model = make(kind, path.channels, static=2, dtype=torch.float32)
    training = model.train()(path)
    assert torch.equal(model.eval()(path), training)
    with torch.no_grad():  # without gradients the layers around the solve run row by row, with other rounding
        torch.testing.assert_close(model(path), training, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("output", ["mean", "times"])
@pytest.mark.parametrize("kind", SOLVES)
def test_backprop_equals_checkpoint(kind, output, engine):
    case = ModelCase(kind, scheme="linear")
    assert case.model.gradient == "checkpoint"
    expected = case.gradients(output)
    case.model.gradient = "backprop"
    assert largest_difference(case.gradients(output), expected) < 1e-11


def error_of_backsolve(kind, output, substeps):
    case = ModelCase(kind, scheme="linear", steps=nc.AtKnots(substeps=substeps), gradient="backsolve")
    found = case.gradients(output)
    case.model.gradient = "backprop"
    return largest_difference(found, case.gradients(output))


@pytest.mark.parametrize(
    ("kind", "output"),
    [*((kind, "knots") for kind in FLOWS), ("NeuralCDE", "times"), ("ODERNN standard", "times")],
)
def test_backsolve_comes_close(kind, output):
    """The gradient converges to the exact one as the steps get smaller."""
    coarse, fine = (error_of_backsolve(kind, output, substeps) for substeps in (1, 3))
    assert 0 < fine < coarse / 5
    assert fine < 1e-4


@pytest.mark.parametrize("output", ["last", "knots"])
@pytest.mark.parametrize("kind", [kind for kind in SOLVES if kind not in FLOWS])
def test_backsolve_is_exact_where_nothing_flows(kind, output):
    assert error_of_backsolve(kind, output, 1) < 1e-12


def own_field(kind, channels, hidden):
    if kind == "low rank":
        return nc.LowRankField(channels, hidden, rank=2, width=6)
    if kind == "sequential":
        layers = nn.Linear(hidden, 7), nn.SiLU(), nn.Linear(7, hidden * channels), nn.Tanh()
        return nn.Sequential(*layers, nn.Unflatten(-1, (hidden, channels)))

    class OfTime(nn.Module):
        def __init__(self):
            super().__init__()
            self.rate = nn.Parameter(torch.ones(hidden, channels))

        def forward(self, t, z):
            return self.rate * torch.cos(z + t[:, None])[..., None]

    return OfTime()


@pytest.mark.parametrize("kind", ["low rank", "sequential", "module of t and z"])
def test_a_custom_field(kind, engine):
    """A Neural CDE with any field is initial map, solve_cde and readout, and all parameters get gradients."""
    path = batch(dtype=torch.float64)
    field = own_field(kind, path.channels, 5).double()
    model = make("NeuralCDE", path.channels, field=field)
    z0 = model.initial.of_start(path.coefficients[path.piece_offsets[:-1], 0])
    expected = model.readout.linear(nc.solve_cde(path, field, z0).last)
    torch.testing.assert_close(model(path), expected, rtol=1e-13, atol=1e-13)
    assert ran_on(model.solve(path), "torch" if kind == "module of t and z" else engine)
    assert {id(p) for p in field.parameters()} <= {id(p) for p in model.parameters()}
    assert not any(isinstance(part, nc.MLPField) for part in model.modules())
    model(path).square().sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in model.parameters())


@pytest.mark.parametrize(
    "options", [{"solver": "heun"}, {"steps": nc.AtKnots(substeps=3)}, {"steps": nc.FixedSteps(0.4)}]
)
def test_solver_and_steps_are_passed_on(options, engine):
    path = batch(dtype=torch.float64)
    model = make("NeuralCDE", path.channels, initial="zero", **options)
    z0 = torch.zeros(len(path), 5, dtype=torch.float64)
    expected = nc.solve_cde(path, model.field, z0, **options).last
    assert torch.equal(model.solve(path).last, expected)
    assert not torch.allclose(expected, nc.solve_cde(path, model.field, z0).last, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", SOLVED)
def test_adaptive_steps(name):
    """Models with a flow use adaptive steps; a cell without a flow takes no steps."""
    path = batch(dtype=torch.float64)
    adaptive = make(name, path.channels, solver="dopri5", steps=nc.Adaptive(1e-8, 1e-8))
    fine = make(name, path.channels, steps=nc.AtKnots(substeps=12))
    torch.testing.assert_close(adaptive(path, at="knots"), fine(path, at="knots"), rtol=1e-4, atol=1e-4)
    assert bool((adaptive.solve(path).stats.accepted > 0).any()) == (fine.flow() is not None)


@pytest.mark.parametrize("kind", VARIANTS)
def test_without_a_time_channel(kind, engine):
    """A model with time_channel=False accepts a path without time."""
    path = nc.linear(raw_batch())
    model = make(kind, path.channels, time_channel=False)
    assert path.series.roles == ("data",) * 3
    assert model(path).shape == (6, 2)


@pytest.mark.parametrize("kind", VARIANTS)
def test_all_values_of_at_agree(kind, engine):
    """The output at the last knot is that of the series; times at knots equal "knots"; lists equal tensors."""
    path = path_of(random_series(51, count=4, rows=(3, 3)))
    model, knots = make(kind, path.channels), path.knots.reshape(4, 3)
    at_knots = model(path, at="knots").reshape(4, 3, 2)
    torch.testing.assert_close(model(path), at_knots[:, -1], rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(model(path, at=knots.flip(1)), at_knots.flip(1), rtol=1e-13, atol=1e-13)
    shared = [0.0, 0.3, 0.3, 0.7]
    assert torch.equal(model(path, at=shared), model(path, at=torch.tensor(shared, dtype=torch.float64)))
    assert torch.equal(model(path, at=shared), model(path, at=torch.tensor(shared, dtype=torch.float64).expand(4, 4)))
    assert model(path, at=[]).shape == (4, 0, 2)


@pytest.mark.parametrize("kind", VARIANTS)
def test_no_series_at_all(kind, engine):
    path = batch(dtype=torch.float64)
    model = make(kind, path.channels)
    assert [outputs_of(model, path[[]], output).shape for output in OUTPUTS] == [
        (0, 2),
        (0, 2),
        (0, 2),
        (0, 6, 2),
        (0, 4, 2),
    ]


def test_gru_ode_stays_bounded(engine):
    """With small enough steps the state stays within [-1, 1], because the flow pulls it towards values in there."""
    series = random_series(52, count=4, rows=(9, 9), gaps=lambda rng, count: rng.uniform(3, 6, count))
    path = path_of(series)
    model = make("GRUODE", path.channels, steps=nc.FixedSteps(0.5))
    with torch.no_grad():
        for parameter in model.field.parameters():
            parameter.mul_(4)
    states = model.solve(path, save="knots").at_knots
    assert 0.9 < states.abs().max() <= 1 + 1e-9


@pytest.mark.wrong_types  # nothing is wrong: the compiler cannot trace the checker of annotations
@pytest.mark.filterwarnings("default")  # warnings of the compiler itself
@pytest.mark.parametrize("kind", ["NeuralCDE", "ODERNN"])
def test_compiled(kind, engine):
    """torch.compile does not trace the solve, and outputs and gradients are unchanged."""
    path = batch()
    model = make(next(name for name in VARIANTS if name.startswith(kind)), path.channels, static=2, dtype=torch.float32)
    expected = model(path)
    found = torch.compile(model, backend="eager")(path)
    assert torch.equal(found, expected)
    leaves = dict(model.named_parameters())
    assert largest_difference(gradients_of(found, leaves), gradients_of(expected, leaves)) < 1e-6
