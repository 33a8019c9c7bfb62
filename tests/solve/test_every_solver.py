"""Conformance tests: every solver on every path scheme, on both engines."""

import dataclasses
import functools
import json
import math

import pytest
import torch
from closed_forms import CLOSED_FORMS
from sklearn.base import clone

import neuralcde as nc
from neuralcde.estimators.parts import part_from_config, part_to_config
from neuralcde.solve import solvers
from neuralcde.solve.solvers import as_solver
from ragged_cases import SCHEMES, random_series
from solve_cases import (
    CUBIC,
    EXACT_ON_CUBICS,
    SOLVERS,
    STRAIGHT,
    TABLEAUX,
    identity_field,
    mlp,
    ran_on,
    smooth_path,
    some_path,
    states,
)


def rise(path):
    """X(T) - X(0) of every series."""
    low, high = path.interval.unbind(1)
    return (path.evaluate(high[:, None]) - path.evaluate(low[:, None], side="left"))[:, 0]


@pytest.mark.parametrize("solver", SOLVERS)
class TestIdentityField:
    """With f = identity the increment of z is that of X: no piece is skipped and none is taken twice."""

    def error(self, path, **options):
        z0 = states(path, path.channels)
        solution = nc.solve_cde(path, identity_field(path.channels), z0, **options)
        return solution, (solution.last - z0 - rise(path)).abs().max().item()

    @pytest.mark.parametrize("scheme", STRAIGHT)
    def test_exact_on_straight_pieces(self, solver, scheme, engine):
        solution, error = self.error(some_path(5, scheme=scheme, rows=(1, 12)), solver=solver)
        assert ran_on(solution, engine if solver in TABLEAUX else "torch")
        assert error < 1e-12

    @pytest.mark.parametrize("scheme", CUBIC)
    def test_on_cubic_pieces(self, solver, scheme, engine):
        path = some_path(6, scheme=scheme, rows=(1, 12))
        if solver in EXACT_ON_CUBICS:
            for steps in (nc.AtKnots(), nc.AtKnots(substeps=3), nc.FixedSteps(0.4)):
                assert self.error(path, solver=solver, steps=steps)[1] < 1e-12
        else:
            coarse, fine = (self.error(path, solver=solver, steps=nc.AtKnots(substeps=k))[1] for k in (8, 16))
            assert math.log2(coarse / fine) == pytest.approx(solvers[solver].order, abs=0.15)

    def test_at_every_knot(self, solver, engine):
        path = some_path(7, scheme="rectilinear", rows=(1, 12))
        z0 = torch.zeros(len(path), path.channels, dtype=torch.float64)
        solution = nc.solve_cde(path, identity_field(path.channels), z0, solver=solver, save="knots")
        for i, series in enumerate(path.series):
            along = path[i].evaluate(series.times) - path[i].evaluate(series.times[:1], side="left")
            states = solution.at_knots[path.series.offsets[i] : path.series.offsets[i + 1]]
            torch.testing.assert_close(states, along[0], rtol=0, atol=1e-12)


def smooth_problem():
    path = smooth_path()
    return path, mlp(path, 3), states(path, 3)


@functools.cache
def fine_end():
    """The final state of the smooth problem, accurate to rounding."""
    with torch.no_grad():
        return nc.solve_cde(*smooth_problem(), solver="tsit5", steps=nc.AtKnots(substeps=40)).last


@pytest.mark.parametrize("solver", SOLVERS)
def test_order_of_convergence(solver, engine):
    """Halving the steps divides the error by 2^order, on a smooth path and a smooth field."""
    path, field, z0 = smooth_problem()
    order, exact = solvers[solver].order, fine_end()
    substeps = {1: 16, 2: 8, 3: 6, 4: 4, 5: 2}[order]
    errors = []
    for k in (substeps, 2 * substeps):
        solution = nc.solve_cde(path, field, z0, solver=solver, steps=nc.AtKnots(substeps=k))
        assert ran_on(solution, engine if solver in TABLEAUX else "torch")
        errors.append((solution.last - exact).abs().max().item())
    assert errors[1] > 1e-13
    assert math.log2(errors[0] / errors[1]) == pytest.approx(order, abs=0.35)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("problem", CLOSED_FORMS)
def test_closed_forms(problem, scheme):
    """Also on rough data: z(T) depends only on X(T) - X(0)."""
    form = CLOSED_FORMS[problem]
    path = SCHEMES[scheme](random_series(8, count=3, rows=(3, 4), channels=form.channels, missing=0.2))
    solution = nc.solve_cde(path, form.field, form.z0(3), solver="tsit5", steps=nc.AtKnots(substeps=20))
    torch.testing.assert_close(solution.last, form.end(form.z0(3), rise(path)), rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("solver", SOLVERS)
def test_order_against_a_closed_form(solver):
    form, times = CLOSED_FORMS["logistic"], torch.linspace(0, 2, 4, dtype=torch.float64)
    pairs = [(times, torch.exp(rate * times)[:, None]) for rate in (0.3, 0.5, 0.7)]  # monotone: no cancellation
    path = nc.natural_cubic(nc.IrregularSeries.from_list(pairs, dtype=torch.float64))
    exact = form.end(form.z0(3), rise(path))
    order = solvers[solver].order
    substeps = {1: 16, 2: 8, 3: 4, 4: 2, 5: 3}[order]
    coarse, fine = (
        (nc.solve_cde(path, form.field, form.z0(3), solver=solver, steps=nc.AtKnots(substeps=k)).last - exact)
        .abs()
        .max()
        for k in (substeps, 2 * substeps)
    )
    assert fine > 1e-14
    assert math.log2(coarse / fine) == pytest.approx(order, abs=0.5)


def test_area_under_a_broken_line():
    """dz_1 = dX_1, dz_2 = z_1 dX_2: on linear pieces z_2 is a sum of trapezoids, for which rk4 is exact."""
    path = some_path(9, scheme="linear", channels=2, rows=(2, 9), missing=0)

    def field(t, z):
        matrix = z.new_zeros(len(z), 2, 2)
        matrix[:, 0, 0], matrix[:, 1, 1] = 1.0, z[:, 0]
        return matrix

    found = nc.solve_cde(path, field, torch.zeros(len(path), 2, dtype=torch.float64)).last
    for i, series in enumerate(path.series):
        x, y = series.values.T
        area = (((x[1:] + x[:-1]) / 2 - x[0]) * y.diff()).sum()
        assert found[i, 1].item() == pytest.approx(area.item(), abs=1e-12)


@pytest.mark.parametrize("solver", SOLVERS)
def test_t_is_the_time_since_the_start_of_each_series(solver):
    """dz = cos(t) dt along the time channel: z = sin(t - t_0), for series that start at different times."""
    pairs = [
        (start + torch.linspace(0, 2, n, dtype=torch.float64), torch.zeros(n, 1)) for start, n in ((-3.0, 4), (1e9, 6))
    ]
    path = nc.linear(nc.IrregularSeries.from_list(pairs, dtype=torch.float64).with_channels())

    def field(t, z):
        return torch.stack([torch.cos(t), torch.zeros_like(t)], 1)[:, None]

    order = solvers[solver].order
    z0 = torch.zeros(2, 1, dtype=torch.float64)
    last = nc.solve_cde(path, field, z0, solver=solver, steps=nc.AtKnots(substeps=20)).last
    assert (last - math.sin(2.0)).abs().max() < {1: 3e-2, 2: 1e-3, 3: 1e-4, 4: 1e-7, 5: 1e-7}[order]


def test_a_custom_tableau():
    """The classic fourth-order method, which is not the solver "rk4" of the package."""
    classic = nc.Tableau(
        "classic",
        4,
        "Kutta 1901",
        a=((), (0.5,), (0.0, 0.5), (0.0, 0.0, 1.0)),
        b=(1 / 6, 1 / 3, 1 / 3, 1 / 6),
        c=(0, 0.5, 0.5, 1),
    )
    path = smooth_path()
    field, z0 = mlp(path, 3), states(path, 3)
    ours, theirs = (nc.solve_cde(path, field, z0, solver=solver) for solver in ("rk4", classic))
    assert theirs.stats.evaluations.tolist() == [20, 20, 20]
    assert 0 < (ours.last - theirs.last).abs().max() < 1e-3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"a": ((), (1.0, 0.5))}, "'own' is not explicit: row i of a must have i entries"),
        ({"a": ((),)}, "not explicit"),
        ({"c": (0.0,)}, "not explicit"),
        ({"b": ()}, "needs 1 to 2 weights b"),
        ({"b": (0.2, 0.3, 0.5)}, "needs 1 to 2 weights b"),
        ({"b_error": (1.0,)}, "0 or 2 weights b_error, one per stage; got 2 and 1"),
    ],
)
def test_invalid_tableaux_are_refused(changes, message):
    right = {"a": ((), (1.0,)), "b": (0.5, 0.5), "c": (0.0, 1.0)}
    with pytest.raises(ValueError, match=message):
        nc.Tableau("own", 2, "nobody", **{**right, **changes})


@pytest.mark.parametrize("solver", SOLVERS)
class TestAsAPart:
    """The suites of the engine compare both engines for every solver, and batches with single series."""

    def test_saved_and_found_by_name(self, solver):
        tableau = as_solver(solver)
        if solver not in TABLEAUX:
            assert part_from_config("solver", part_to_config("solver", clone(tableau, safe=False))) == solver
            return
        again = nc.Tableau.from_config(json.loads(json.dumps(tableau.to_config())))
        assert again == tableau
        assert hash(again) == hash(tableau)
        assert clone(tableau, safe=False) == tableau
        assert tableau.name == solver
        assert tableau.citation
        path = some_path(10)
        ours, theirs = (nc.solve_cde(path, mlp(path, 3), states(path, 3), solver=s).last for s in (solver, again))
        assert torch.equal(ours, theirs)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_keeps_the_type_of_the_state(self, solver, dtype, engine):
        path = some_path(11, dtype=dtype)
        solution = nc.solve_cde(path, mlp(path, 3), states(path, 3), solver=solver, save="knots")
        assert solution.last.dtype == solution.at_knots.dtype == dtype

    def test_a_batch_is_its_series_one_by_one(self, solver, engine):
        path = some_path(12, count=4, rows=(1, 5))
        field, z0 = mlp(path, 3), states(path, 3)
        together = nc.solve_cde(path, field, z0, solver=solver).last
        for i in range(len(path)):
            alone = nc.solve_cde(path[i], field, z0[i : i + 1], solver=solver).last
            torch.testing.assert_close(alone, together[i : i + 1], rtol=1e-13, atol=1e-13)

    def test_gradients(self, solver, engine):
        path = some_path(13, count=2, rows=(2, 3), channels=2)
        field = mlp(path, 2)

        def last(z0, coefficients):
            moved = dataclasses.replace(path, coefficients=coefficients)
            return nc.solve_cde(moved, field, z0, solver=solver).last

        inputs = states(path, 2).requires_grad_(), path.coefficients.detach().requires_grad_()
        assert torch.autograd.gradcheck(last, inputs, fast_mode=True)


@pytest.mark.parametrize("solver", TABLEAUX)
def test_order_conditions(solver):
    """In every tableau the rows of a sum to c, and the quadrature is exact up to the order."""
    method = solvers[solver]
    assert [sum(row) for row in method.a] == pytest.approx(method.c, abs=1e-14)
    for power in range(method.order):
        quadrature = sum(b * c**power for b, c in zip(method.b, method.c, strict=False))
        assert quadrature == pytest.approx(1 / (power + 1), abs=1e-14)
    if method.b_error:
        assert method.first_same_as_last
        assert sum(method.b_error) == pytest.approx(0, abs=1e-14)
        # The embedded method has order 4: its quadrature is exact for t^3 but not for t^4.
        for power, exact in ((1, True), (2, True), (3, True), (4, False)):
            off = sum(b * c**power for b, c in zip(method.b_error, method.c, strict=True))
            assert (abs(off) < 1e-12) == exact


def test_a_tableau_of_lists():
    own = nc.Tableau("own", 2, "", a=[[], [1.0], [0.5, 0.5]], b=[0.5, 0.5], c=[0, 1, 1], b_error=[0.5, -0.5, 0])
    assert own.first_same_as_last
    path = nc.linear(nc.IrregularSeries.from_list([([0.0, 1.0, 3.0], [[0.0], [2.0], [5.0]])]))
    assert nc.solve_cde(path, lambda t, z: torch.ones(len(z), 1, 1), torch.zeros(1, 1), solver=own).last.item() == 5
