"""Causality of the path schemes: what each scheme declares, and whether X changes when later observations change."""

import dataclasses

import numpy as np
import pytest
import torch

import neuralcde as nc
from ragged_cases import SCHEME_OBJECTS, SCHEMES, in_every_piece, random_series

SAYS = {case: scheme.causality for case, scheme in SCHEME_OBJECTS.items()}
ROWS, PRESENT = 12, 6  # rows after PRESENT are the future


PROMISED = [(scheme, missing) for scheme, says in SAYS.items() if says != "none" for missing in (0.0, 0.4)]
PROMISED += [("hermite", 0.0), ("linear", 0.0)]  # causal if nothing is missing
LOOK_AHEAD = [(scheme, missing) for scheme in SAYS for missing in (0.0, 0.4) if (scheme, missing) not in PROMISED]


def drawn(missing):
    series = random_series(31, count=1, rows=(ROWS, ROWS), missing=missing)
    return series.with_channels(counts="per_channel", start=True)


def perturbed(series):
    """The same series with other values and other missing values in the future rows."""
    rng = np.random.default_rng(1)
    values = series.values.clone()
    data = torch.tensor([role == "data" for role in series.roles])
    future = torch.from_numpy(rng.normal(3, 1, (ROWS - PRESENT - 1, int(data.sum()))))
    future[torch.from_numpy(rng.random(future.shape) < 0.3)] = torch.nan
    values[PRESENT + 1 :, data] = future
    return dataclasses.replace(series, values=values)


def cut(series):
    """The series without its future rows."""
    part = slice(0, PRESENT + 1)
    offsets = torch.tensor([0, PRESENT + 1])
    return dataclasses.replace(series, times=series.times[part], values=series.values[part], offsets=offsets)


def seen_so_far(path, where):
    """X up to the present, at the knots (from the left) or inside the pieces."""
    times = path.series.times[: PRESENT + 1]
    if where == "between":
        times = in_every_piece(cut(path.series))[0][0]
    return path.evaluate(times, side="left")


def test_every_path_declares_the_causality_of_its_scheme(scheme):
    assert SCHEMES[scheme](drawn(0.4)).causality == SAYS[scheme]


def test_schemes_of_every_kind_are_tested():
    assert set(SAYS.values()) == {"none", "knots", "everywhere"}


@pytest.mark.parametrize("future", [perturbed, cut])
@pytest.mark.parametrize(("scheme", "missing"), PROMISED)
def test_causal_values_do_not_change_with_the_future(scheme, engine, missing, future):
    """Bitwise equality at the knots, and between knots up to the present, where the next row is already known."""
    series = drawn(missing)
    path, other = SCHEMES[scheme](series), SCHEMES[scheme](future(series))
    for where in ("knots", "between"):
        assert torch.equal(seen_so_far(path, where), seen_so_far(other, where))
    pieces = PRESENT * path.pieces_per_gap
    assert torch.equal(path.coefficients[:pieces], other.coefficients[:pieces])


@pytest.mark.parametrize("missing", [0.0, 0.4])
def test_after_the_present_only_rectilinear_waits_for_the_next_row(scheme, build, missing):
    series = drawn(missing)
    path, other = build(series), build(perturbed(series))
    now, soon = series.times[PRESENT : PRESENT + 2].tolist()
    between = [now, 0.5 * (now + soon), 0.99 * soon + 0.01 * now]
    equal = torch.equal(path.evaluate(between), other.evaluate(between))
    assert equal == (SAYS[scheme] == "everywhere")
    assert not torch.equal(path.evaluate(soon), other.evaluate(soon))


@pytest.mark.parametrize("future", [perturbed, cut])
@pytest.mark.parametrize(("scheme", "missing"), LOOK_AHEAD)
def test_the_others_look_ahead(scheme, engine, missing, future):
    """Shows that the tests above can fail. Hermite and linear look ahead only at missing values."""
    series = drawn(missing)
    path, other = SCHEMES[scheme](series), SCHEMES[scheme](future(series))
    assert not torch.allclose(seen_so_far(path, "between"), seen_so_far(other, "between"))


def test_natural_cubic_looks_ahead_to_the_last_row(engine):
    series = random_series(32, count=1, rows=(8, 8), missing=0)
    later = series.values.clone()
    later[-1] += 1
    change = nc.natural_cubic(dataclasses.replace(series, values=later)).derivative(0.0) - nc.natural_cubic(
        series
    ).derivative(0.0)
    assert change.abs().min() > 1e-6
