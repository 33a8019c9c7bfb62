"""Layers applied to rows: equal to torch's, and each row independent of the others."""

import pytest
import torch
from torch import nn

from neuralcde._native import kernels
from neuralcde.engine import apply_layers, rows
from solve_cases import on_engine

LAYERS = {
    "linear": lambda: nn.Linear(19, 3),
    "without bias": lambda: nn.Linear(19, 40, bias=False),
    "network": lambda: nn.Sequential(nn.Linear(19, 256), nn.ReLU(), nn.Linear(256, 33), nn.SiLU(), nn.Linear(33, 2)),
}


@pytest.fixture(autouse=True)
def on_native(monkeypatch):
    if kernels is None:
        pytest.skip("the native kernels were not built or are turned off")
    on_engine(monkeypatch, "native")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", LAYERS)
def test_equal_to_torch(name, dtype):
    layers, x = LAYERS[name]().to(dtype), torch.randn(70, 19, dtype=dtype)
    expected = layers(x)
    with torch.no_grad():
        found = apply_layers(layers, x)
        shaped = apply_layers(layers, x.reshape(7, 10, 19))
    tolerance = 1e-5 if dtype == torch.float32 else 1e-12
    torch.testing.assert_close(found, expected.detach(), rtol=tolerance, atol=tolerance)
    assert torch.equal(shaped, found.reshape(7, 10, -1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", LAYERS)
@torch.no_grad()
def test_a_row_does_not_depend_on_the_others(name, dtype):
    layers, x = LAYERS[name]().to(dtype), torch.randn(500, 19, dtype=dtype)
    together = apply_layers(layers, x)
    for start, stop in ((0, 1), (3, 4), (499, 500), (5, 22), (100, 400)):
        assert torch.equal(apply_layers(layers, x[start:stop]), together[start:stop])
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(4)
        assert torch.equal(apply_layers(layers, x), together)
    finally:
        torch.set_num_threads(before)
    assert apply_layers(layers, x[:0]).shape == (0, together.shape[1])


def test_native_only_for_supported_layers_without_gradients(monkeypatch):
    calls = []
    monkeypatch.setattr(
        rows, "evaluate_rows", lambda program, x: calls.append(1) or x.new_zeros(len(x), program.outputs)
    )
    x, known, other = torch.randn(4, 19), nn.Linear(19, 2), nn.Sequential(nn.Linear(19, 2), nn.Dropout(0.5))
    assert apply_layers(known, x).requires_grad
    with torch.no_grad():
        assert apply_layers(other, x).shape == (4, 2)
        assert apply_layers(known, x.to(torch.float64).float()).shape == (4, 2)
    assert len(calls) == 1


def test_wrong_rows_are_refused():
    program = kernels.Program(
        torch.tensor([[0, 0, 3, 0, 0, 2, 3, 0, -1, 0, 0, 0]]), torch.zeros(1, 2).double(), 5, 3, 3
    )
    weight, x = torch.ones(2, 3), torch.ones(4, 3)
    found = torch.zeros(4, 2)
    kernels.evaluate_rows(program, [weight], x, found, 1)
    assert (found == 3).all()
    for inputs, results in ((torch.ones(4, 6), found), (x, torch.zeros(3, 2)), (x, torch.zeros(4, 3))):
        with pytest.raises(ValueError, match=r"must fit the workspace|one result per row"):
            kernels.evaluate_rows(program, [weight], inputs, results, 1)
    for arguments in (([weight.double()], x, found), ([weight], x.double(), found), ([weight], x, found.double())):
        with pytest.raises(TypeError):
            kernels.evaluate_rows(program, *arguments, 1)
    with pytest.raises(ValueError, match="a parameter that is not there"):
        kernels.evaluate_rows(program, [], x, found, 1)
