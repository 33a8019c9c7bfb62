"""Invalid calls of the compiled functions raise errors; they never crash or silently return a result."""

import numpy as np
import pytest
import torch
from binding_calls import attempt
from hypothesis import given, settings
from hypothesis import strategies as st

from fresh_python import fresh_python
from neuralcde._native import kernels


def test_thousands_of_wrong_calls_in_their_own_process():
    """In a separate process, and first: there a crash is a failed test, in this process it would end the test run."""
    done = fresh_python(
        """
        from native.binding_calls import attempt
        for seed in range(3000):
            attempt(seed)
        print("done")
        """
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "done"


@settings(max_examples=200)
@given(st.integers(0, 2**32))
def test_wrong_calls(seed):
    attempt(seed)


def rows():
    times = torch.tensor([0.0, 1.0, 3.0], dtype=torch.float64)
    return times, torch.tensor([[1.0], [2.0], [0.0]]), torch.tensor([0, 3])


@pytest.mark.parametrize(
    ("offsets", "message"),
    [
        ([], "at least one number"),
        ([0], "end at the number of rows"),
        ([1, 3], "start at 0"),
        ([0, 4], "end at the number of rows"),
        ([0, 2**62, 3], "must increase"),
        ([0, -1, 3], "must increase"),
        ([0, 1, 1, 3], "must increase"),
    ],
)
def test_offsets_are_checked(offsets, message):
    times, values, _ = rows()
    with pytest.raises(ValueError, match=message):
        kernels.linear(times, values, torch.tensor(offsets, dtype=torch.int64), torch.empty(2, 2, 1), 1)


def test_outputs_must_fit():
    for shape in ((3, 4, 1), (2, 3, 1), (2, 4, 2), (0, 4, 1)):
        with pytest.raises(ValueError, match=r"coefficients must have shape \(pieces, 4, channels\)"):
            kernels.cubic(*rows(), "natural", torch.empty(shape), 1)
    with pytest.raises(ValueError, match="smoothed must have the shape of values"):
        kernels.smooth(*rows(), 1.0, torch.empty(3, 2), 1)


def test_one_precision_in_a_call():
    times, values, offsets = rows()
    with pytest.raises(TypeError):
        kernels.linear(times, values, offsets, torch.empty(2, 2, 1, dtype=torch.float64), 1)
    with pytest.raises(TypeError):
        kernels.linear(times.float(), values, offsets, torch.empty(2, 2, 1), 1)


def test_outputs_that_cannot_be_written_are_refused():
    times, values, offsets = (x.numpy() for x in rows())
    out = np.zeros((2, 2, 1), dtype=np.float32)
    kernels.linear(times, values, offsets, out, 1)
    assert out[:, :, 0].tolist() == [[1, 1], [2, -2]]
    out.flags.writeable = False
    with pytest.raises(TypeError):
        kernels.linear(times, values, offsets, out, 1)


def test_any_number_of_threads():
    expected = torch.empty(2, 2, 1)
    kernels.linear(*rows(), expected, 1)
    for threads in (-(2**31), 0, 2**31 - 1):
        out = torch.empty(2, 2, 1)
        kernels.linear(*rows(), out, threads)
        assert torch.equal(out, expected)
    with pytest.raises(TypeError):
        kernels.linear(*rows(), expected, 2**31)


def test_huge_expanded_shapes_without_memory():
    times, _, offsets = rows()
    wide = torch.zeros(1, 1).expand(3, 2**40)
    with pytest.raises(TypeError):
        kernels.linear(times, wide, offsets, torch.empty(2, 2, 1), 1)
    nothing = torch.empty(0, 2**40)
    kernels.linear(times[:0], nothing, torch.tensor([0]), torch.empty(0, 2, 2**40), 1)


def test_times_that_make_no_sense_do_not_crash():
    """IrregularSeries refuses such times; a kernel that is called directly returns some numbers."""
    _, values, offsets = rows()
    for bad in ([0.0, 0.0, 0.0], [3.0, 2.0, 1.0], [float("nan")] * 3, [-float("inf"), 0.0, float("inf")]):
        times = torch.tensor(bad, dtype=torch.float64)
        for kind in ("natural", "backward"):
            kernels.cubic(times, values, offsets, kind, torch.empty(2, 4, 1), 1)
        kernels.linear(times, values, offsets, torch.empty(2, 2, 1), 1)
        kernels.smooth(times, values, offsets, 1.0, torch.empty(3, 1), 1)
