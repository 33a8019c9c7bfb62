"""What a field is called with: times on the right side of a knot, only series that still run, only known tensors."""

import pytest
import torch
from torch import nn

import neuralcde as nc
from neuralcde.solve import ControlTerm, Jump, SolveError, TimeTerm, solve, solvers
from solve_cases import SOLVERS, mlp, smooth_path, some_path, states

TIMES = [0.0, 0.3, 0.5, 1.3]


def uneven_path(dtype=torch.float64, start=0.0):
    times = start + torch.tensor(TIMES, dtype=torch.float64)
    return nc.linear(nc.IrregularSeries.from_list([(times, torch.zeros(4, 1))], dtype=dtype))


class Recording(nn.Module):
    """h = 1, and a list of the times that it was called with."""

    def __init__(self):
        super().__init__()
        self.rate, self.times = nn.Parameter(torch.ones(1, dtype=torch.float64)), []

    def forward(self, t, z, x):
        self.times += t.detach().double().tolist()
        return self.rate.to(z.dtype).expand(z.shape)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("steps", [nc.AtKnots(), nc.AtKnots(3), nc.FixedSteps(0.1), nc.Adaptive()])
def test_times_lie_on_the_side_of_the_step(dtype, solver, steps):
    """No stage is evaluated at the knot that ends its piece, also not by rounding."""
    if isinstance(steps, nc.Adaptive) and not getattr(solvers[solver], "b_error", ()):
        return
    path, field = uneven_path(dtype, start=7.1), Recording()
    z0 = torch.zeros(1, 2, dtype=dtype)
    with torch.no_grad():
        last = solve(path, z0, flow=TimeTerm(field), solver=solver, steps=steps).last
    assert last[0].tolist() == pytest.approx([1.3, 1.3])
    knots = (path.knots - path.knots[0]).to(dtype)
    seen = torch.tensor(field.times).to(dtype)
    assert (seen < knots[-1]).all()
    assert (seen >= 0).all()


@pytest.mark.parametrize("gradient", ["checkpoint", "backsolve"])
@pytest.mark.parametrize("steps", [nc.AtKnots(), nc.AtKnots(3), nc.Adaptive(1e-6, 1e-6)])
def test_a_field_that_jumps_at_a_knot_is_integrated_exactly(steps, gradient):
    """Each piece is integrated with the value of its own side, forwards and backwards."""

    class Stairs(nn.Module):
        def __init__(self):
            super().__init__()
            self.heights = nn.Parameter(torch.tensor([1.0, -2.0, 5.0], dtype=torch.float64))

        def forward(self, t, z, x):
            stair = torch.bucketize(t, torch.tensor(TIMES[1:3], dtype=torch.float64), right=True)
            return self.heights[stair][:, None].expand(z.shape)

    path, field = uneven_path(), Stairs()
    solution = solve(
        path,
        torch.zeros(1, 1).double(),
        flow=TimeTerm(field),
        solver="dopri5",
        steps=steps,
        gradient=gradient,
    )
    assert solution.last.item() == pytest.approx(0.3 - 2 * 0.2 + 5 * 0.8, abs=1e-12)
    assert solution.stats.rejected.item() == 0
    solution.last.sum().backward()
    assert field.heights.grad.tolist() == pytest.approx([0.3, 0.2, 0.8], abs=1e-12)


def test_between_knots_too():
    """States at times between knots: the partial step ends at the time asked for, not at the knot."""
    path, field = uneven_path(), Recording()
    asked = torch.tensor([0.2, 0.3, 1.0], dtype=torch.float64)
    solution = solve(path, torch.zeros(1, 1).double(), flow=TimeTerm(field), save=asked)
    assert solution.at_times[0, :, 0].tolist() == pytest.approx([0.2, 0.3, 1.0])
    assert max(field.times) < 1.3


@pytest.mark.parametrize("steps", [nc.AtKnots(), nc.Adaptive()])
def test_a_field_with_a_context_per_series_is_explained(steps):
    path = some_path(31, count=4, rows=(2, 6))
    context = torch.randn(4, 3, dtype=torch.float64)

    def field(t, z):
        return (z + context)[..., None].expand(*z.shape, path.channels)

    with pytest.raises(RuntimeError) as caught:
        nc.solve_cde(path, field, states(path, 3), solver="tsit5", steps=steps)
    assert "called with the states of" in caught.value.__notes__[0]
    assert "part of its state" in caught.value.__notes__[0]


class WithOutsider(nc.VectorField):
    """A field that also uses a tensor that is not its parameter."""

    def __init__(self, inner, factor):
        super().__init__()
        self.inner, self.hidden_in_a_list = inner, [factor]

    def forward(self, t, z):
        return self.inner(t, z) * self.hidden_in_a_list[0]


@pytest.mark.parametrize("gradient", ["checkpoint", "backsolve"])
@pytest.mark.parametrize("steps", [nc.AtKnots(), nc.Adaptive()])
def test_time_counts_from_start(steps, gradient):
    """With a start two units before the first time, t is larger by two at every evaluation."""
    path = smooth_path()
    z0, origin = states(path, 3).requires_grad_(), path.interval[:, 0]

    class Timed(torch.nn.Module):
        def __init__(self, shift):
            super().__init__()
            self.inner, self.shift = mlp(path, 3), shift

        def forward(self, t, z):
            return self.inner(t, z) * torch.cos(t + self.shift)[:, None, None]

    found = []
    for shift, start in ((2.0, None), (0.0, origin - 2)):
        flow = ControlTerm(nc.fields.as_field(Timed(shift)))
        last = solve(path, z0, flow=flow, solver="tsit5", steps=steps, gradient=gradient, start=start).last
        found.append((last, *torch.autograd.grad(last.square().sum(), z0)))
    torch.testing.assert_close(found[0], found[1], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("leaf", [True, False])
@pytest.mark.parametrize("steps", [nc.AtKnots(), nc.Adaptive()])
def test_backsolve_refuses_tensors_that_it_would_drop(steps, leaf):
    path = smooth_path()
    factor = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    field = WithOutsider(mlp(path, 3), factor if leaf else 2 * factor)
    options = {"solver": "tsit5", "steps": steps}
    nc.solve_cde(path, field, states(path, 3), **options).last.sum().backward()
    assert factor.grad.abs() > 1e-3
    last = nc.solve_cde(path, field, states(path, 3), gradient="backsolve", **options).last
    with pytest.raises(ValueError, match=r"another tensor of shape \(\) that requires gradients.*nn.Parameter"):
        last.sum().backward()


@pytest.mark.parametrize("kind", ["pole", "nan"])
def test_a_pole_is_not_called_too_many_steps(kind, engine):
    """dz = z^2 dX from z = 1 has a pole at X = 1; or a field that is NaN beyond a point."""
    path = nc.linear(nc.IrregularSeries.from_list([([0.0, 1.0, 2.0], [[0.0], [0.75], [1.5]])] * 2, dtype=torch.float64))

    def field(t, z):
        wild = z**2 if kind == "pole" else torch.where(z > 2, torch.nan, z**2)
        return wild[..., None]

    z0 = torch.tensor([[1.0], [0.1]], dtype=torch.float64)
    options = {"solver": "dopri5", "steps": nc.Adaptive()}
    solution = nc.solve_cde(path, field, z0, throw=False, **options)
    assert solution.statuses.tolist() == [1, 0]
    pole = 4 / 3 if kind == "pole" else 2 / 3
    assert solution.reached[0].item() == pytest.approx(pole, abs=1e-2)
    with pytest.raises(SolveError, match=r"no longer finite.*No step is short enough there.*throw=False") as caught:
        nc.solve_cde(path, field, z0, **options)
    assert "max_steps" not in str(caught.value)


def test_control_terms_see_the_same_times():
    """The time that a `VectorField` gets obeys the same rule."""
    seen = []

    def field(t, z):
        seen.extend(t.tolist())
        return torch.ones(len(z), 1, 1, dtype=z.dtype)

    path = uneven_path()
    solve(path, torch.zeros(1, 1).double(), flow=ControlTerm(nc.fields.as_field(field)), solver="tsit5")
    assert max(seen) < 1.3


@pytest.mark.parametrize("gradient", ["checkpoint", "backprop", "backsolve"])
@pytest.mark.parametrize("steps", [nc.AtKnots(), nc.Adaptive()])
@pytest.mark.parametrize("grad", [False, True])
def test_a_field_in_another_precision(gradient, steps, grad):
    """The states have the precision of z0, and the values of fields and cells are converted to it."""
    path = some_path(31, count=4, rows=(2, 6), dtype=torch.float32)
    z0 = states(path, 3)

    class Double(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 3).double()

        def forward(self, t, z, x):
            return self.layer(z.double())

    class Cell(nn.Module):
        def forward(self, z, x):
            return z.double() / 2

    jump = Jump(Cell(), torch.zeros(len(path.knots), 1), torch.ones(len(path.knots), dtype=torch.bool))
    with torch.set_grad_enabled(grad):
        options = {"solver": "tsit5", "steps": steps, "gradient": gradient, "save": "knots"}
        found = solve(path, z0, flow=(flow := TimeTerm(Double())), jump=jump, **options)
    assert found.last.dtype == found.at_knots.dtype == torch.float32
    if grad:
        found.last.sum().backward()
        assert flow.field.layer.weight.grad.abs().max() > 0
