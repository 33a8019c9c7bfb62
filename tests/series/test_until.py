"""`series.until(t)` against a loop in plain Python."""

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import neuralcde as nc

HOURS = st.lists(st.integers(0, 9), min_size=1, max_size=6, unique=True).map(sorted)


def made(hours):
    pairs = [([float(t) for t in own], [[10.0 * k + t] for t in own]) for k, own in enumerate(hours)]
    return nc.IrregularSeries.from_list(pairs, ids=[f"s{k}" for k in range(len(hours))])


@given(st.lists(st.tuples(HOURS, st.integers(0, 24)), min_size=1, max_size=5))
def test_until_equals_a_plain_loop(drawn):
    hours, times = [own for own, _ in drawn], [own[0] + late / 2 for own, late in drawn]
    pairs = []
    for k, (own, t) in enumerate(zip(hours, times, strict=True)):
        rows = [(float(s), 10.0 * k + s) for s in own if s <= t]
        if rows[-1][0] < t:
            rows.append((t, float("nan")))
        pairs.append(([s for s, _ in rows], [[x] for _, x in rows]))
    expected = nc.IrregularSeries.from_list(pairs, ids=[f"s{k}" for k in range(len(hours))])
    assert made(hours).until(times) == expected
    assert made(hours).until(torch.tensor(times)).until(times) == expected


def test_times_may_be_given_by_id():
    series, by_position = made([[0, 2], [3], [4, 6]]), [1.0, 5.0, 5.5]
    by_id = pd.Series(by_position[::-1], index=["s2", "s1", "s0"])
    assert series.until(by_id) == series.until(by_position) == series.until(by_id.to_dict())
    assert series.until(pd.Series(by_position)) == series.until(by_position)
    for some in (by_id[1:], by_id[1:].to_dict()):
        with pytest.raises(ValueError, match=r"t has no time for 1 of 3 series, e\.g\. 's2'"):
            series.until(some)


def test_the_advice_for_times_before_the_first_row_works():
    series = made([[0, 2], [3], [4], [5], [6]])
    for t in (4.5, torch.tensor([1.0, 1.0, 5.0, 5.0, 5.0])):
        with pytest.raises(ValueError, match="leave them out") as caught:
            series.until(t)
        advice = str(caught.value).split("leave them out: ")[1].split(" with a tensor")[0].rstrip(".")
        names = {"series": series, "t": t}
        first, second = advice.split("; ")
        exec(first, names)
        assert 0 < len(eval(second, names)) < 5


def test_until_refuses_wrong_times():
    series = made([[0, 2], [3], [4], [5], [6]])
    with pytest.raises(ValueError, match=r"before the first row of 4 of 5 series: 's1', 's2', 's3', \.\.\.; leave"):
        series.until(1.0)
    with pytest.raises(ValueError, match="NaN or infinity"):
        series.until(np.nan)
    with pytest.raises(ValueError, match=r"shape \(2,\)"):
        series.until([8.0, 9.0])
    with pytest.raises(ValueError, match="call until before with_channels"):
        series.with_channels().until(9.0)
    with pytest.raises(TypeError, match=r"times hold .*'noon'.*, but those of the series are numbers; give numbers in"):
        series.until("noon")
