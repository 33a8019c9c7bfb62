"""Loading and using the kernels does not change the state of the process."""

import json
import threading

import torch

import neuralcde as nc
from fresh_python import fresh_python
from ragged_cases import random_series

STATE = """
    import json, os, resource, signal, sys
    import numpy as np
    import torch

    def state():
        smallest = np.array([5e-324]), np.array([1e-45], dtype=np.float32)
        return {
            "threads": len(os.listdir("/proc/self/task")),
            "torch threads": torch.get_num_threads(),
            "denormals": [float((x * x.dtype.type(1)).max()) for x in smallest],
            "halved": [float(x.dtype.type(np.finfo(x.dtype).tiny) / 2) for x in smallest],
            "rounding": float(np.float64(1) + np.float64(2**-53) + np.float64(2**-53)),
            "signals": [str(signal.getsignal(n)) for n in (signal.SIGINT, signal.SIGSEGV, signal.SIGFPE)],
            "stack": resource.getrlimit(resource.RLIMIT_STACK),
        }
"""


def test_loading_changes_nothing():
    done = fresh_python(
        STATE
        + """
    rows, channels, series = 40_000, 3, 400
    torch.set_num_threads(4)
    times = torch.arange(rows, dtype=torch.float64)
    # starts torch's threads, which the kernels use
    values = torch.sin(times[:, None] * torch.arange(1, channels + 1)).float()
    offsets = torch.arange(0, rows + 1, rows // series)
    coefficients = torch.empty(rows - series, 4, channels)
    before = state()
    from neuralcde._native import _kernels as kernels
    loaded = state()
    kernels.cubic(times, values, offsets, "natural", coefficients, 4)
    print(json.dumps([before, loaded, state()]))
    """
    )
    assert done.returncode == 0, done.stderr
    before, loaded, used = json.loads(done.stdout)
    assert min(before["denormals"]) > 0
    assert min(before["halved"]) > 0
    assert before == loaded == used


def test_a_forked_child_can_use_the_kernels():
    """The parent has used them with threads before; a child that hangs is killed by its alarm."""
    done = fresh_python(
        """
        import os, signal
        import numpy as np
        from neuralcde._native import _kernels as kernels
        rows, series = 40_000, 400
        times = np.arange(rows, dtype=np.float64)
        values = np.sin(times)[:, None].copy()
        offsets = np.arange(0, rows + 1, rows // series)
        def build():
            coefficients = np.empty((rows - series, 4, 1))
            kernels.cubic(times, values, offsets, "natural", coefficients, 4)
            return coefficients
        parent = build()
        child = os.fork()
        if child == 0:
            signal.alarm(30)
            os._exit(0 if np.array_equal(build(), parent) else 3)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert np.array_equal(build(), parent)
        print("child", status)
        """
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "child 0"


def test_python_threads_at_once_give_equal_results():
    series = random_series(71, count=800, rows=(1, 30))
    expected = [nc.natural_cubic(series).coefficients, nc.smoothing(series, penalty=1.0).coefficients]
    results, start = [], threading.Barrier(4)

    def work():
        start.wait()
        results.append([nc.natural_cubic(series).coefficients, nc.smoothing(series, penalty=1.0).coefficients])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    assert all(torch.equal(a, b) for result in results for a, b in zip(result, expected, strict=True))
