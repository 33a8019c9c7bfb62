"""natural_cubic compared with scipy's natural spline through the observations of each channel."""

import numpy as np
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from scipy.interpolate import CubicSpline

import neuralcde as nc
from ragged_cases import even_gaps, in_every_piece, random_series, wild_gaps

GENERATE = [Phase.explicit, Phase.generate]  # no shrinking: a smaller seed is not a simpler example


def scipy_spline(times, values, asked):
    """Value and derivatives 1 to 3 of one channel: constant outside its observations, 0 if it has none."""
    seen = ~np.isnan(values)
    times, values = times[seen], values[seen]
    answers = np.zeros((4, len(asked)))
    if len(times) == 0:
        return answers
    answers[0] = np.where(asked < times[0], values[0], values[-1])
    if len(times) > 1:
        spline, inside = CubicSpline(times, values, bc_type="natural"), (times[0] <= asked) & (asked <= times[-1])
        for order in range(4):
            answers[order, inside] = spline(asked[inside], order)
    return answers


def errors(series, path):
    """|X^(k) - spline^(k)| h^k and |spline^(k)| h^k, k = 0 .. 3, and max|x|, for every asked time and channel."""
    asked, gap = in_every_piece(series, (0.07, 0.5, 0.93))
    ours = [path.evaluate(asked), *(path.derivative(asked, order) for order in (1, 2, 3))]
    ours = torch.stack(ours, dim=1).double().numpy()
    spline, largest = np.zeros_like(ours), np.zeros((len(series), series.channels))
    for i, one in enumerate(series):
        for c, values in enumerate(one.values.double().numpy().T):
            spline[i, :, :, c] = scipy_spline(one.times.numpy(), values, asked[i].numpy())
            largest[i, c] = np.nanmax(np.abs(values), initial=0.0)
    powers = gap.numpy()[:, None, :, None] ** np.arange(4)[None, :, None, None]
    return np.abs(ours - spline) * powers, np.abs(spline) * powers, largest[:, None, None, :]


@settings(max_examples=12, phases=GENERATE)
@given(
    seed=st.integers(0, 2**32),
    most_rows=st.integers(2, 40),
    missing=st.sampled_from([0.0, 0.2, 0.45]),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_equals_scipy_on_many_series(seed, most_rows, missing, dtype):
    shape = {"count": 350, "rows": (1, most_rows), "channels": 2, "missing": missing}
    series = random_series(seed, **shape, gaps=even_gaps, dtype=torch.float32).to(dtype)
    error, _, largest = errors(series, nc.natural_cubic(series))
    tolerance = 1e-5 if dtype == torch.float32 else 1e-10
    assert np.all(error <= tolerance * largest)


@settings(max_examples=5, phases=GENERATE)
@given(seed=st.integers(0, 2**32), dtype=st.sampled_from([torch.float32, torch.float64]))
def test_equals_scipy_over_wild_gaps(seed, dtype):
    """With gaps from 0.01 to 10 the spline overshoots the data hundredfold, so errors are relative to the spline."""
    series = random_series(seed, count=100, rows=(2, 30), channels=2, gaps=wild_gaps, dtype=dtype)
    error, size, largest = errors(series, nc.natural_cubic(series))
    reached = np.maximum(size.max(axis=(1, 2), keepdims=True), largest)
    tolerance = 1e-6 if dtype == torch.float32 else 1e-12
    assert np.all(error <= tolerance * reached)


def test_torch_twin_equals_scipy_too(monkeypatch):
    from neuralcde.paths import cubic

    monkeypatch.setattr(cubic, "kernels", None)
    series = random_series(5, count=100, rows=(1, 30), channels=2)
    error, _, largest = errors(series, nc.natural_cubic(series))
    assert np.all(error <= 1e-10 * largest)


def test_is_twice_continuously_differentiable():
    """The first two derivatives are continuous at inner knots, and the second is 0 at both ends (complete data)."""
    series = random_series(3, count=1, rows=(9, 9), missing=0)
    path, inner = nc.natural_cubic(series), series.times[1:-1]
    for order in (1, 2):
        left, right = (path.derivative(inner, order, side=side) for side in ("left", "right"))
        torch.testing.assert_close(left, right, rtol=1e-10, atol=1e-10)
    ends = path.derivative(path.interval, 2)
    torch.testing.assert_close(ends, torch.zeros_like(ends), rtol=0, atol=1e-10)


def test_paper_example_by_hand():
    """Three points 0, 1, 0: by symmetry the slopes are 3/2, 0, -3/2, and X(1/2) = 11/16."""
    path = nc.natural_cubic(nc.IrregularSeries.from_list([([0, 1, 2], [0.0, 1.0, 0.0])]))
    assert path.evaluate([0.5, 1.5]).flatten().tolist() == [0.6875, 0.6875]
    assert path.derivative([0.0, 1.0, 2.0]).flatten().tolist() == [1.5, 0.0, -1.5]
