"""Failures and their error messages, and extreme inputs that must work."""

import dataclasses

import pytest
import torch
from torch import nn

import neuralcde as nc
from neuralcde.solve import Jump, SolveError, Status, TimeTerm, solve
from solve_cases import Case, identity_field, mlp, some_flow, some_jump, some_path, states


def exploding(scale=1e60):
    """f(z) = scale (z, z), made of layers that the engine supports; overflows within a few steps."""
    layer = nn.Linear(1, 2).double()
    with torch.no_grad():
        layer.weight.fill_(scale)
        layer.bias.zero_()
    return nn.Sequential(layer, nn.Unflatten(-1, (1, 2)))


def named_path():
    """The path of series "calm" is constant, that of series "wild" is not."""
    times = torch.tensor([10.0, 11.0, 12.5, 13.0, 20.0], dtype=torch.float64)
    still, moving = torch.zeros(5, 2).double(), torch.linspace(0, 4, 10).reshape(5, 2).double()
    return nc.linear(
        nc.IrregularSeries.from_list(
            [(times, still), (times, moving), (times[:2], still[:2])],
            ids=["calm", "wild", "short"],
            dtype=torch.float64,
        )
    )


Z0 = torch.tensor([[1.0], [2.0], [3.0]], dtype=torch.float64)


def test_an_explosion_names_series_and_time(engine):
    """The four stages of a step multiply z by 1e240, so the second step overflows."""
    with pytest.raises(
        SolveError, match=r"series 'wild' at t=11: the state is no longer finite.*1 of 3 series.*throw=False"
    ):
        nc.solve_cde(named_path(), exploding(), Z0)


def test_an_explosion_without_throw_is_a_status(engine):
    solution = nc.solve_cde(named_path(), exploding(), Z0, throw=False, save="knots")
    assert solution.status is Status.not_finite
    assert solution.statuses.tolist() == [0, 1, 0]
    assert solution.last[[0, 2]].tolist() == [[1.0], [3.0]]
    assert not solution.last[1].isfinite().any()
    finite = solution.at_knots.isfinite()[:, 0].tolist()
    assert finite == [True] * 5 + [True, True, False, False, False] + [True] * 2
    assert "no longer finite" in repr(solution)
    assert solution.reached.tolist()[1] == 11.0  # the time at which the state stopped being finite
    assert solution.reached[[0, 2]].tolist() == named_path().interval[[0, 2], 1].tolist()
    whole = nc.solve_cde(named_path()[[0, 2]], exploding(), Z0[[0, 2]])
    assert whole.status is Status.done


@pytest.mark.parametrize("flow", [False, True])
def test_an_explosion_in_a_jump(flow, engine):
    """A jump can fail at any row, including the last one, which no step follows."""
    path = some_path(111, scheme="linear", count=3, rows=(3, 3))
    jump = some_jump(path, 3, every_row=True)
    moves = some_flow("cde", path, 3) if flow else None
    for row in (3, 4, 5):
        inputs = jump.inputs.clone()
        inputs[row] = torch.inf
        wild = dataclasses.replace(jump, inputs=inputs)
        with pytest.raises(SolveError, match=f"series 's1' at t={path.knots[row].item():g}:"):
            solve(path, states(path, 3), flow=moves, jump=wild)
        solution = solve(path, states(path, 3), flow=moves, jump=wild, throw=False)
        assert solution.statuses.tolist() == [0, 1, 0]


def test_nan_in_z0_or_path_is_refused_before_the_solve():
    path = named_path()
    calls = []

    def field(t, z):
        calls.append(1)
        return z.new_zeros(len(z), 1, 2)

    for bad in (torch.nan, torch.inf):
        z0 = Z0.clone()
        z0[2] = bad
        with pytest.raises(ValueError, match="z0 of series 'short' is not finite"):
            nc.solve_cde(path, field, z0)
        coefficients = path.coefficients.clone()
        coefficients[5, 1, 0] = bad
        with pytest.raises(ValueError, match="the path of series 'wild' is not finite"):
            nc.solve_cde(dataclasses.replace(path, coefficients=coefficients), field, Z0)
    assert not calls


@pytest.mark.wrong_types
@pytest.mark.parametrize(
    ("z0", "message"),
    [
        (torch.zeros(2, 3).double(), r"z0 must have shape \(series, hidden\) = \(3, hidden\), got \(2, 3\)"),
        (torch.zeros(3).double(), r"got \(3,\)"),
        (torch.zeros(3, 0).double(), r"got \(3, 0\)"),
        (torch.zeros(1, 3, 2).double(), r"got \(1, 3, 2\)"),
        ([[0.0], [0.0], [0.0]], "got list"),
        (None, "got NoneType"),
        (torch.zeros(3, 1), r"z0 is torch.float32 on cpu, but the path is torch.float64 on cpu; convert one: path.to"),
        (torch.zeros(3, 1, dtype=torch.int64), "z0 is torch.int64"),
    ],
)
def test_wrong_initial_states(z0, message):
    with pytest.raises(ValueError, match=message):
        nc.solve_cde(named_path(), exploding(), z0)


@pytest.mark.wrong_types
def test_wrong_fields(engine):
    path = named_path()
    with pytest.raises(
        ValueError, match=r"made for hidden=4, channels=2, but z0 has 1 features .* make it MLPField\(channels="
    ):
        nc.solve_cde(path, nc.MLPField(2, 4).double(), Z0)
    with pytest.raises(ValueError, match=r"made for hidden=1, channels=3, .* the path 2 channels"):
        nc.solve_cde(path, nc.LowRankField(3, 1).double(), Z0)
    with pytest.raises(
        ValueError, match=r"the field is torch.float32 on cpu, but z0 and the path are torch.float64 .* field.to\(z0\)"
    ):
        nc.solve_cde(path, nc.MLPField(2, 1), Z0)
    with pytest.raises(ValueError, match=r"Sequential must return shape .* = \(3, 1, 2\), got \(3, 2\)"):
        nc.solve_cde(path, nn.Sequential(nn.Linear(1, 2)).double(), Z0)
    with pytest.raises(ValueError, match=r"Sequential must return shape .* = \(3, 1, 2\), got \(3, 2, 1\)"):
        nc.solve_cde(path, nn.Sequential(nn.Linear(1, 2), nn.Unflatten(-1, (2, 1))).double(), Z0)
    with pytest.raises(TypeError, match="field must be a VectorField"):
        nc.solve_cde(path, torch.zeros(3), Z0)


@pytest.mark.wrong_types
def test_wrong_paths_and_options_list_the_choices():
    path = named_path()
    with pytest.raises(
        TypeError, match=r"path must be a ControlPath, got IrregularSeries; build one with e.g. nc.linear\(series\)"
    ):
        nc.solve_cde(path.series, exploding(), Z0)
    with pytest.raises(ValueError, match=r"solver='RK4' is not one of .*'euler', .*'rk4', 'dopri5', 'tsit5'"):
        nc.solve_cde(path, exploding(), Z0, solver="RK4")
    with pytest.raises(ValueError, match=r"gradient='adjoint' is not one of .*'checkpoint', 'backprop', 'backsolve'"):
        nc.solve_cde(path, exploding(), Z0, gradient="adjoint")
    for wrong in ("all", 3, [0.0, 1.0], None):
        with pytest.raises(ValueError, match='is not "last", "knots", "dense" or a tensor of times'):
            nc.solve_cde(path, exploding(), Z0, save=wrong)
    for wrong in ("fixed", 0.1, nc.AtKnots):
        with pytest.raises(TypeError, match=r"steps must be AtKnots\(\), FixedSteps\(size\) or Adaptive\(\), got"):
            nc.solve_cde(path, exploding(), Z0, steps=wrong)
    with pytest.raises(ValueError, match="there is nothing to solve: give a flow, a jump, or both"):
        solve(path, Z0)


@pytest.mark.wrong_types
def test_wrong_jumps():
    path = named_path()
    rows, cell = torch.ones(12, dtype=torch.bool), nn.Bilinear(1, 2, 1).double()
    right = torch.zeros(12, 2).double()
    for inputs in (right[:5], right.float(), right[:, 0]):
        with pytest.raises(
            ValueError, match=r"inputs of a jump must be torch.float64 of shape .* = \(12, features\), got"
        ):
            solve(path, Z0, jump=Jump(cell, inputs, rows))
    for wrong in (rows[:5], rows.long()):
        with pytest.raises(ValueError, match="the rows of a jump must be 12 booleans, got"):
            solve(path, Z0, jump=Jump(cell, right, wrong))


@pytest.mark.parametrize("save", ["last", "knots", "dense"])
@pytest.mark.parametrize("gradient", ["checkpoint", "backprop", "backsolve"])
def test_an_empty_batch(save, gradient, engine):
    path = some_path(112)[:0]
    for flow, jump in (("cde", False), ("cde", True), ("driven", False), ("none", True)):
        case = Case(path, states(path, 3), some_flow(flow, path, 3), some_jump(path, 3) if jump else None)
        solution, out, gradients = case.gradients(save=save, gradient=gradient)
        assert solution.last.shape == (0, 3)
        assert solution.status is Status.done
        assert out.shape == (0, 3)
        assert all(not g.any() for g in gradients.values())
    assert case.solve(save=torch.zeros(0, 2), gradient=gradient).at_times.shape == (0, 2, 3)
    if gradient == "checkpoint":
        adaptive = solve(path, states(path, 3), flow=some_flow("cde", path, 3), solver="tsit5", steps=nc.Adaptive())
        assert adaptive.last.shape == (0, 3)


@pytest.mark.parametrize("scheme", ["natural_cubic", "linear", "rectilinear"])
def test_series_of_one_knot(scheme, engine):
    """Their state is z0, updated by the jump if there is one."""
    path = some_path(113, scheme=scheme, rows=(1, 1))
    z0 = states(path, 3)
    for flow in ("cde", "driven"):
        moves = some_flow(flow, path, 3)
        for options in ({}, {"steps": nc.FixedSteps(0.1)}, {"solver": "tsit5", "steps": nc.Adaptive()}):
            solution = solve(path, z0, flow=moves, save="knots", **options)
            assert torch.equal(solution.last, z0)
            assert torch.equal(solution.at_knots, z0)
        assert torch.equal(solve(path, z0, flow=moves, save=path.interval).at_times[:, 1], z0)
    jump = some_jump(path, 3, every_row=True)
    after = solve(path, z0, flow=some_flow("cde", path, 3), jump=jump).last
    torch.testing.assert_close(after, jump.cell(z0, jump.inputs), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("gap", [1e9, 1e-9])
@pytest.mark.parametrize("build", [nc.linear, nc.rectilinear, nc.hermite, nc.natural_cubic])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_huge_and_tiny_gaps(gap, build, dtype, engine):
    """The length of a gap does not affect the increments of X, and so not z."""
    times = gap * torch.tensor([0.0, 1.0, 2.0, 4.0], dtype=torch.float64)
    values = torch.tensor([[0.0, 1.0], [1.0, 0.5], [0.0, 2.0], [2.0, 1.0]])
    path = build(nc.IrregularSeries.from_list([(times, values)], dtype=dtype))
    unit = build(nc.IrregularSeries.from_list([(times / gap, values)], dtype=dtype))
    field, z0 = mlp(path, 3), states(path, 3)
    for options in ({}, {"steps": nc.FixedSteps(gap / 3)}, {"save": "knots"}):
        there = nc.solve_cde(path, field, z0, **options).last
        if "steps" in options:
            options = {"steps": nc.FixedSteps(1 / 3)}
        torch.testing.assert_close(there, nc.solve_cde(unit, field, z0, **options).last, rtol=1e-5, atol=1e-5)
    identity = nc.solve_cde(path, identity_field(2, dtype), torch.zeros(1, 2, dtype=dtype)).last
    torch.testing.assert_close(identity, (values[3:] - values[:1]).to(dtype), rtol=1e-5, atol=1e-5)


def test_huge_and_tiny_gaps_in_one_series(engine):
    """Gaps of a nanosecond, of 30 years and of a second, next to each other."""
    times = torch.tensor([0.0, 1e-9, 1e9, 1e9 + 1.0], dtype=torch.float64)
    path = nc.linear(
        nc.IrregularSeries.from_list([(times, torch.tensor([[0.0], [1.0], [0.5], [2.0]]))], dtype=torch.float64)
    )
    solution = nc.solve_cde(path, identity_field(1), torch.zeros(1, 1).double(), save="dense")
    assert solution.last.item() == pytest.approx(2.0, abs=1e-12)
    assert solution.evaluate(5e-10).item() == pytest.approx(0.5, abs=1e-9)
    assert solution.evaluate(5e8).item() == pytest.approx(0.75, abs=1e-9)


def test_huge_gaps_of_flows_in_time_fail_loudly_or_settle(engine):
    """h = tanh(...) - z over 1e9 units of time: an explicit step explodes and raises SolveError."""
    path = nc.linear(nc.IrregularSeries.from_list([([0.0, 1e9], [[0.0], [1.0]])], dtype=torch.float64))
    flow = TimeTerm(some_flow("driven", path, 2).field)
    solution = solve(path, torch.ones(1, 2).double(), flow=flow, steps=nc.AtKnots(substeps=40), throw=False)
    assert solution.status is Status.not_finite
    adaptive = solve(
        path, torch.ones(1, 2).double(), flow=flow, solver="tsit5", steps=nc.Adaptive(max_steps=50), throw=False
    )
    assert adaptive.status is Status.max_steps
    assert adaptive.last.isfinite().all()


def test_inputs_are_not_modified(engine):
    path = some_path(114)
    case = Case(path, states(path, 3), some_flow("cde", path, 3), some_jump(path, 3))
    before = {name: x.detach().clone() for name, x in case.leaves.items()}
    case.gradients(save="knots")
    case.gradients(gradient="backsolve")
    case.solve(solver="tsit5", steps=nc.Adaptive())
    assert all(torch.equal(x, before[name]) for name, x in case.leaves.items())


def test_views_and_strides_of_z0(engine):
    path = some_path(115)
    field, z0 = mlp(path, 3), states(path, 3)
    expected = nc.solve_cde(path, field, z0).last
    wide = torch.cat([z0, z0], 1)
    assert torch.equal(nc.solve_cde(path, field, wide[:, 3:]).last, expected)
    assert torch.equal(nc.solve_cde(path, field, z0.T.contiguous().T).last, expected)
    one = nc.solve_cde(path, field, z0[:1].expand(5, 3)).last
    assert torch.equal(one, nc.solve_cde(path, field, z0[:1].repeat(5, 1)).last)


def test_a_field_that_changes_its_argument_in_place():
    """A field may modify its argument in place; the state must not change."""
    path = some_path(116, scheme="linear")
    weights = nn.Linear(3, 9).double()

    def field(t, z):
        return weights(torch.relu_(z)).unflatten(-1, (3, 3))

    def careful(t, z):
        return weights(torch.relu(z)).unflatten(-1, (3, 3))

    for gradient in ("checkpoint", "backprop"):
        ends = [nc.solve_cde(path, f, states(path, 3), gradient=gradient).last for f in (field, careful)]
        slopes = [torch.autograd.grad(end.sum(), weights.weight)[0] for end in ends]
        torch.testing.assert_close(*ends, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(*slopes, rtol=1e-12, atol=1e-12)
