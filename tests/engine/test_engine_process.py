"""The engine and the process around it: forks, Python threads, Ctrl-C, instruction-set levels."""

import json
import threading

import pytest
import torch
from fresh_python import fresh_python
from solve_cases import Case, some_flow, some_jump, some_path, states

from neuralcde._native import kernels
from neuralcde.solve import solve

pytestmark = pytest.mark.skipif(kernels is None, reason="the native kernels were not built or are turned off")

SETUP = """
    import json, os, signal, threading, time
    import torch
    import neuralcde as nc
    from solve_cases import Case, mlp, some_flow, some_jump, some_path, states
    from neuralcde.solve import solve
"""


def test_a_forked_child_solves_like_its_parent():
    """After the parent used several threads; a child that hangs is killed by its alarm."""
    done = fresh_python(
        SETUP
        + """
    torch.set_num_threads(2)
    path = some_path(51, count=40)
    case = Case(path, states(path, 5), some_flow("cde", path, 5), some_jump(path, 5))
    def run():
        solution, out, gradients = case.gradients(save="knots")
        assert solution.stats.engine.startswith("native")
        return out, gradients["z0"], gradients["flow layers.0.weight"]
    parent = run()
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        with torch.no_grad():
            forwards = solve(path, states(path, 5), flow=case.flow, jump=case.jump, save="knots").at_knots
        same = torch.equal(forwards, parent[0][40:])
        os._exit(0 if same else 3)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert all(torch.equal(a, b) for a, b in zip(run(), parent))
    print("child", status)
    """
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "child 0"


def test_a_forked_worker_can_train():
    """The child makes its own gradients, as a DataLoader worker or a process pool would."""
    done = fresh_python(
        SETUP
        + """
    path = some_path(52, count=20)
    def gradient():
        case = Case(path, states(path, 3), some_flow("driven", path, 3))
        return case.gradients()[2]["flow inner.weight"]
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        torch.save(gradient(), "/dev/null")
        os._exit(0 if gradient().abs().sum() > 0 else 3)
    print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), float(gradient().abs().sum()) > 0)
    """
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "child 0 True"


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
    """The interpreter's lock is free during a solve."""
    path = some_path(54, scheme="linear", count=8, rows=(300, 300), dtype=torch.float32)
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
                if len(ticks) - before >= 3:
                    break
            else:
                raise AssertionError("no other thread ran during a solve")
    finally:
        done.set()
        counter.join()


INTERRUPT = """
    torch.manual_seed(0)
    times = torch.linspace(0, 1, 2, dtype=torch.float64)
    path = nc.linear(nc.IrregularSeries.from_list([(times, torch.zeros(2, 1))]).with_channels())
    field = nc.MLPField(path.channels, 128, width=128)
    z0 = torch.zeros(1, 128)

    def interrupt_me(work):
        sent = []
        def send():
            sent.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)
        timer = threading.Timer(0.3, send)
        timer.start()
        try:
            work()
        except KeyboardInterrupt:
            return time.monotonic() - sent[0]
        return None
"""


def test_ctrl_c_ends_a_long_solve():
    """Within a second, with KeyboardInterrupt; alone the solve would take minutes. Afterwards everything works."""
    done = fresh_python(
        SETUP
        + INTERRUPT
        + """
    with torch.no_grad():
        waited = interrupt_me(lambda: nc.solve_cde(path, field, z0, steps=nc.AtKnots(substeps=1_000_000)))
        assert nc.solve_cde(path, field, z0).last.isfinite().all()
    print(json.dumps(waited))
    """,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) < 2  # a second, and as much again for a busy machine


def test_ctrl_c_ends_a_long_backward_pass():
    done = fresh_python(
        SETUP
        + INTERRUPT
        + """
    start = time.monotonic()
    loss = nc.solve_cde(path, field, z0, steps=nc.AtKnots(substeps=10_000)).last.sum()
    forwards = time.monotonic() - start
    start = time.monotonic()
    waited = interrupt_me(loss.backward)
    print(json.dumps([waited, time.monotonic() - start, forwards]))
    """,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    waited, whole, forwards = json.loads(done.stdout)
    assert waited < 2
    assert whole < 2 * forwards + 1  # alone it takes three to four times as long as the forward pass


@pytest.mark.parametrize("level", kernels.supported_levels() if kernels else [])
def test_every_level_gives_the_same_numbers(level):
    """The registers of a level are wider or narrower: to 1e-10 in float64 that must not show."""
    done = fresh_python(
        SETUP
        + """
    path = some_path(55, count=19)
    case = Case(path, states(path, 5), some_flow("cde", path, 5), some_jump(path, 5))
    solution, out, gradients = case.gradients(save="knots", gradient=nc.Checkpoint(every=2))
    print(json.dumps([solution.stats.engine, out.tolist(), [g.square().sum().item() for g in gradients.values()]]))
    """,
        NEURALCDE_ISA=level,
    )
    assert done.returncode == 0, done.stderr
    engine, out, sums = json.loads(done.stdout)
    assert engine == f"native ({level})"
    path = some_path(55, count=19)
    case = Case(path, states(path, 5), some_flow("cde", path, 5), some_jump(path, 5))
    _, expected, gradients = case.gradients(save="knots", gradient="backprop")
    torch.testing.assert_close(torch.tensor(out, dtype=torch.float64), expected, rtol=1e-10, atol=1e-10)
    assert sums == pytest.approx([g.square().sum().item() for g in gradients.values()], rel=1e-9)


def test_without_kernels_the_plain_loop_runs():
    done = fresh_python(
        SETUP
        + """
    path = some_path(56)
    solution = solve(path, states(path, 3), flow=some_flow("cde", path, 3))
    print(solution.stats.engine)
    """,
        NEURALCDE_ISA="none",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "torch: no native kernels"
