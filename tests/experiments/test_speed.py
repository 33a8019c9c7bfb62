"""What is timed against torchcde is the same model."""

import pytest
import torch
from experiments.speed import InTorchCDE, on_grid

import neuralcde as nc


def test_the_model_in_torchcde_gives_the_same_outputs():
    torchcde = pytest.importorskip("torchcde", reason="torchcde is not installed; make bench installs it")
    pairs = [(torch.arange(9.0), torch.randn(9, 2)) for _ in range(4)]
    path = nc.natural_cubic(nc.IrregularSeries.from_list(pairs).with_channels())
    model = nc.NeuralCDE(3, 5, hidden=6, width=7, depth=2, steps=nc.FixedSteps(1.0))
    coefficients = torchcde.natural_cubic_coeffs(on_grid(path.series))
    theirs = InTorchCDE(model)(path, coefficients)
    torch.testing.assert_close(theirs, model(path), atol=1e-5, rtol=1e-4)


def test_the_grid_has_a_row_for_every_whole_time():
    series = nc.IrregularSeries.from_list([([0.0, 2.0], [[5.0], [6.0]]), ([1.0], [[7.0]])]).with_channels()
    block = on_grid(series)
    assert block[..., 0].tolist() == [[0, 1, 2], [0, 1, 2]]
    assert block[..., 1].nan_to_num(-1).tolist() == [[5, -1, 6], [-1, 7, -1]]
