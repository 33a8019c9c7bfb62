"""gradient="reversible": gradients of the discretisation from steps that are undone, with few stored states."""

import dataclasses
import math

import pytest
import torch

import neuralcde as nc
from neuralcde._native import kernels
from neuralcde.solve import ControlTerm, solve, solvers
from neuralcde.solve.step import runge_kutta
from solve_cases import Case, largest_difference, mlp, on_engine, smooth_path, some_flow, some_jump, some_path, states

STEPS = [nc.AtKnots(8), nc.FixedSteps(0.1)]  # short ones, where undoing them is accurate


def test_a_step_back_undoes_a_step_to_order_five():
    """From z to z + step and back: the error falls with the sixth power of the step."""
    matrix = torch.tensor([[0.0, 1.0], [-1.3, 0.2]], dtype=torch.float64)
    z = torch.tensor([[0.4, -1.0]], dtype=torch.float64)

    def there_and_back(tableau, h):
        def increment(sign):
            return lambda stage, y: sign * h * torch.tanh(y @ matrix.T + y**2)

        away = runge_kutta(tableau, increment(1), z).end
        return float((runge_kutta(tableau, increment(-1), away).end - z).abs().max())

    for name, tableau in ((name, solvers[name]) for name in solvers):
        order = math.log2(there_and_back(tableau, 0.2) / there_and_back(tableau, 0.1))
        if tableau.reversible:
            assert order > 5.5, name
            assert tableau.order == 2


@pytest.mark.parametrize("steps", STEPS, ids=str)
@pytest.mark.parametrize(("flow", "jumps"), [("cde", False), ("cde", True), ("driven", True), ("autonomous", True)])
@pytest.mark.parametrize("scheme", ["natural_cubic", "rectilinear"])
def test_close_to_checkpoint(engine, steps, flow, jumps, scheme):
    path = some_path(61, scheme=scheme, count=9, rows=(1, 6))
    case = Case(path, states(path, 3), some_flow(flow, path, 3), some_jump(path, 3) if jumps else None)
    # A step size in time leaves the vertical pieces of rectilinear paths at one long step, which is not undone
    # accurately: every state is stored, and the gradient is exact.
    long = scheme == "rectilinear" and isinstance(steps, nc.FixedSteps)
    every, tolerance = (1, 1e-12) if long else (3, 1e-4)
    for save in ("last", "knots"):
        options = {"solver": "ees25", "steps": steps, "save": save}
        _, expected_states, expected = case.gradients(**options)
        solution, found_states, found = case.gradients(gradient=nc.Reversible(every=every), **options)
        assert solution.stats.engine.startswith(engine)
        torch.testing.assert_close(found_states, expected_states, rtol=1e-12, atol=1e-12)
        assert largest_difference(found, expected) < tolerance


@pytest.mark.skipif(kernels is None, reason="the native kernels were not built or are turned off")
@pytest.mark.parametrize("every", [1, 4, 1000])
def test_native_equals_plain(monkeypatch, every):
    path = some_path(62, count=21, rows=(1, 7))
    case = Case(path, states(path, 3), ControlTerm(mlp(path, 3)), some_jump(path, 3))
    found = []
    for engine in ("native", "torch"):
        on_engine(monkeypatch, engine)
        found.append(case.gradients(solver="ees25", steps=nc.AtKnots(6), gradient=nc.Reversible(every), save="knots"))
    assert found[0][0].stats.engine.startswith("native")
    assert largest_difference(found[0][2], found[1][2]) < 1e-10
    if every == 1:
        on_engine(monkeypatch, "native")
        _, _, exact = case.gradients(solver="ees25", steps=nc.AtKnots(6), save="knots")
        assert largest_difference(found[0][2], exact) < 1e-12


def test_single_precision_over_many_steps(engine):
    """Within 1e-4 of the gradient with stored states, over thousands of steps."""
    path = smooth_path(count=2, rows=4).to(torch.float32)
    case = Case(path, states(path, 4), ControlTerm(mlp(path, 4, width=8)))
    options = {"solver": "ees25", "steps": nc.AtKnots(1500 if engine == "native" else 60)}
    _, _, expected = case.gradients(**options)
    _, _, found = case.gradients(gradient="reversible", **options)
    assert largest_difference(found, expected) < 1e-4


def test_states_between_knots(engine):
    case = Case(*(lambda path: (path, states(path, 3), ControlTerm(mlp(path, 3))))(smooth_path()))
    asked = torch.tensor([0.3, 1.1], dtype=torch.float64)
    options = {"solver": "ees25", "steps": nc.AtKnots(8), "save": asked}
    _, _, expected = case.gradients(**options)
    _, _, found = case.gradients(gradient="reversible", **options)
    assert largest_difference(found, expected) < 1e-6


def test_what_cannot_be_undone_is_refused():
    path = smooth_path()
    for solver in ("rk4", "heun", "tsit5"):
        with pytest.raises(ValueError, match=f"a solver whose steps can be undone, such as .ees25., got '{solver}'"):
            nc.solve_cde(path, mlp(path, 3), states(path, 3), solver=solver, gradient="reversible")
    embedded = dataclasses.replace(solvers["tsit5"], name="mine", reversible=True)
    with pytest.raises(ValueError, match="needs fixed steps"):
        nc.solve_cde(path, mlp(path, 3), states(path, 3), solver=embedded, steps=nc.Adaptive(), gradient="reversible")
    with pytest.raises(ValueError, match=r"reversible.* needs the parameters of the field, but the field is a plain"):
        nc.solve_cde(path, lambda t, z: mlp(path, 3)(t, z), states(path, 3), solver="ees25", gradient="reversible")


def test_jumps_alone(engine):
    path = some_path(72)
    case = Case(path, states(path, 3), None, some_jump(path, 3))
    _, _, expected = case.gradients()
    _, _, found = case.gradients(gradient="reversible")
    assert largest_difference(found, expected) < 1e-12


def test_only_stored_states_are_kept():
    """The native walk stores one state per `every` steps of a series."""
    if kernels is None:
        pytest.skip("the native kernels were not built or are turned off")
    path = smooth_path(count=3, rows=4)
    field, z0 = mlp(path, 3), states(path, 3).requires_grad_()
    for every, expected in ((1000, 3 * 2), (500, 3 * 3), (5000, 3)):
        solution = solve(
            path,
            z0,
            flow=ControlTerm(field),
            solver="ees25",
            steps=nc.AtKnots(500),
            gradient=nc.Reversible(every=every),
        )
        stored = solution.last.grad_fn.back.found.stored
        assert len(stored) == expected
