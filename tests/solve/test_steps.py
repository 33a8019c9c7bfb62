"""Steps: their number, their position in the pieces, and where f and X are evaluated."""

import itertools
import math

import pytest
import torch

import neuralcde as nc
from fresh_python import fresh_python
from neuralcde.solve import ControlTerm, solve, solvers, step_memory
from neuralcde.solve.steps import fixed_grid
from ragged_cases import SCHEMES, random_series
from solve_cases import SOLVERS, TABLEAUX, mlp, some_jump, some_path, states


class Recorder(nc.VectorField):
    """A smooth field of time and state that records the time and batch size of every evaluation."""

    def __init__(self, channels):
        super().__init__()
        self.channels, self.times = channels, []

    def forward(self, t, z):
        self.times.append(t.detach().double())
        return torch.sin(z + t[:, None])[..., None] * torch.linspace(0.5, 1, self.channels, dtype=z.dtype)

    @property
    def evaluations(self):
        return sum(len(t) for t in self.times)


STEPS = {
    "at knots": (nc.AtKnots(), "rk4"),
    "substeps": (nc.AtKnots(substeps=3), "heun"),
    "fixed": (nc.FixedSteps(0.3), "dopri5"),
    "adaptive": (nc.Adaptive(rtol=1e-3), "tsit5"),
}


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("steps", STEPS)
def test_nothing_is_asked_outside_the_interval(steps, scheme, monkeypatch):
    """Neither f outside the interval nor X outside its piece, in forward and backward passes."""
    places = []

    def recorded(term, pieces, u, length, drive=ControlTerm.drive):
        places.append(u.detach())
        return drive(term, pieces, u, length)

    monkeypatch.setattr(ControlTerm, "drive", recorded)
    chosen, solver = STEPS[steps]
    for seed in (0, 2):
        path = some_path(seed, scheme=scheme, count=1, start=100.0)
        field, z0 = Recorder(path.channels), states(path, 2).requires_grad_()
        low, high = path.interval[0].tolist()
        asked = torch.linspace(low, high, 7, dtype=torch.float64)
        solution = nc.solve_cde(path, field, z0, solver=solver, steps=chosen, gradient="backsolve", save=asked)
        forwards = field.evaluations
        (solution.at_times.sum() + solution.last.sum()).backward()
        assert field.evaluations > forwards
        times, u = torch.cat(field.times), torch.cat(places)
        assert times.min() >= 0
        assert times.max() <= (high - low) * (1 + 1e-14)
        assert u.min() >= 0
        assert u.max() <= 1 + 1e-14


@pytest.mark.parametrize("solver", SOLVERS)
def test_f_is_called_stages_times_steps_times(solver):
    """Each series has its own number of evaluations, and none is spent on finding out shapes."""
    path = some_path(3, rows=(1, 6))
    for steps in (nc.AtKnots(), nc.AtKnots(substeps=2), nc.FixedSteps(0.4)):
        field = Recorder(path.channels)
        stats = nc.solve_cde(path, field, states(path, 2), solver=solver, steps=steps).stats
        taken = fixed_grid(path, steps).offsets.diff()
        stages = {"euler": 1, "rk4": 4, "dopri5": 6, "tsit5": 6, "ees25": 3}.get(solver, 2)
        assert stats.accepted.tolist() == taken.tolist()
        assert stats.evaluations.tolist() == (stages * taken).tolist()
        assert stats.rejected.tolist() == [0] * len(path)
        assert field.evaluations == stats.evaluations.sum()


@pytest.mark.parametrize("with_jumps", [False, True])
def test_extra_events_cost_no_evaluations(with_jumps):
    """The extra events of backsolve (states before jumps) and of requested times cause no extra evaluations."""
    path = some_path(4, rows=(2, 6))
    jump = some_jump(path, 2) if with_jumps else None
    field, z0 = Recorder(path.channels), states(path, 2).requires_grad_()
    solution = solve(path, z0, flow=ControlTerm(field), jump=jump, gradient="backsolve", save="knots")
    assert field.evaluations == solution.stats.evaluations.sum() == 4 * (path.series.lengths - 1).sum()
    asked = path.interval[:, :1]  # at the start of the series: needs no step
    before = field.evaluations
    solve(path, z0, flow=ControlTerm(field), jump=jump, save=asked)
    assert field.evaluations == 2 * before


@pytest.mark.parametrize("solver", ["dopri5", "tsit5"])
def test_evaluations_under_adaptive(solver):
    """Search: seven stages per tried step, minus the first stage where it is known (after a rejected step, and inside
    a piece after an accepted one). Then six stages per accepted step."""
    path = some_path(5, rows=(2, 5))
    field = Recorder(path.channels)
    stats = nc.solve_cde(path, field, states(path, 2), solver=solver, steps=nc.Adaptive(1e-7, 1e-9)).stats
    assert field.evaluations == stats.evaluations.sum()
    assert (stats.rejected > 0).any()
    pieces = path.piece_offsets.diff()
    assert (stats.accepted > pieces).all()
    tried = stats.accepted + stats.rejected
    assert stats.evaluations.tolist() == (7 * pieces + 6 * (tried - pieces) + 6 * stats.accepted).tolist()


def test_at_knots_takes_one_step_per_gap():
    path = some_path(6, scheme="linear", rows=(2, 9))
    grid = fixed_grid(path, nc.AtKnots())
    assert grid.offsets.diff().tolist() == (path.series.lengths - 1).tolist()
    assert (grid.length == 1).all()
    grid = fixed_grid(path, nc.AtKnots(substeps=4))
    assert grid.offsets.diff().tolist() == (4 * (path.series.lengths - 1)).tolist()
    assert grid.start[:4].tolist() == [0, 0.25, 0.5, 0.75]
    assert grid.piece[:5].tolist() == [0, 0, 0, 0, 1]


def test_fixed_steps_are_no_longer_than_their_size_and_end_at_knots():
    series = nc.IrregularSeries.from_list(
        [([0.0, 1.0, 3.5, 3.6], [[0.0], [1.0], [2.0], [3.0]]), ([7.0, 8.5], [[0.0], [1.0]])]
    )
    path = nc.linear(series)
    grid = fixed_grid(path, nc.FixedSteps(0.5))
    assert grid.offsets.tolist() == [0, 8, 11]
    assert grid.piece.tolist() == [0] * 2 + [1] * 5 + [2] + [3] * 3
    durations = path.durations[grid.piece] * grid.length
    assert durations.tolist() == pytest.approx([0.5] * 7 + [0.1] + [0.5] * 3)
    # A size that divides the gap up to rounding does not add a tiny step.
    assert 2.1 / 0.3 > 7
    seven = nc.linear(nc.IrregularSeries.from_list([([0.0, 2.1], [[0.0], [1.0]])]))
    assert len(fixed_grid(seven, nc.FixedSteps(0.3)).piece) == 7
    assert len(fixed_grid(nc.rectilinear(series), nc.FixedSteps(0.5)).piece) == 11 + 4


def test_fixed_steps_of_the_gap_are_steps_at_knots(engine):
    path = some_path(7, scheme="natural_cubic", gaps=lambda rng, count: rng.choice([0.5, 1.0, 1.5], count))
    field, z0 = mlp(path, 4), states(path, 4)
    every = [0.5, 1.0, 2.0]
    last = {size: nc.solve_cde(path, field, z0, steps=nc.FixedSteps(size)).last for size in every}
    assert torch.equal(last[2.0], nc.solve_cde(path, field, z0).last)
    assert (last[0.5] - last[2.0]).abs().max() > 0


def test_the_steps_of_a_series_depend_only_on_its_own_gaps():
    """54 steps for 55 observations, whatever the gaps of the other series of the batch."""
    dense, sparse = torch.linspace(0, 1, 55, dtype=torch.float64), torch.tensor([0.0, 1000.0], dtype=torch.float64)
    path = nc.linear(
        nc.IrregularSeries.from_list([(t, torch.sin(t)[:, None]) for t in (dense, sparse)], dtype=torch.float64)
    )
    stats = nc.solve_cde(path, mlp(path, 2), states(path, 2)).stats
    assert stats.accepted.tolist() == [54, 1]


@pytest.mark.wrong_types
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: nc.AtKnots(substeps=0), "substeps must be an integer of at least 1, got 0"),
        (lambda: nc.AtKnots(substeps=1.5), "substeps must be an integer of at least 1, got 1.5"),
        (lambda: nc.FixedSteps(0.0), "size must be positive, got 0.0"),
        (lambda: nc.FixedSteps(math.nan), "size must be positive, got nan"),
        (lambda: nc.Adaptive(rtol=-1.0), "rtol and atol must be >= 0 and not both 0"),
        (lambda: nc.Adaptive(rtol=0.0, atol=0.0), "not both 0"),
        (lambda: nc.Adaptive(rtol=math.nan), "rtol and atol"),
        (lambda: nc.Adaptive(max_steps=0), "max_steps must be an integer of at least 1, got 0"),
        (lambda: nc.Checkpoint(every=0), "every must be an integer of at least 1, got 0"),
    ],
)
def test_options_out_of_range(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_more_steps_than_fit_the_memory_are_refused_before_they_are_made(monkeypatch):
    pairs = [([0.0, 1.0, 2.0], torch.zeros(3, 1)), ([0.0, 1.0, 1e9], torch.zeros(3, 1))]
    path = nc.linear(nc.IrregularSeries.from_list(pairs, ids=["short", "stay 7"]))
    z0, field = torch.zeros(2, 2), nc.MLPField(1, 2)
    message = r"1e\+15 steps, 1e\+15 of them in series 'stay 7', whose longest gap is 1e\+09 .* GB of memory"
    with pytest.raises(ValueError, match=message):
        nc.solve_cde(path, field, z0, steps=nc.FixedSteps(1e-6))
    with pytest.raises(ValueError, match=r"steps=AtKnots\(substeps=1000000000\) asks for 4e\+09 steps"):
        nc.solve_cde(path, field, z0, steps=nc.AtKnots(10**9))
    monkeypatch.setattr(step_memory, "memory_limit", lambda: 2 * 160 * 4000)
    with torch.no_grad():
        nc.solve_cde(path, field, z0, steps=nc.AtKnots(1000))
    with pytest.raises(ValueError, match="asks for 4e"):  # with gradients, states are kept at every step
        nc.solve_cde(path, field, z0, steps=nc.AtKnots(1000))
    nc.solve_cde(path, field, z0, steps=nc.AtKnots(500))


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize(("gradient", "solver"), [("backsolve", "rk4"), ("reversible", "ees25"), ("checkpoint", "rk4")])
def test_more_steps_than_anyone_waits_for_are_refused(gradient, solver, grad, engine):
    """Also where the steps take no memory: before, 1e10 of them started, and more than 1e12 were a native error."""
    pairs = [([0.0, 1.0, 2.0], torch.zeros(3, 1)), ([0.0, 1.0, 12.0], torch.zeros(3, 1))]
    path = nc.linear(nc.IrregularSeries.from_list(pairs, ids=["short", "stay 7"]))
    z0, field = torch.zeros(2, 2), nc.MLPField(1, 2)
    with torch.set_grad_enabled(grad):
        for size, many in ((1e-9, r"1\.4e\+10"), (1e-14, r"1\.4e\+15"), (1e-30, r"1\.4e\+31")):
            with pytest.raises(ValueError, match=rf"steps=FixedSteps\(size={size}\) asks for {many} steps.*'stay 7'"):
                nc.solve_cde(path, field, z0, solver=solver, gradient=gradient, steps=nc.FixedSteps(size))


def test_a_gap_of_a_hundred_million_mean_gaps_is_named():
    """In a process limited to 6 GB: the steps of GRU-ODE in the gap would need more."""
    done = fresh_python(
        """
        import resource
        import numpy as np
        import neuralcde as nc
        resource.setrlimit(resource.RLIMIT_AS, (6 * 2**30, 6 * 2**30))
        hours = [np.arange(100.0) for _ in range(20)]
        series = nc.IrregularSeries.from_list([(t, np.sin(t)[:, None]) for t in hours])
        clf = nc.NeuralCDEClassifier("gru_ode", max_epochs=1, random_state=0).fit(series, np.arange(20) % 2)
        wrong = nc.IrregularSeries.from_list([([0.0, 1.0, 1e8], np.zeros((3, 1)))], ids=["stay 8"])
        try:
            clf.predict(wrong)
        except ValueError as reason:
            print(reason)
        """
    )
    assert done.returncode == 0, done.stderr
    assert "of them in series 'stay 8', whose longest gap is 1e+08" in done.stdout


@pytest.mark.parametrize("solver", TABLEAUX)
def test_steps_are_right_for_ragged_random_batches(solver):
    """A batch compared with a hand-written Runge-Kutta loop over each series."""
    method = solvers[solver]
    path = some_path(8, scheme="hermite", rows=(1, 5))
    field, z0 = Recorder(path.channels), states(path, 2)
    found = nc.solve_cde(path, field, z0, solver=solver, steps=nc.AtKnots(substeps=2)).last
    for i in range(len(path)):
        one, z = path[i], z0[i : i + 1]
        knots = one.knots
        for left, right in itertools.pairwise(knots):
            for part in range(2):
                h = (right - left) / 2
                start, stages = left + part * h, []
                for row, node in zip(method.a[: method.stages], method.c, strict=False):
                    y = z + sum((w * k for w, k in zip(row, stages, strict=True)), torch.zeros_like(z))
                    t = start + node * h
                    slope = one.derivative(t, side="left" if t > left + h / 4 else "right")
                    stages.append(field.prod(t[None] - knots[0], y, slope) * h)
                z = z + sum(w * k for w, k in zip(method.b, stages, strict=True))
        torch.testing.assert_close(found[i : i + 1], z, rtol=1e-11, atol=1e-11)


def test_the_halved_grid_has_the_middles():
    path = nc.linear(random_series(9, count=2, rows=(3, 3), dtype=torch.float64))
    grid = fixed_grid(path, nc.AtKnots(substeps=2)).halved()
    assert grid.offsets.tolist() == [0, 8, 16]
    assert grid.start[:4].tolist() == [0, 0.25, 0.5, 0.75]
    assert set(grid.length.tolist()) == {0.25}
