"""The model that is timed in torchcde is the same model."""

import pytest
import torch
from experiments.experiment import Experiment
from experiments.speed import InTorchCDE, compare, on_grid, torchcde_coefficients

import neuralcde as nc


def test_the_model_in_torchcde_gives_the_same_outputs():
    torchcde = pytest.importorskip("torchcde", reason="torchcde is not installed; make bench installs it")
    lengths = (9, 5, 7, 9)
    pairs = [(torch.arange(float(n)), torch.randn(n, 2)) for n in lengths]
    path = nc.natural_cubic(nc.IrregularSeries.from_list(pairs).with_channels())
    model = nc.NeuralCDE(3, 5, hidden=6, width=7, depth=2, steps=nc.FixedSteps(1.0))
    grid = on_grid(path.series)
    coefficients = torch.zeros(4, 8, 12)  # computed series by series; values after the end of a series do not matter
    for k, n in enumerate(lengths):
        coefficients[k, : n - 1] = torchcde.natural_cubic_coeffs(grid[k, :n])
    theirs = InTorchCDE(model)(path, coefficients)
    torch.testing.assert_close(theirs, model(path), atol=1e-5, rtol=1e-4)


def test_epochs_are_timed_for_all_contestants(pack, config):
    pytest.importorskip("torchcde", reason="torchcde is not installed; make bench installs it")
    found = compare(Experiment.find("character_trajectories", config), pack, 0.3, 1)
    seconds = [found[f"{name}seconds_per_epoch"] for name in ("", "knots_", "torchcde_")]
    assert all(0 < value < 60 for value in seconds)


def test_the_grid_has_a_row_for_every_whole_time():
    series = nc.IrregularSeries.from_list([([0.0, 2.0], [[5.0], [6.0]]), ([1.0], [[7.0]])]).with_channels()
    block = on_grid(series)
    assert block[..., 0].tolist() == [[0, 1, 2], [0, 1, 2]]
    assert block[..., 1].nan_to_num(-1).tolist() == [[5, -1, 6], [-1, 7, -1]]


def test_paths_on_a_common_grid_need_no_splines_of_torchcde():
    """Hourly rows from hour 1 on, as in the sepsis experiment: our coefficients, as torchcde keeps them."""
    torchcde = pytest.importorskip("torchcde", reason="torchcde is not installed; make bench installs it")
    lengths = (9, 5, 7, 9)
    pairs = [(torch.arange(1.0, n + 1), torch.randn(n, 2)) for n in lengths]
    series = nc.IrregularSeries.from_list(pairs, static=torch.randn(4, 3))
    scaler = nc.SeriesScaler(scale="paper").fit(series)
    path = nc.natural_cubic(scaler.transform(series).with_channels())
    coefficients = torchcde_coefficients(path)
    for k, n in enumerate(lengths):
        theirs = torchcde.natural_cubic_coeffs(on_grid(path.series)[k, :n])
        torch.testing.assert_close(coefficients[k, : n - 1], theirs, atol=1e-4, rtol=1e-4)
    model = nc.NeuralCDE(3, 5, hidden=6, width=7, depth=2, static=3, initial="static")
    torch.testing.assert_close(InTorchCDE(model)(path, coefficients), model(path), atol=1e-5, rtol=1e-4)


def test_an_epoch_is_extrapolated_from_a_few_batches(pack, config):
    pytest.importorskip("torchcde", reason="torchcde is not installed; make bench installs it")
    found = compare(Experiment.find("character_trajectories", config), pack, 0.3, 1, batches=2)
    assert found["epochs"] == round(2 / 7, 3)  # 56 series in batches of 8
    assert found["seconds_per_epoch"] > 0
