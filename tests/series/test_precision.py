"""Precision: channels that become constant in float32 cause a warning."""

import warnings

import numpy as np
import polars as pl
import pytest
import torch

from neuralcde import IrregularSeries


def read(column, **options):
    frame = pl.DataFrame({"stay": "a", "hour": np.arange(len(column)), "x": column, "y": np.arange(len(column))})
    return IrregularSeries.from_long(frame, id="stay", time="hour", **options)


def test_channels_that_float32_cannot_resolve_cause_a_warning():
    column = [1e12, 1e12 + 9, None, 1e12 + 4000]
    with pytest.warns(UserWarning, match=r"the channels \['x'\] vary by less than float32 .*dtype=torch.float64"):
        assert (
            len(set(read(column).values[:, 0].tolist()) - {float("nan")}) == 2
        )  # one number and NaN, which differs from itself
    exact = read(column, dtype=torch.float64)
    assert exact.values[[0, 1, 3], 0].tolist() == [1e12, 1e12 + 9, 1e12 + 4000]


@pytest.mark.parametrize(
    "column",
    [
        pytest.param([0.3, 0.1 + 0.2, 0.3], id="rounding"),
        pytest.param([5.0, 5.0, None], id="constant"),
        pytest.param([None, None, None], id="never observed"),
        pytest.param([1.0] * 20_000 + [2.0] * 20_000, id="varies late"),
        pytest.param([1e12, 2e12, 3e12], id="large"),
    ],
)
def test_channels_that_float32_can_resolve_cause_no_warning(column):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read(pl.Series(column, dtype=pl.Float64))
