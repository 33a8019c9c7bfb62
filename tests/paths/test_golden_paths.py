"""Hermite and linear paths compared with stored results of torchcde (complete data) and diffrax (missing values)."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import neuralcde as nc

STORED = json.loads((Path(__file__).parents[1] / "golden" / "paths.json").read_text())


def array(nested):
    return np.array(nested, dtype=np.float64)  # null becomes NaN


def cases_of(peer):
    """Our series, the stored case and where a channel was observed, for every case of the peer."""
    for case in STORED["cases"]:
        if case["peer"] == peer:
            values = array(case["values"])
            series = nc.IrregularSeries.from_list([(array(case["times"]), values)], dtype=torch.float64)
            yield series, case, ~np.isnan(values)


def close(ours, stored, where=True):
    np.testing.assert_allclose(np.where(where, ours[0], 0), np.where(where, array(stored), 0), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("scheme", ["hermite", "linear"])
def test_equals_torchcde_on_complete_data(scheme, engine):
    for series, case, observed in cases_of("torchcde"):
        assert observed.all()
        path, expected = getattr(nc, scheme)(series), case["expected"][scheme]
        close(path.evaluate(case["asked"]), expected["value"])
        close(path.derivative(case["asked"]), expected["derivative"])


@pytest.mark.parametrize("scheme", ["hermite", "linear"])
def test_equals_diffrax_across_gaps(scheme, engine):
    """Hermite paths are compared only where diffrax uses one cubic per gap, see golden/make_paths.py."""
    across = 0
    for series, case, observed in cases_of("diffrax"):
        path, expected = getattr(nc, scheme)(series), case["expected"][scheme]
        where = np.repeat(observed[:-1], 3, axis=0) | (scheme == "linear")
        close(path.evaluate(case["asked"]), expected["value"], where)
        close(path.derivative(case["asked"]), expected["derivative"], where)
        close(path.evaluate(case["times"][:-1]), expected["value at rows"])
        close(path.derivative(case["times"][:-1]), expected["derivative at rows"])
        across += (~observed).sum()
    assert across > 20


def test_the_golden_file_states_its_origin():
    assert STORED["origin"]["versions"]["torchcde"] == "0.2.5"
    assert STORED["origin"]["versions"]["diffrax"] == "0.7.2"
