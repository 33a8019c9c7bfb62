"""The error estimate by step doubling."""

import pytest
import torch
from closed_forms import CLOSED_FORMS

import neuralcde as nc
from neuralcde.solve import solve
from solve_cases import SOLVERS, mlp, smooth_path, some_flow, some_jump, some_path, states


def turning(count=3):
    """Smooth monotone paths, on which errors add up instead of cancelling."""
    times = torch.linspace(0, 2, 5, dtype=torch.float64)
    pairs = [(times, torch.exp((0.3 + 0.2 * i) * times)[:, None]) for i in range(count)]
    return nc.natural_cubic(nc.IrregularSeries.from_list(pairs, dtype=torch.float64))


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("problem", ["linear", "logistic", "tangent"])
def test_within_a_factor_of_three_of_the_true_error(problem, solver):
    form, path = CLOSED_FORMS[problem], turning()
    low, high = path.interval.unbind(1)
    exact = form.end(form.z0(3), (path.evaluate(high[:, None]) - path.evaluate(low[:, None]))[:, 0])
    substeps = {"euler": 8, "midpoint": 4, "heun": 4, "ralston": 4, "reversible_heun": 8}.get(solver, 1)
    solution = nc.solve_cde(
        path, form.field, form.z0(3), solver=solver, steps=nc.AtKnots(substeps=substeps), error=True
    )
    true = (solution.last - exact).abs().amax(1)
    assert (true > 1e-13).all()
    factor = 1.5 if solver == "euler" else 3  # without extrapolation Euler's estimate would be half of the error
    assert (solution.stats.error < factor * true).all()
    assert (solution.stats.error > true / factor).all()


def test_on_both_engines_and_only_on_request(engine):
    path = smooth_path()
    field, z0 = mlp(path, 3), states(path, 3)
    assert nc.solve_cde(path, field, z0).stats.error is None
    fine = nc.solve_cde(path, field, z0, solver="tsit5", steps=nc.AtKnots(substeps=20)).last
    for steps in (nc.AtKnots(), nc.FixedSteps(0.25)):
        plain = nc.solve_cde(path, field, z0, steps=steps)
        solution = nc.solve_cde(path, field, z0, steps=steps, error=True)
        assert torch.equal(solution.last, plain.last)
        assert solution.stats.evaluations.tolist() == plain.stats.evaluations.tolist()
        true = (solution.last - fine).abs().amax(1)
        assert ((solution.stats.error < 3 * true) & (solution.stats.error > true / 3)).all()
        assert not solution.stats.error.requires_grad


def test_with_jumps_and_adaptive_steps(engine):
    path = smooth_path()
    flow, jump, z0 = some_flow("driven", path, 3), some_jump(path, 3), states(path, 3)
    fine = solve(path, z0, flow=flow, jump=jump, solver="tsit5", steps=nc.AtKnots(substeps=20)).last
    for options in ({"solver": "heun", "steps": nc.AtKnots(2)}, {"solver": "tsit5", "steps": nc.Adaptive(1e-2, 1e-2)}):
        solution = solve(path, z0, flow=flow, jump=jump, error=True, **options)
        true = (solution.last - fine).abs().amax(1)
        assert (true > 1e-13).all()
        assert ((solution.stats.error < 5 * true) & (solution.stats.error > true / 5)).all()


def test_a_series_of_one_knot_has_no_error():
    path = some_path(101, rows=(1, 1))
    solution = nc.solve_cde(path, mlp(path, 3), states(path, 3), error=True)
    assert solution.stats.error.tolist() == [0] * 5


def test_jumps_alone_have_no_error_estimate():
    path = some_path(102)
    assert solve(path, states(path, 3), jump=some_jump(path, 3), error=True).stats.error is None
