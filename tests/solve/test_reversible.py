"""gradient="reversible": gradients of the discretisation from steps that are undone, with few stored states."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import neuralcde as nc
from neuralcde._native import kernels
from neuralcde.solve import ControlTerm, solve, solvers
from solve_cases import Case, largest_difference, mlp, on_engine, smooth_path, some_flow, some_jump, some_path, states

STEPS = [nc.AtKnots(8), nc.FixedSteps(0.1)]  # short ones, where undoing them is accurate
REVERSIBLE = {"ees25": 1e-4, "reversible_heun": 1e-10}  # how close the gradient is to that of "checkpoint"


def there_and_back(solver, h, steps=1):
    """How far z is from its start after steps of length h and as many back, for a field that depends on time."""
    matrix = torch.tensor([[0.0, 1.0], [-1.3, 0.2]], dtype=torch.float64)
    start = state = solver.carry(torch.tensor([[0.4, -1.0]], dtype=torch.float64))

    def increment(number, sign):
        low = number if sign > 0 else number + 1
        return lambda node, y: sign * h * torch.tanh(y @ matrix.T + y**2 + h * (low + sign * node))

    for number in range(steps):
        state = solver.step(increment(number, 1), state)
    away = float((state - start).abs().max())
    for number in reversed(range(steps)):
        state = solver.step(increment(number, -1), state)
    assert away > h / 2
    return float((state - start).abs().max())


def test_which_solvers_undo_their_steps():
    """A step back of EES(2,5) leaves an error that falls with the sixth power of the step, reversible Heun none."""
    assert [name for name in solvers if solvers[name].reversible] == list(REVERSIBLE)
    small = there_and_back(solvers["ees25"], 0.1)
    assert small > 1e-12
    assert there_and_back(solvers["ees25"], 0.2) / small > 2**5.5
    assert there_and_back(solvers["reversible_heun"], 1.0) < 1e-15  # however long the step
    assert there_and_back(solvers["reversible_heun"], 0.1, steps=200) < 1e-11


def test_reversible_heun_by_hand():
    """The recursion of the docstring, over each series alone; X' is that of the piece on either side of a knot."""
    path = some_path(63, scheme="hermite", count=3, rows=(2, 5))
    field, z0 = mlp(path, 3), states(path, 3)
    found = nc.solve_cde(path, field, z0, solver="reversible_heun", steps=nc.AtKnots(2), save="knots").at_knots
    for i in range(len(path)):
        one, z, y, rows = path[i], z0[i : i + 1], z0[i : i + 1], [z0[i]]
        for left, right in itertools.pairwise(one.knots):
            h = (right - left) / 2
            for start in (left, left + h):
                here, there = start, right if start > left else left + h
                k = field.prod(here[None], y, one.derivative(here) * h)
                y = 2 * z - y + k
                z = z + (k + field.prod(there[None], y, one.derivative(there, side="left") * h)) / 2
            rows.append(z[0])
        of = slice(path.series.offsets[i], path.series.offsets[i + 1])
        torch.testing.assert_close(found[of], torch.stack(rows), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("steps", STEPS, ids=str)
@pytest.mark.parametrize(("flow", "jumps"), [("cde", False), ("cde", True), ("driven", True), ("autonomous", True)])
@pytest.mark.parametrize("scheme", ["natural_cubic", "rectilinear"])
def test_close_to_checkpoint(engine, steps, flow, jumps, scheme):
    check_close_to_checkpoint("ees25", engine, steps, flow, jumps, scheme)


@pytest.mark.parametrize("steps", STEPS, ids=str)
@pytest.mark.parametrize(("flow", "jumps"), [("cde", True), ("driven", False)])
@pytest.mark.parametrize("scheme", ["natural_cubic", "rectilinear"])
def test_reversible_heun_equals_checkpoint(steps, flow, jumps, scheme):
    check_close_to_checkpoint("reversible_heun", "torch", steps, flow, jumps, scheme)


def check_close_to_checkpoint(solver, engine, steps, flow, jumps, scheme):
    path = some_path(61, scheme=scheme, count=9, rows=(1, 6))
    case = Case(path, states(path, 3), some_flow(flow, path, 3), some_jump(path, 3) if jumps else None)
    # A step size in time leaves the vertical pieces of rectilinear paths at one long step, which is not undone
    # accurately: every state is stored, and the gradient is exact.
    long = scheme == "rectilinear" and isinstance(steps, nc.FixedSteps)
    every, tolerance = (1, 1e-12) if long and solver == "ees25" else (3, REVERSIBLE[solver])
    for save in ("last", "knots"):
        options = {"solver": solver, "steps": steps, "save": save}
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


@pytest.mark.parametrize(("solver", "engine"), [("ees25", "native"), ("ees25", "torch"), ("reversible_heun", "torch")])
def test_single_precision_over_many_steps(solver, engine, monkeypatch):
    """Within 1e-4 of the gradient with stored states, over thousands of steps."""
    on_engine(monkeypatch, engine)
    path = smooth_path(count=2, rows=4).to(torch.float32)
    case = Case(path, states(path, 4), ControlTerm(mlp(path, 4, width=8)))
    options = {"solver": solver, "steps": nc.AtKnots(1500 if engine == "native" else 60)}
    _, _, expected = case.gradients(**options)
    _, _, found = case.gradients(gradient="reversible", **options)
    assert largest_difference(found, expected) < 1e-4


@pytest.mark.parametrize(
    ("solver", "engine", "tolerance"),
    [("ees25", "native", 1e-6), ("ees25", "torch", 1e-6), ("reversible_heun", "torch", 1e-12)],
)
def test_states_between_knots(solver, engine, tolerance, monkeypatch):
    on_engine(monkeypatch, engine)
    case = Case(*(lambda path: (path, states(path, 3), ControlTerm(mlp(path, 3))))(smooth_path()))
    asked = torch.tensor([0.3, 1.1], dtype=torch.float64)
    options = {"solver": solver, "steps": nc.AtKnots(8), "save": asked}
    _, _, expected = case.gradients(**options)
    _, _, found = case.gradients(gradient="reversible", **options)
    assert largest_difference(found, expected) < tolerance


def test_what_cannot_be_undone_is_refused():
    path = smooth_path()
    for solver in ("rk4", "heun", "tsit5"):
        with pytest.raises(ValueError, match=f'steps can be undone, "ees25" or "reversible_heun", got \'{solver}\''):
            nc.solve_cde(path, mlp(path, 3), states(path, 3), solver=solver, gradient="reversible")
    embedded = dataclasses.replace(solvers["tsit5"], name="mine", reversible=True)
    with pytest.raises(ValueError, match="needs fixed steps"):
        nc.solve_cde(path, mlp(path, 3), states(path, 3), solver=embedded, steps=nc.Adaptive(), gradient="reversible")
    for options, message in (
        ({"steps": nc.Adaptive()}, "Adaptive needs a solver with an error estimate .*, got 'reversible_heun'"),
        ({"gradient": "backsolve"}, "needs a Runge-Kutta method, got 'reversible_heun'; use gradient=\"reversible\""),
    ):
        with pytest.raises(ValueError, match=message):
            nc.solve_cde(path, mlp(path, 3), states(path, 3), solver="reversible_heun", **options)
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


def test_reversible_heun_keeps_one_state_per_thousand_steps():
    """The backward pass holds z and its companion at steps 0, 1000, ... and at the end: nothing else of the steps."""
    path, hidden = smooth_path(count=3, rows=4), 3
    options = {"solver": "reversible_heun", "steps": nc.AtKnots(500)}
    for every, expected in ((1000, 3), (500, 4), (5000, 2)):
        z0 = states(path, hidden).requires_grad_()
        gradient = nc.Reversible(every=every)
        node = nc.solve_cde(path, mlp(path, hidden), z0, gradient=gradient, **options).last.grad_fn
        while type(node).__name__ != "_AdjointBackward":
            node = node.next_functions[0][0]
        kept = node.saved_tensors[0]
        assert kept.shape == (3 * expected, 2 * hidden)
        # Views of larger tensors would keep these.
        assert kept.untyped_storage().nbytes() == kept.numel() * kept.element_size()


class LargeTensors(TorchDispatchMode):
    """Keeps all tensors of at least so many bytes, each memory once."""

    def __init__(self, least):
        super().__init__()
        self.least, self.kept = least, {}

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        found = function(*arguments, **(options or {}))
        for part in found if isinstance(found, tuple | list) else [found]:
            if isinstance(part, torch.Tensor) and part.untyped_storage().nbytes() >= self.least:
                self.kept.setdefault(part.untyped_storage().data_ptr(), part)
        return found


@pytest.mark.parametrize("solver", ["ees25", "reversible_heun"])
def test_plain_solves_hold_the_stored_states_once(solver, monkeypatch):
    """No copy in another order, and no gradient of states that nobody asked for."""
    on_engine(monkeypatch, "torch")
    path, hidden = smooth_path(count=3, rows=4), 40
    field, z0 = mlp(path, hidden), states(path, hidden).requires_grad_()
    carried = hidden if solver == "ees25" else 2 * hidden
    stored = 3 * (3 * 50 + 1) * carried * z0.element_size()
    with LargeTensors(stored // 2) as large:
        options = {"solver": solver, "steps": nc.AtKnots(50), "gradient": nc.Reversible(every=1)}
        nc.solve_cde(path, field, z0, **options).last.sum().backward()
    assert [part.untyped_storage().nbytes() for part in large.kept.values()] == [stored]


def test_an_estimator_with_reversible_heun(tmp_path):
    """It fits and is saved by its name; streams, which carry the state alone from row to row, refuse it."""
    rng = np.random.default_rng(0)
    series = nc.IrregularSeries.from_padded(rng.normal(size=(12, 5, 2)))
    options = {"hidden": 4, "width": 4, "depth": 1, "max_epochs": 1, "random_state": 0, "members": 1}
    clf = nc.NeuralCDEClassifier(solver=solvers["reversible_heun"], **options).fit(series, np.arange(12) % 2)
    clf.save(tmp_path)
    loaded = nc.load(tmp_path)
    assert loaded.solver == "reversible_heun"
    assert np.array_equal(loaded.predict_proba(series), clf.predict_proba(series))
    assert clf.predict_proba_at(series, [2.0]).shape == (12, 1, 2)
    with pytest.raises(ValueError, match="'reversible_heun' carries more than the state"):
        clf.stream()


def test_reversible_heun_starts_again_after_jumps():
    """Of order 2 with jumps too: a companion left behind by a jump would be off by the size of the jump."""
    path = smooth_path()
    case = Case(path, states(path, 3), ControlTerm(mlp(path, 3)), some_jump(path, 3))
    exact = case.solve(solver="tsit5", steps=nc.AtKnots(20)).last
    coarse, fine = (
        (case.solve(solver="reversible_heun", steps=nc.AtKnots(k)).last - exact).abs().max().item() for k in (8, 16)
    )
    assert math.log2(coarse / fine) == pytest.approx(2, abs=0.35)
