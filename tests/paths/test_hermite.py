"""Hermite paths compared with their formula."""

import numpy as np
import torch

import neuralcde as nc
from ragged_cases import NAN, random_series


def test_one_cubic_across_a_gap(engine):
    """One cubic runs between consecutive observations of a channel; linear filling first would give 1.5 at t = 5."""
    values = [0.0, NAN, NAN, 3.0, 1.0, NAN, 2.0]
    path = nc.hermite(nc.IrregularSeries.from_list([(np.arange(7.0), values)], dtype=torch.float64))
    x0, m, D, h = 1.0, -2.0, 0.5, 2.0
    for t in (4.0, 4.5, 5.0, 5.7, 6.0):
        s = t - 4
        expected = x0 + m * s + 2 * (D - m) * s**2 / h - (D - m) * s**3 / h**2
        assert abs(path.evaluate(t).item() - expected) < 1e-14
    assert path.evaluate(5.0).item() == 0.875


def test_is_once_differentiable(engine):
    """X' is continuous at every inner knot, with or without missing values."""
    path = nc.hermite(random_series(3, count=1, rows=(20, 20), missing=0.2))
    inner = path.knots[1:-1]
    left, right = (path.derivative(inner, side=side)[0] for side in ("left", "right"))
    seen = path.series.observed
    inside = (seen.cumsum(0) > 0) & (seen.flip(0).cumsum(0).flip(0) > 0)
    first_or_last = (seen & (seen.cumsum(0) == 1)) | (seen & (seen.flip(0).cumsum(0).flip(0) == 1))
    smooth = (inside & ~first_or_last)[1:-1]
    assert smooth.sum() > 30
    torch.testing.assert_close(left[smooth], right[smooth], rtol=1e-10, atol=1e-10)


def test_leaks_into_the_padding_for_one_gap_only(engine):
    """Forward-filled values are constant after row 2; the path is constant one gap later."""
    series = nc.IrregularSeries.from_list([(np.arange(6.0), [0.0, 1.0, 3.0, NAN, NAN, NAN])])
    path = nc.hermite(series, fill="forward")
    assert path.derivative([2.5, 3.5, 4.5])[0, :, 0].ne(0).tolist() == [True, False, False]
