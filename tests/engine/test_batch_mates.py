"""The result of a series does not depend on the other series of its batch: bitwise on the native engine."""

import dataclasses

import pytest
import torch

import neuralcde as nc
from neuralcde._native import kernels
from neuralcde.engine import native
from neuralcde.fields import as_field
from neuralcde.solve import ControlTerm, Jump, solve
from solve_cases import Case, mlp, on_engine, some_flow, some_jump, some_path, states

DTYPES = [torch.float32, torch.float64]


@pytest.fixture(autouse=True)
def on_native(monkeypatch):
    if kernels is None:
        pytest.skip("the native kernels were not built or are turned off")
    on_engine(monkeypatch, "native")


def batch(dtype, count=37, flow="cde", scheme="natural_cubic", hidden=9, jumps=True):
    path = some_path(21, scheme=scheme, count=count, rows=(1, 9), dtype=dtype)
    return path, states(path, hidden), some_flow(flow, path, hidden), some_jump(path, hidden) if jumps else None


def part_of(jump, path, chosen):
    """The jump of the chosen series."""
    rows = torch.cat([torch.arange(path.series.offsets[i], path.series.offsets[i + 1]) for i in chosen])
    return None if jump is None else Jump(jump.cell, jump.inputs[rows], jump.rows[rows])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("flow", ["cde", "driven", "autonomous"])
@pytest.mark.parametrize("activation", ["relu", "silu"])
def test_alone_or_in_a_batch(dtype, flow, activation):
    path, z0, moves, jump = batch(dtype, flow=flow)
    if flow == "cde":
        moves = ControlTerm(mlp(path, 9, activation=activation))
    together = solve(path, z0, flow=moves, jump=jump, save="knots")
    assert together.stats.engine.startswith("native")
    for i in range(len(path)):
        alone = solve(path[i], z0[i : i + 1], flow=moves, jump=part_of(jump, path, [i]), save="knots")
        rows = slice(path.series.offsets[i], path.series.offsets[i + 1])
        assert torch.equal(alone.at_knots, together.at_knots[rows])
        assert torch.equal(alone.last, together.last[i : i + 1])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("hidden", [1, 16, 30, 64])
@pytest.mark.parametrize("steps", [nc.AtKnots(), nc.AtKnots(substeps=3)])
def test_few_series_have_the_bits_of_a_tile(dtype, hidden, steps):
    """Few series run one after another, and then the lanes of a register are features; with and without gradients."""
    path, z0, _, jump = batch(dtype, hidden=hidden)
    for field in (
        mlp(path, hidden, width=33, depth=2, activation="relu"),
        nc.LowRankField(path.channels, hidden, rank=3, width=20).to(dtype),
    ):
        together = solve(path, z0, flow=ControlTerm(field), jump=jump, steps=steps, save="knots")
        for few in (slice(0, 1), slice(5, 7), slice(8, 12), slice(20, 28)):
            part, rows = path[few], slice(path.series.offsets[few.start], path.series.offsets[few.stop])
            for grad in (False, True):
                with torch.set_grad_enabled(grad):
                    own = part_of(jump, path, range(few.start, few.stop))
                    found = solve(part, z0[few], flow=ControlTerm(field), jump=own, steps=steps, save="knots")
                assert torch.equal(found.at_knots, together.at_knots[rows])


@pytest.mark.parametrize("dtype", DTYPES)
def test_gradients_of_few_series_are_those_of_their_tile(dtype):
    """The checkpoints of few series are laid out like those of a tile."""
    path, z0, flow, jump = batch(dtype, hidden=20)
    for every in (1, 3):
        sums = []
        for part in (slice(0, 2), slice(0, 20)):
            case = Case(path[part], z0[part], flow, part_of(jump, path, range(part.stop)))
            case.solve(gradient=nc.Checkpoint(every)).last[:2].square().sum().backward()
            sums.append(case.z0.grad[:2])
        torch.testing.assert_close(*sums, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("flow", ["cde", "driven", "autonomous"])
@pytest.mark.parametrize("solver", ["dopri5", "tsit5"])
def test_adaptive_steps_alone_or_in_a_batch(dtype, flow, solver):
    """The same steps, accepted and rejected, and the same states at their ends."""
    path, z0, moves, jump = batch(dtype, flow=flow)
    steps = nc.Adaptive(rtol=1e-3, atol=1e-5)
    together = solve(path, z0, flow=moves, jump=jump, steps=steps, solver=solver)
    for i in range(len(path)):
        alone = solve(path[i], z0[i : i + 1], flow=moves, jump=part_of(jump, path, [i]), steps=steps, solver=solver)
        for name in ("accepted", "rejected", "evaluations"):
            assert getattr(alone.stats, name).item() == getattr(together.stats, name)[i]
        assert torch.equal(alone.last, together.last[i : i + 1])


@pytest.mark.parametrize("dtype", DTYPES)
def test_in_any_order(dtype):
    path, z0, flow, jump = batch(dtype)
    order = torch.randperm(len(path), generator=torch.Generator().manual_seed(0))
    here = solve(path, z0, flow=flow, jump=jump).last
    there = solve(path[order], z0[order], flow=flow, jump=part_of(jump, path, order.tolist())).last
    assert torch.equal(there, here[order])


@pytest.mark.parametrize("dtype", DTYPES)
def test_one_register_or_two(dtype, monkeypatch):
    """Tiles are one or two SIMD registers wide. Neither that nor the number of threads may change the result."""
    path, z0, flow, jump = batch(dtype, count=70)
    widths, results = set(), []

    name = "Solve32" if dtype == torch.float32 else "Solve64"

    class Recorded:
        def __init__(self, **arguments):
            self.call = getattr(kernels, name)(**arguments)
            widths.add(self.call.registers)

        def __getattr__(self, asked):
            return getattr(self.call, asked)

    class Counted:
        def __getattr__(self, asked):
            return Recorded if asked == name else getattr(kernels, asked)

    before = torch.get_num_threads()
    try:
        monkeypatch.setattr(native, "kernels", Counted())
        for threads in (1, 64, 3):
            torch.set_num_threads(threads)
            with torch.no_grad():
                results.append(solve(path, z0, flow=flow, jump=jump, save="knots").at_knots)
    finally:
        torch.set_num_threads(before)
    assert widths == {1, 2}
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


@pytest.mark.parametrize(
    ("gradient", "solver", "steps"),
    [
        ("checkpoint", "tsit5", nc.AtKnots()),
        ("backsolve", "tsit5", nc.AtKnots(2)),
        ("reversible", "ees25", nc.AtKnots(2)),
        ("backsolve", "tsit5", nc.Adaptive(1e-3, 1e-5)),
    ],
)
def test_gradients_with_any_number_of_threads(gradient, solver, steps):
    """Those of a series do not change; those of parameters are sums over the series, in an order of the threads."""
    path, z0, flow, jump = batch(torch.float64, count=70)
    case, found, before = Case(path, z0, flow, jump), [], torch.get_num_threads()
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            _, _, gradients = case.gradients(gradient=gradient, solver=solver, steps=steps, save="knots")
            found.append(gradients)
    finally:
        torch.set_num_threads(before)
    one, three = found
    for name in ("z0", "path", "row inputs"):
        assert torch.equal(one.pop(name), three.pop(name))
    for name, gradient in one.items():
        torch.testing.assert_close(three[name], gradient, rtol=1e-11, atol=1e-11)


def test_padding_does_not_matter():
    """Trailing rows of NaN are dropped, and a long series in the batch does not change the results of the others."""
    path, z0, flow, _ = batch(torch.float32, scheme="linear", count=6, jumps=False)
    padded = path.series.to_padded()
    wide = torch.nn.functional.pad(padded.values, (0, 0, 0, 30), value=torch.nan)
    times = torch.nn.functional.pad(padded.times, (0, 30), value=torch.nan)
    series = nc.IrregularSeries.from_padded(wide, times=times, lengths=padded.lengths)
    assert torch.equal(solve(nc.linear(series), z0, flow=flow).last, solve(path, z0, flow=flow).last)


def test_gradients_of_one_series_do_not_depend_on_the_others():
    """The gradients with respect to its initial state and its path."""
    path, z0, flow, _ = batch(torch.float64, jumps=False)
    whole = Case(path, z0, flow)
    whole.solve().last.square().sum().backward()
    for i in (0, 8, 36):
        alone = Case(path[i], z0[i : i + 1], flow)
        alone.solve().last.square().sum().backward()
        assert torch.equal(alone.z0.grad, whole.z0.grad[i : i + 1])
        pieces = slice(path.piece_offsets[i], path.piece_offsets[i + 1])
        assert torch.equal(alone.path.coefficients.grad, whole.path.coefficients.grad[pieces])


def test_a_series_that_explodes_does_not_touch_its_tile():
    path, z0, flow, jump = batch(torch.float64, count=8)
    expected = solve(path, z0, flow=flow, jump=jump)
    wild = z0.clone()
    wild[3] = 1e300
    coefficients = path.coefficients.clone()
    coefficients[path.piece_offsets[3] : path.piece_offsets[4]] *= 1e200
    other = dataclasses.replace(path, coefficients=coefficients)
    field = ControlTerm(as_field(torch.nn.Sequential(torch.nn.Linear(9, 27), torch.nn.Unflatten(-1, (9, 3))).double()))
    calm = solve(path, z0, flow=field, jump=jump)
    stormy = solve(other, wild, flow=field, jump=jump, throw=False)
    assert stormy.statuses.tolist() == [0, 0, 0, 1, 0, 0, 0, 0]
    rest = [i for i in range(8) if i != 3]
    assert torch.equal(calm.last[rest], stormy.last[rest])
    assert expected.statuses.sum() == 0


def test_the_plain_loop_agrees_to_1e_6(monkeypatch):
    """The matrix products of BLAS may depend on the batch size in the last digits."""
    on_engine(monkeypatch, "torch")
    path, z0, flow, jump = batch(torch.float32, count=9)
    together = solve(path, z0, flow=flow, jump=jump).last
    for i in range(len(path)):
        alone = solve(path[i], z0[i : i + 1], flow=flow, jump=part_of(jump, path, [i])).last
        torch.testing.assert_close(alone, together[i : i + 1], rtol=1e-6, atol=1e-6)
