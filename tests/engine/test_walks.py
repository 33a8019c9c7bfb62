"""Walks on the native engine equal their plain twins: the same steps, the same states, the same adjoint gradients."""

import dataclasses
import functools

import pytest
import torch

import neuralcde as nc
from neuralcde._native import kernels
from neuralcde.solve import ControlTerm, SolveError, Status, solve, solvers
from neuralcde.solve.walks import Walker
from ragged_cases import SCHEMES, random_series
from solve_cases import Case, largest_difference, mlp, on_engine, smooth_path, some_flow, some_jump, some_path, states

pytestmark = pytest.mark.skipif(kernels is None, reason="the native kernels were not built or are turned off")

# Not tighter: where the error estimate is little more than rounding, the engines may choose other steps.
ADAPTIVE = [nc.Adaptive(1e-3, 1e-3), nc.Adaptive(1e-3, 1e-3, controller="pi")]


def on_both(monkeypatch, work):
    found = []
    for engine in ("native", "torch"):
        on_engine(monkeypatch, engine)
        found.append(work())
    return found


def rough_path(scheme, seed=3, count=21, dtype=torch.float64):
    """Series of different lengths and roughness, so that lanes are at different places."""
    drawn = random_series(seed, count=count, rows=(1, 7), channels=3, missing=0.2)
    scales = torch.logspace(-2, 1.2, count)
    pairs = [(one.times, scale * one.values) for one, scale in zip(drawn, scales, strict=True)]
    return SCHEMES[scheme](nc.IrregularSeries.from_list(pairs, dtype=dtype))


@pytest.mark.parametrize("solver", ["dopri5", "tsit5"])
@pytest.mark.parametrize("steps", ADAPTIVE, ids=["i", "pi"])
@pytest.mark.parametrize("scheme", ["natural_cubic", "rectilinear"])
@pytest.mark.parametrize(("flow", "jumps"), [("cde", False), ("cde", True), ("driven", True), ("autonomous", False)])
def test_the_same_steps_and_states(monkeypatch, solver, steps, scheme, flow, jumps):
    path = rough_path(scheme)
    z0, moves, jump = states(path, 3), some_flow(flow, path, 3), some_jump(path, 3) if jumps else None

    def work():
        walker = Walker(path, moves, jump, z0, solvers[solver], steps)
        return walker.walk(walker.programs, at_rows=True, before_jumps=True, keep_steps=True)

    native, plain = on_both(monkeypatch, work)
    assert native.engine.startswith("native")
    assert plain.engine.startswith("torch")
    if flow == "cde":
        assert plain.rejected.sum() > 0
        assert plain.accepted.sum() > len(path.coefficients)
    for name in ("finished", "accepted", "rejected", "evaluations", "stuck"):
        assert torch.equal(getattr(native, name), getattr(plain, name)), name
    for mine, theirs in zip(native.grid, plain.grid, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=0)
    close = {"rtol": 1e-9, "atol": 1e-10}
    torch.testing.assert_close(native.states, plain.states, **close)
    torch.testing.assert_close(native.at_rows, plain.at_rows, **close)
    torch.testing.assert_close(native.last, plain.last, **close)
    if jumps:
        torch.testing.assert_close(native.before_jumps, plain.before_jumps, **close)


@pytest.mark.parametrize("controller", ["i", "pi"])
@pytest.mark.parametrize("tolerance", [1e-3, 1e-6, 1e-8, 1e-9])
def test_the_same_steps_at_tight_tolerances(monkeypatch, tolerance, controller):
    """The error estimates of the two engines differ by rounding, the accepted times of three hundred series do not.

    A PI controller also grows steps by errors far below the tolerance, which are rounding at tolerances below 1e-6:
    there about one series in a hundred has a step of another length.
    """
    different = 0
    steps = nc.Adaptive(tolerance, tolerance / 100, max_steps=10**5, controller=controller)
    for seed in (100, 101, 102):
        path = some_path(seed, count=100, rows=(4, 8))
        walker = Walker(path, ControlTerm(mlp(path, 3, seed=seed)), None, states(path, 3), solvers["tsit5"], steps)
        work = functools.partial(walker.walk, at_rows=False, before_jumps=False, keep_steps=True)
        native, plain = on_both(monkeypatch, lambda walker=walker, work=work: work(walker.programs))
        for i in range(len(path)):
            grids = [walk.grid for walk in (native, plain)]
            steps_of = [slice(*grid.offsets[i : i + 2].tolist()) for grid in grids]
            mine, theirs = (
                torch.stack([grid.piece[one].double(), grid.start[one], grid.length[one]])
                for grid, one in zip(grids, steps_of, strict=True)
            )
            different += mine.shape != theirs.shape or not torch.allclose(mine, theirs, rtol=1e-9, atol=0)
    assert different <= (6 if controller == "pi" and tolerance < 1e-6 else 0)


@pytest.mark.parametrize("save", ["last", "knots", "dense"])
@pytest.mark.parametrize("jumps", [False, True])
def test_the_same_gradients(monkeypatch, save, jumps):
    """With gradients the accepted steps are constants; nothing is evaluated again forwards."""
    path = rough_path("natural_cubic", count=9)
    case = Case(path, states(path, 3), some_flow("cde", path, 3), some_jump(path, 3) if jumps else None)
    options = {"solver": "tsit5", "steps": ADAPTIVE[0], "save": save}
    native, plain = on_both(monkeypatch, lambda: case.gradients(**options))
    torch.testing.assert_close(native[1], plain[1], rtol=1e-9, atol=1e-9)
    assert largest_difference(native[2], plain[2]) < 1e-8
    repeated = native[0].stats.accepted * solvers["tsit5"].stages
    assert torch.equal(native[0].stats.evaluations + repeated, plain[0].stats.evaluations)
    for every in (3, 1000):
        on_engine(monkeypatch, "native")
        _, _, again = case.gradients(gradient=nc.Checkpoint(every=every), **options)
        assert largest_difference(again, native[2]) < 1e-12


def test_without_gradients_nothing_is_evaluated_twice():
    path = smooth_path()
    seen = []

    class Counting(nc.VectorField):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, t, z):
            seen.append(len(z))
            return self.inner(t, z)

    with torch.no_grad():
        solution = nc.solve_cde(
            path, Counting(mlp(path, 3)), states(path, 3), solver="tsit5", steps=nc.Adaptive(1e-5), save="knots"
        )
    assert sum(seen) == solution.stats.evaluations.sum()


@pytest.mark.parametrize("engine", ["native", "torch"])
@pytest.mark.parametrize("save", ["last", "knots"])
def test_early_stops(monkeypatch, engine, save):
    """A series that runs out of steps stops where it is, alone; one with a pole is named as such."""
    on_engine(monkeypatch, engine)
    path = some_path(96, scheme="linear", count=3, rows=(4, 4), missing=0)
    path.coefficients[path.piece_offsets[1] : path.piece_offsets[2], 1] *= 20
    options = {"solver": "tsit5", "steps": nc.Adaptive(1e-6, 1e-6, max_steps=12), "throw": False, "save": save}
    with torch.no_grad():
        found = solve(path, states(path, 2), flow=ControlTerm(mlp(path, 2)), **options)
    assert found.statuses.tolist() == [0, 2, 0]
    assert found.stats.engine.startswith(engine)
    whole = solve(path, states(path, 2), flow=ControlTerm(mlp(path, 2)), **{**options, "save": "dense"})
    torch.testing.assert_close(found.last, whole.last.detach(), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(found.reached, whole.reached, rtol=1e-9, atol=1e-9)
    if save == "knots":
        torch.testing.assert_close(found.at_knots, whole.at_knots.detach(), rtol=1e-9, atol=1e-9)


def wild_flow(path):
    """dz = (1 + 30 z) dX, made of layers that the engine knows: it overflows on long paths, never on short ones."""
    layer = torch.nn.Linear(1, path.channels).to(path.dtype)
    with torch.no_grad():
        layer.weight.fill_(300.0)
        layer.bias.fill_(1.0)
    return nc.fields.as_field(torch.nn.Sequential(layer, torch.nn.Unflatten(-1, (1, path.channels))))


@pytest.mark.parametrize("steps", [nc.Adaptive(1e-3, 1e-6, max_steps=10**6)])
def test_a_state_that_overflows_is_not_too_many_steps(monkeypatch, steps):
    path = nc.linear(nc.IrregularSeries.from_list([([0.0, 1.0], [[0.0], [0.1]]), ([0.0, 1.0], [[0.0], [9.0]])]))
    field = wild_flow(path)

    def work():
        with torch.no_grad():
            return nc.solve_cde(path, field, torch.zeros(2, 1), solver="tsit5", steps=steps, throw=False)

    native, plain = on_both(monkeypatch, work)
    for solution in (native, plain):
        assert solution.statuses.tolist() == [0, 1]
        assert solution.status is Status.not_finite
    assert native.reached[1] == pytest.approx(plain.reached[1].item(), rel=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_more_series_than_lanes(dtype):
    """Lanes take one series after another, in any number of threads, and each comes out as if it were alone."""
    path = rough_path("natural_cubic", seed=8, count=75, dtype=dtype)
    field, z0, jump = mlp(path, 5), states(path, 5), some_jump(path, 5)
    options = {"flow": ControlTerm(field), "solver": "dopri5", "steps": nc.Adaptive(1e-3, 1e-5), "save": "knots"}
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2, 7):
            torch.set_num_threads(threads)
            with torch.no_grad():
                results.append(solve(path, z0, jump=jump, **options))
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert torch.equal(other.at_knots, results[0].at_knots)
        assert torch.equal(other.last, results[0].last)
        assert torch.equal(other.stats.rejected, results[0].stats.rejected)
    for i in (0, 17, 74):
        rows = slice(path.series.offsets[i], path.series.offsets[i + 1])
        own = dataclasses.replace(jump, inputs=jump.inputs[rows], rows=jump.rows[rows])
        with torch.no_grad():
            alone = solve(path[i], z0[i : i + 1], jump=own, **options)
        assert torch.equal(alone.at_knots, results[0].at_knots[rows])


BACKWARD = [nc.AtKnots(), nc.AtKnots(3), nc.FixedSteps(0.3), nc.Adaptive(1e-5, 1e-7)]


@pytest.mark.parametrize("steps", BACKWARD, ids=["knots", "substeps", "fixed", "adaptive"])
@pytest.mark.parametrize("scheme", ["natural_cubic", "rectilinear"])
@pytest.mark.parametrize(("flow", "jumps"), [("cde", False), ("cde", True), ("driven", True), ("autonomous", True)])
@pytest.mark.parametrize("save", ["last", "knots"])
def test_the_same_adjoint(monkeypatch, steps, scheme, flow, jumps, save):
    path = rough_path(scheme, seed=5, count=11)
    case = Case(path, states(path, 3), some_flow(flow, path, 3), some_jump(path, 3) if jumps else None)
    options = {"solver": "dopri5", "steps": steps, "gradient": "backsolve", "save": save}
    native, plain = on_both(monkeypatch, lambda: case.gradients(**options))
    assert native[0].stats.engine.startswith("native")
    assert "torch" not in native[0].stats.engine
    torch.testing.assert_close(native[1], plain[1], rtol=1e-9, atol=1e-9)
    assert all(
        gradient.abs().max() > 0 for name, gradient in plain[2].items() if (name, flow) != ("path", "autonomous")
    )
    assert largest_difference(native[2], plain[2]) < (1e-7 if isinstance(steps, nc.Adaptive) else 1e-10)


def test_many_series_back(monkeypatch):
    """More series than lanes, in single precision, against the exact gradient."""
    path = rough_path("linear", seed=8, count=75, dtype=torch.float32)
    case = Case(path, states(path, 5), ControlTerm(mlp(path, 5)), some_jump(path, 5))
    # Paths of this roughness need 32 steps per gap; with 8 the adjoint's own error, in float64 too, is 0.012.
    options = {"solver": "tsit5", "steps": nc.AtKnots(32), "save": "knots"}
    on_engine(monkeypatch, "native")
    _, _, exact = case.gradients(**options)
    _, _, found = case.gradients(gradient="backsolve", **options)
    assert largest_difference(found, exact) < 2e-3


def test_too_many_steps_back():
    """dz = -300 z dX explodes on its way back; the error says so."""
    path = nc.linear(nc.IrregularSeries.from_list([([0.0, 1.0], [[0.0], [9.0]])], dtype=torch.float64))
    layer = torch.nn.Linear(1, 1).double()
    with torch.no_grad():
        layer.weight.fill_(-30.0)
        layer.bias.fill_(1.0)
    field = nc.fields.as_field(torch.nn.Sequential(layer, torch.nn.Unflatten(-1, (1, 1))))
    z0 = torch.ones(1, 1, dtype=torch.float64, requires_grad=True)
    steps = nc.Adaptive(1e-6, 1e-6, max_steps=150)
    last = nc.solve_cde(path, field, z0, solver="tsit5", steps=steps, gradient="backsolve").last
    with pytest.raises(SolveError, match=r"1 of 1 series need more than 150 backward steps .* use gradient="):
        last.sum().backward()


@pytest.mark.wrong_types
def test_unknown_controllers_are_refused():
    with pytest.raises(ValueError, match=r"controller='pid' is not one of \['i', 'pi'\]"):
        nc.Adaptive(controller="pid")
