"""Scaling of outputs after training."""

import math
from dataclasses import replace

import pytest
import torch

import neuralcde as nc
from neuralcde.models import LinearReadout
from neuralcde.tasks import BinaryTask, RegressionTask
from neuralcde.train import TrainingSettings, train
from neuralcde.train.rescaling import rescale_outputs
from ragged_cases import random_series

SERIES = random_series(3, count=40, channels=2).to(torch.float32).with_channels()
TASK = BinaryTask(("no", "yes"))


def model(**options):
    torch.manual_seed(0)
    return nc.NeuralCDE(SERIES.channels, 1, hidden=4, width=4, **options)


@pytest.mark.parametrize("readout", ["linear", "summary"])
def test_outputs_are_scaled_about_the_prior_by_the_factor_with_the_least_loss(readout):
    torch.manual_seed(1)
    made = model(readout=readout)
    made.fit_inputs(SERIES)
    for parameter in made.readout.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    made.eval()
    targets = (torch.arange(40) % 4 == 0).double()
    data = nc.PathDataset(nc.linear(SERIES), targets)
    with torch.no_grad():
        outputs = made(nc.linear(SERIES))
        factor = rescale_outputs(made, TASK, data, (outputs, targets), data)
        prior = TASK.prior(targets).float()
        torch.testing.assert_close(made(nc.linear(SERIES)), prior + factor * (outputs - prior), rtol=1e-4, atol=1e-4)
    factors = [factor, 1.0, min(2.0, factor * 1.1), max(0.1, factor / 1.1)]
    losses = [
        float(TASK.loss(prior + s * (outputs - prior), targets)) + math.log(s) ** 2 / 2 / 0.7**2 / 40 for s in factors
    ]
    assert losses[0] < losses[1]
    assert losses[0] <= min(losses) + 1e-5


def test_right_outputs_stay_and_a_readout_without_rescale_is_left_alone():
    targets = torch.linspace(-1, 1, 40, dtype=torch.float64)[:, None]
    task, made = RegressionTask((0.0,), (1.0,)), model()
    data = nc.PathDataset(nc.linear(SERIES), targets)
    assert rescale_outputs(made, task, data, (targets.float(), targets), data) == 1.0

    class Fixed(LinearReadout):
        def rescale(self, factor, about):
            return False

    made.readout = Fixed(4, 1)
    before = made.readout.linear.weight.clone()
    assert rescale_outputs(made, task, data, (3 * targets.float(), targets), data) == 1.0
    assert torch.equal(made.readout.linear.weight, before)


def test_training_rescales_an_overconfident_model():
    """Labels at random: what was learnt says nothing about other series, so the outputs are pulled to the prior."""
    labels = (torch.arange(40) * 7 % 11 % 2).double()
    training = nc.PathDataset(nc.linear(SERIES[:20]), labels[:20])
    validation = nc.PathDataset(nc.linear(SERIES[20:]), labels[20:])
    made, losses = model(), []
    settings = TrainingSettings(max_epochs=60, learning_rate=0.03, batch_size=20, verbose=0)
    train(made, TASK, training, None, settings)
    for rescale in (False, True):
        train(
            made,
            TASK,
            training,
            validation,
            replace(settings, max_epochs=1, learning_rate=0.0, rescale_outputs=rescale),
        )
        with torch.no_grad():
            losses.append(float(TASK.loss(made(nc.linear(SERIES[20:])), labels[20:])))
    assert losses[1] < 0.9 * losses[0]
