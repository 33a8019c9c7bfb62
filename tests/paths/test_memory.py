"""Peak memory of building a path: at most 1.5 times its coefficients, in addition to its input."""

import json

import pytest

from fresh_python import fresh_python
from neuralcde._native import kernels

MEASURE = """
    import dataclasses, json
    import numpy as np
    import torch
    from ragged_cases import SCHEMES, random_series

    def status(name):
        with open("/proc/self/status") as lines:
            return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))

    rows, count, channels = 1_000_000, 20_000, 12
    values = torch.randn(rows, channels)
    values.masked_fill_(torch.rand(rows, channels) < 0.6, torch.nan)
    small = random_series(0, channels=channels, dtype=torch.float32)
    large = dataclasses.replace(
        small,
        times=torch.arange(rows, dtype=torch.float64),
        values=values,
        offsets=torch.arange(0, rows + 1, rows // count),
        ids=np.arange(count),
        static=torch.empty(count, 0),
    )
    assert values.nbytes > 45e6
    measured = {}
    for name in ("natural_cubic", "hermite", "linear", "linear-forward", "rectilinear", "smoothing"):
        build = SCHEMES[name]
        build(small)
        before = status("VmRSS")
        with open("/proc/self/clear_refs", "w") as reset:
            reset.write("5")  # the peak counts from here
        path = build(large)
        measured[name] = (status("VmHWM") - before) / path.coefficients.nbytes
        del path
    print(json.dumps(measured))
"""


@pytest.mark.skipif(kernels is None, reason="plain torch needs more scratch memory")
def test_peak_memory_of_building():
    # Freed memory is returned to the system at once, so that a scheme cannot reuse memory of the one before it unseen.
    done = fresh_python(MEASURE, MALLOC_MMAP_THRESHOLD_="1000000", MALLOC_TRIM_THRESHOLD_="1000000")
    assert done.returncode == 0, done.stderr
    measured = json.loads(done.stdout)
    assert len(measured) == 6
    for name, share in measured.items():
        assert 0.9 < share < 1.5, (name, share)
