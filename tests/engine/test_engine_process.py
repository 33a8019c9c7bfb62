"""The engine in its process: forks, Python threads, Ctrl-C, instruction-set levels."""

import json
import threading

import pytest
import torch

import neuralcde as nc
from fresh_python import fresh_python
from neuralcde._native import kernels
from neuralcde.engine import native
from neuralcde.solve import solve
from solve_cases import Case, largest_difference, some_flow, some_jump, some_path, states

pytestmark = pytest.mark.skipif(kernels is None, reason="the native kernels were not built or are turned off")

SETUP = """
    import json, os, signal, threading, time, warnings
    import torch
    import neuralcde as nc
    from solve_cases import Case, mlp, some_flow, some_jump, some_path, states
    from neuralcde.solve import solve
"""


FORK = """
    path = some_path(51, count=40)
    case = Case(path, states(path, 5), some_flow("cde", path, 5), some_jump(path, 5))
    def run():
        with torch.no_grad():
            solution = case.solve(save="knots")
        assert solution.stats.engine.startswith("native")
        return solution.at_knots
    parent = run()
    warnings.simplefilter("ignore", DeprecationWarning)  # from Python 3.12 on a fork warns where there are threads
    child = os.fork()
    if child == 0:
        signal.alarm(10)
        same = torch.equal(run(), parent)
        case.solve().last.sum().backward()
        same = same and bool(case.flow.field.layers[0].weight.grad.any())
        os._exit(0 if same else 3)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert torch.equal(run(), parent)
    print("child", status)
"""


def test_a_forked_child_solves_and_trains_like_its_parent():
    """Parent and child both use threads of the engine; a child that hangs is killed by its alarm."""
    done = fresh_python(SETUP + "    torch.get_num_threads = lambda: 4" + FORK)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "child 0"


def test_a_forked_child_of_a_parent_with_torch_threads():
    """A child process has none of its parent's OpenMP threads, so neither the engine nor torch may wait for them."""
    done = fresh_python(SETUP + "    torch.set_num_threads(2)" + FORK)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "child 0"


def test_python_threads_at_once_give_equal_results():
    """Forward and backward, on one field and one path."""
    path = some_path(53, count=30, rows=(20, 40))
    flow, jump, z0 = some_flow("cde", path, 8), some_jump(path, 8), states(path, 8)

    def run():
        solution, out, gradients = Case(path, z0, flow, jump).gradients(save="knots")
        assert solution.stats.engine.startswith("native")
        return [out, *gradients.values()]

    expected, results, start = run(), [], threading.Barrier(4)

    def work():
        start.wait()
        for _ in range(3):
            results.append(run())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert len(results) == 12
    assert all(torch.equal(a, b) for result in results for a, b in zip(result, expected, strict=True))


def test_other_python_threads_run_meanwhile():
    """The GIL is released during a solve."""
    # Long enough for many ticks on any machine. A solve that held the GIL would leave time for one or two.
    path = some_path(54, scheme="linear", count=8, rows=(4000, 4000), dtype=torch.float32)
    flow, z0 = some_flow("cde", path, 32), states(path, 32)
    ticks, done = [], threading.Event()

    def tick():
        while not done.wait(0.001):
            ticks.append(1)

    counter = threading.Thread(target=tick)
    counter.start()
    try:
        with torch.no_grad():
            for _ in range(20):
                before = len(ticks)
                solve(path, z0, flow=flow, steps=None, solver="tsit5")
                if len(ticks) - before >= 10:
                    break
            else:
                raise AssertionError("no other thread ran during a solve")
    finally:
        done.set()
        counter.join()


def test_ctrl_c_ends_a_long_solve():
    """KeyboardInterrupt is raised within a second, in forward and backward passes, and later solves work."""
    done = fresh_python(
        SETUP
        + """
    times = torch.linspace(0, 1, 2, dtype=torch.float64)
    path = nc.linear(nc.IrregularSeries.from_list([(times, torch.zeros(2, 1))]).with_channels())
    field, z0 = nc.MLPField(path.channels, 128, width=128), torch.zeros(1, 128)

    def interrupted(work):
        sent = []
        def send():
            sent.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)
        threading.Timer(0.3, send).start()
        try:
            work()
        except KeyboardInterrupt:
            return time.monotonic() - sent[0]

    def end(substeps):
        return nc.solve_cde(path, field, z0, steps=nc.AtKnots(substeps=substeps)).last

    start = time.monotonic()
    loss = end(20_000).sum()
    alone = 3 * (time.monotonic() - start)  # lower bound for the time of a backward pass
    start = time.monotonic()
    backwards, whole = interrupted(loss.backward), time.monotonic() - start
    with torch.no_grad():
        forwards = interrupted(lambda: end(1_000_000))  # would take minutes
    assert end(1).isfinite().all()
    print(json.dumps([forwards, backwards, whole, alone]))
    """,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    forwards, backwards, whole, alone = json.loads(done.stdout)
    assert max(forwards, backwards) < 2  # one second, doubled for a busy machine
    assert whole < alone


@pytest.mark.parametrize("level", kernels.supported_levels() if kernels else [])
def test_every_level_gives_the_same_numbers(level):
    """Levels have registers of different widths; results agree to 1e-10 in float64."""
    path = some_path(55, count=19)
    case = Case(path, states(path, 5), some_flow("cde", path, 5), some_jump(path, 5))
    before = kernels.level()
    try:
        kernels.use_level(level)
        solution, *found = case.gradients(save="knots", gradient=nc.Checkpoint(every=2))
    finally:
        kernels.use_level(before)
    assert solution.stats.engine == f"native ({level})"
    _, *expected = case.gradients(save="knots", gradient="backprop")
    torch.testing.assert_close(found[0], expected[0], rtol=1e-10, atol=1e-10)
    assert largest_difference(found[1], expected[1]) < 1e-10


def test_without_kernels_the_plain_loop_runs(monkeypatch):
    path = some_path(56)
    flow, z0 = some_flow("cde", path, 3), states(path, 3)
    with_kernels = solve(path, z0, flow=flow)
    monkeypatch.setattr(native, "kernels", None)
    without = solve(path, z0, flow=flow)
    assert without.stats.engine == "torch: no native kernels"
    torch.testing.assert_close(without.last, with_kernels.last, rtol=1e-10, atol=1e-10)


def test_threads_share_one_graph():
    """200 backward passes of one solve from two threads, in a separate process, where a crash is a failed test."""
    done = fresh_python(
        SETUP
        + """
    torch.manual_seed(0)
    path = some_path(57, scheme="linear", count=64, rows=(200, 200), dtype=torch.float32)
    z0 = torch.randn(64, 5, requires_grad=True)
    solution = nc.solve_cde(path, nc.MLPField(path.channels, 5), z0)
    assert solution.stats.engine.startswith("native")
    loss = solution.last.square().sum()
    (expected,) = torch.autograd.grad(loss, z0, retain_graph=True)
    right, start = [], threading.Barrier(2)
    def work():
        start.wait()
        for _ in range(100):
            (found,) = torch.autograd.grad(loss, z0, retain_graph=True)
            right.append(torch.equal(found, expected))
    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(len(right), all(right))
    """,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["200", "True"]
