"""Functions on rows and offsets of ragged arrays equal plain loops."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from neuralcde.series import ragged
from ragged_cases import random_series

nan = float("nan")


@given(st.lists(st.integers(0, 4), max_size=6))
def test_offsets_lengths_and_series_of_rows_agree(lengths):
    offsets = ragged.offsets_of(torch.tensor(lengths, dtype=torch.int64))
    assert offsets.tolist() == [sum(lengths[:i]) for i in range(len(lengths) + 1)]
    assert ragged.lengths(offsets).tolist() == lengths
    assert ragged.series_of_rows(offsets).tolist() == [i for i, length in enumerate(lengths) for _ in range(length)]


@given(st.lists(st.integers(1, 4), min_size=1, max_size=6), st.data())
def test_select_equals_a_plain_loop(lengths, data):
    offsets = ragged.offsets_of(torch.tensor(lengths))
    chosen = data.draw(st.lists(st.integers(0, len(lengths) - 1)))
    rows, kept = ragged.select(offsets, torch.tensor(chosen, dtype=torch.int64))
    bounds = offsets.tolist()
    assert rows.tolist() == [row for i in chosen for row in range(bounds[i], bounds[i + 1])]
    assert ragged.lengths(kept).tolist() == [lengths[i] for i in chosen]


def test_select_of_a_slice_is_a_slice():
    offsets = torch.tensor([0, 2, 5, 6])
    rows, kept = ragged.select(offsets, ragged.positions(slice(1, 3), 3))
    assert rows == slice(2, 6)
    assert kept.tolist() == [0, 3, 4]


@pytest.mark.parametrize("index", [slice(0, 0), slice(2, 1), slice(3, 9)])
def test_select_of_an_empty_slice_is_empty(index):
    rows, kept = ragged.select(torch.tensor([0, 2, 5, 6]), ragged.positions(index, 3))
    assert rows.start == rows.stop
    assert kept.tolist() == [0]


def test_negative_positions_count_from_the_end():
    assert ragged.positions(-1, 3) == slice(2, 3)
    assert ragged.positions([-1, 0, -3], 3).tolist() == [2, 0, 0]


@pytest.mark.parametrize(
    ("ids", "name"),
    [(np.array([7]), "7"), (np.array([0.5]), "0.5"), (np.array(["a"], dtype=object), "'a'"), (np.array(["a"]), "'a'")],
)
def test_series_names_quote_text_only(ids, name):
    assert ragged.series_name(ids, 0) == name


@pytest.mark.parametrize("strict", [False, True])
@given(st.lists(st.lists(st.integers(0, 9), min_size=1, unique=True), min_size=1, max_size=5), st.data())
def test_last_row_at_or_before_equals_a_plain_loop(strict, knots, data):
    knots = [sorted(times) for times in knots]
    offsets = ragged.offsets_of(torch.tensor([len(times) for times in knots]))
    asked = data.draw(st.lists(st.sampled_from([x / 2 for x in range(-2, 22)]), min_size=1, max_size=4))
    found = ragged.last_row_at_or_before(
        torch.tensor([float(time) for times in knots for time in times]),
        offsets,
        torch.tensor([asked] * len(knots)),
        strict=strict,
    )
    for i, times in enumerate(knots):
        before = [sum(time < t if strict else time <= t for time in times) for t in asked]
        assert found[i].tolist() == [int(offsets[i]) + max(count - 1, 0) for count in before]


def test_forward_fill_and_last_observed_row_equal_a_plain_loop():
    series = random_series(3, count=8, missing=0.45)
    filled = ragged.forward_fill(series.values, series.observed, series.offsets)
    last = ragged.last_observed_row(series.observed, series.offsets)
    bounds = series.offsets.tolist()
    for i in range(len(series)):
        for channel in range(series.channels):
            value, row = 0.0, -1
            for at in range(bounds[i], bounds[i + 1]):
                if series.observed[at, channel]:
                    value, row = series.values[at, channel].item(), at
                assert filled[at, channel].item() == value
                assert last[at, channel].item() == row
    assert (last == -1).any()


def test_forward_fill_accepts_no_rows():
    empty = torch.empty(0, 2)
    offsets = torch.zeros(1, dtype=torch.int64)
    assert ragged.forward_fill(empty, empty.isnan(), offsets).shape == (0, 2)


def test_gradients_of_forward_fill_reach_observations_only():
    values = torch.tensor([[1.0], [nan], [3.0], [nan]], requires_grad=True)
    ragged.forward_fill(values, ~values.isnan(), torch.tensor([0, 3, 4])).sum().backward()
    assert values.grad.flatten().tolist() == [2.0, 0.0, 1.0, 0.0]
