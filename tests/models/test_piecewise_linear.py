"""Piecewise-linear encodings: the formula, quantile bins, few distinct values, what a linear layer can make of them."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from neuralcde.models import PiecewiseLinearEncoding


def fitted(values, bins):
    encoding = PiecewiseLinearEncoding(values.shape[1], bins).double()
    encoding.fit(values)
    return encoding


def raw(encoding, values):
    """The encodings before they are standardised."""
    found = encoding(values).reshape(*values.shape, encoding.bins)
    return found / encoding.inverse_deviation + encoding.mean


def test_the_formula_with_edges_at_quantiles():
    """Against numpy: edges at quantiles of the training values, each number by how far it is through each bin."""
    rng = np.random.default_rng(0)
    values = rng.exponential(size=(1001, 2))
    encoding = fitted(torch.from_numpy(values), 10)
    asked = np.concatenate([rng.exponential(size=(50, 2)), [[-1.0, 100.0]]])
    for feature in range(2):
        edges = np.quantile(values[:, feature], np.linspace(0, 1, 11))  # 1000 / 10 is whole: each is a training value
        expected = np.clip((asked[:, feature, None] - edges[:-1]) / np.diff(edges), 0, 1)
        np.testing.assert_allclose(raw(encoding, torch.from_numpy(asked))[:, feature].numpy(), expected, atol=1e-12)


def test_standardised_on_the_training_values():
    values = torch.randn(500, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found = fitted(values, 6)(values)
    torch.testing.assert_close(found.mean(0), torch.zeros(18, dtype=torch.float64), atol=1e-12, rtol=0)
    assert (found.std(0) <= 1.0).all()
    assert (found.std(0) > 0.9).all()


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.integers(-3, 3), min_size=1, max_size=20), st.lists(st.floats(-10, 10), max_size=10), st.integers(1, 6)
)
def test_increasing_and_bounded_whatever_the_training_values(training, asked, bins):
    """Repeated values make fewer bins; none of them divides by zero."""
    encoding = fitted(torch.tensor(training, dtype=torch.float64)[:, None], bins)
    column = torch.tensor(sorted(asked), dtype=torch.float64)[:, None]
    found = raw(encoding, column)[:, 0]
    assert found.isfinite().all()
    assert (found >= -1e-9).all()
    assert (found <= 1 + 1e-9).all()
    assert (found.diff(dim=0) >= -1e-9).all()
    used = len(set(training)) - 1
    assert int((encoding.inverse_widths > 0).sum()) <= min(bins, used)


def test_a_linear_layer_on_it_finds_a_threshold():
    """A step between two values, which no linear function of the value itself can follow."""
    values = torch.arange(9.0, dtype=torch.float64)[:, None]
    encoded = fitted(values, 8)(values)
    target = (values > 4).double()
    ones = torch.ones(9, 1, dtype=torch.float64)
    solution = torch.linalg.lstsq(torch.cat([encoded, ones], 1), target).solution
    torch.testing.assert_close(torch.cat([encoded, ones], 1) @ solution, target, atol=1e-9, rtol=0)


def test_gradients():
    encoding = fitted(torch.randn(100, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0)), 4)
    values = torch.tensor([[0.1, -0.2], [0.35, 5.0]], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(encoding, (values,))


@pytest.mark.parametrize("shape", [(0, 2), (3, 2), (2, 4, 2)])
def test_any_shape_of_batch(shape):
    assert PiecewiseLinearEncoding(2, 3)(torch.zeros(shape)).shape == (*shape[:-1], 6)


def test_saved_with_the_model():
    encoding = fitted(torch.randn(100, 2, dtype=torch.float64), 4)
    other = PiecewiseLinearEncoding(2, 4).double()
    other.load_state_dict(encoding.state_dict())
    values = torch.randn(5, 2, dtype=torch.float64)
    assert torch.equal(other(values), encoding(values))
