"""The second loss of a training, on targets at the rows."""

import pytest
import torch

import neuralcde as nc
from neuralcde.tasks import BinaryTask, RegressionTask
from neuralcde.train import TrainingSettings, train
from ragged_cases import random_series

SERIES = random_series(3, count=12, channels=2).to(torch.float32).with_channels()
ROWS = len(SERIES.times)
TASK, SECOND = BinaryTask(("no", "yes")), RegressionTask((0.0,), (1.0,))
SETTINGS = TrainingSettings(max_epochs=3, batch_size=5, verbose=0, auxiliary_weight=1.0)


def trained(auxiliary, *, settings=SETTINGS, task=SECOND, per_row=False, **options):
    torch.manual_seed(0)
    model = nc.NeuralCDE(SERIES.channels, 1, hidden=4, width=4, **options)
    targets = (torch.arange(ROWS if per_row else 12) % 2).double()
    data = nc.PathDataset(nc.linear(SERIES), targets, per_row=per_row, auxiliary=auxiliary)
    result = train(model, TASK, data, data, settings, auxiliary=task)
    return model, result


def weights(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


@pytest.mark.parametrize("pool", ["last", "mean", "both"])
@pytest.mark.parametrize("per_row", [False, True])
def test_auxiliary_targets_change_the_training_but_not_the_model(pool, per_row):
    known, _ = trained(torch.randn(ROWS, 1).double(), pool=pool, per_row=per_row)
    without, _ = trained(None, pool=pool, per_row=per_row)
    assert known.state_dict().keys() == without.state_dict().keys()
    assert not torch.allclose(weights(known), weights(without))


def test_unknown_targets_and_a_weight_of_0_change_nothing():
    without, _ = trained(None)
    for auxiliary, weight in ((torch.full((ROWS, 1), torch.nan).double(), 1.0), (torch.ones(ROWS, 1).double(), 0.0)):
        model, _ = trained(auxiliary, settings=TrainingSettings(**vars(SETTINGS) | {"auxiliary_weight": weight}))
        torch.testing.assert_close(weights(model), weights(without), rtol=0, atol=1e-6)


def test_the_second_loss_teaches_the_states():
    """The states of a model that was trained on the auxiliary targets alone predict them."""
    target = SERIES.values[:, 1].nan_to_num(0).clamp(-1, 1)[:, None].double()
    settings = TrainingSettings(max_epochs=60, batch_size=12, verbose=0, learning_rate=0.02, auxiliary_weight=100.0)

    def fitted(model):
        features = model.with_features(nc.linear(SERIES), per_row=False)[1].detach().double()
        inputs = torch.cat([features, torch.ones(ROWS, 1)], 1)
        return float((inputs @ torch.linalg.lstsq(inputs, target).solution - target).square().mean())

    assert fitted(trained(target, settings=settings)[0]) < 0.8 * fitted(trained(None, settings=settings)[0])


def test_an_interrupted_training_resumes_with_the_same_result(tmp_path):
    torch.manual_seed(1)
    auxiliary = torch.randn(ROWS, 1).double()
    data = nc.PathDataset(nc.linear(SERIES), (torch.arange(12) % 2).double(), auxiliary=auxiliary)

    def run(epochs, folder, *, resume=False):
        torch.manual_seed(0)
        model = nc.NeuralCDE(SERIES.channels, 1, hidden=4, width=4)
        settings = TrainingSettings(max_epochs=epochs, batch_size=5, verbose=0)
        train(model, TASK, data, data, settings, folder=folder, resume=resume, auxiliary=SECOND)
        return weights(model)

    whole = run(4, tmp_path / "whole")
    run(2, tmp_path / "parts")
    assert torch.equal(run(4, tmp_path / "parts", resume=True), whole)


def test_auxiliary_targets_follow_their_rows():
    auxiliary = torch.arange(ROWS).double()
    data = nc.PathDataset(SERIES, torch.zeros(12), auxiliary=auxiliary)
    part = data.subset([4, 1])
    assert torch.equal(SERIES.times[part.auxiliary.long()], part.series.times)
    with pytest.raises(ValueError, match=f"auxiliary must be one target per row: {ROWS}"):
        nc.PathDataset(SERIES, torch.zeros(12), auxiliary=auxiliary[1:])
