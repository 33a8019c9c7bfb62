"""Options for training on many rows: one-cycle rate, row dropout, averaged epochs, the monitored criterion, weights."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import neuralcde as nc
from neuralcde.tasks import classification_task
from neuralcde.train import outputs_of, train
from neuralcde.train.augmentation import drop_rows
from neuralcde.train.progress import Progress
from neuralcde.train.state import TrainingState, one_cycle
from train.test_training import SETTINGS, problem, same_weights

PLAIN = replace(SETTINGS, channel_dropout=0.0, channel_jitter=0.0, ema_decay=0.0)


def unbuilt(data, weights=None):
    """The same series; their paths are built batch by batch."""
    return nc.PathDataset(data.series, data.targets, weights=weights, build=nc.linear)


def trained(settings, weights=None, **options):
    task, data = problem()
    torch.manual_seed(1)
    model = nc.NeuralCDE(2, 1, hidden=6, width=8, depth=1)
    return model, train(model, task, unbuilt(data, weights), unbuilt(problem(30, seed=5)[1]), settings, **options)


@pytest.mark.parametrize("steps", [20, 40, 333])
def test_the_one_cycle_rate_is_that_of_torch(steps):
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter])
    torchs = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.5, steps, pct_start=0.1, cycle_momentum=False)
    for step in range(steps):
        assert 0.5 * one_cycle(step, steps=steps) == pytest.approx(optimizer.param_groups[0]["lr"], rel=1e-9, abs=1e-12)
        optimizer.step()
        torchs.step()


@pytest.mark.parametrize("steps", range(1, 12))
def test_the_one_cycle_rate_of_few_steps(steps):
    rates = [one_cycle(step, steps=steps) for step in range(steps + 1)]
    assert max(rates) <= 1
    assert rates[0] == 1 or steps > 10
    assert steps < 3 or rates[-2] < 1e-5


def test_the_one_cycle_rate_changes_in_every_step_and_ends_near_zero():
    model = nc.NeuralCDE(2, 1)
    state = TrainingState(model, replace(PLAIN, schedule="one_cycle", readout_lr_scale=10.0), batches=8)
    rates = []
    for _ in range(6 * 8):
        rates.append(state.rate)
        assert state.optimizer.param_groups[1]["lr"] == pytest.approx(10 * state.rate)
        state.step()
    wanted = [PLAIN.learning_rate * one_cycle(step, steps=48) for step in range(48)]
    assert rates == pytest.approx(wanted)
    _, result = trained(replace(PLAIN, schedule="one_cycle"))
    assert result.history[-1]["rate"] < 1e-5 * PLAIN.learning_rate


def test_dropped_rows_leave_the_series_of_the_others():
    _, data = problem()
    values = torch.where(torch.rand(data.series.values.shape) < 0.3, torch.nan, data.series.values)
    series = replace(data.series, values=values)
    rows = torch.arange(len(series.times), dtype=torch.float64)
    per_row = nc.PathDataset(series, rows, per_row=True, weights=rows + 1, build=nc.linear)
    left = drop_rows(per_row, 0.4, torch.Generator().manual_seed(0))
    chosen = left.targets.long()  # the targets are the numbers of the rows
    assert torch.equal(left.weights, left.targets + 1)
    assert torch.equal(left.series.times, series.times[chosen])
    assert torch.equal(left.series.values.nan_to_num(9.0), values[chosen].nan_to_num(9.0))
    assert torch.isin(series.offsets[:-1], chosen).all()
    owner = torch.repeat_interleave(torch.arange(len(series)), series.lengths)
    assert torch.equal(left.series.lengths, owner[chosen].bincount())
    assert 0.5 < len(chosen) / len(rows) < 0.75
    whole = nc.PathDataset(series, torch.arange(len(series)), build=nc.linear)
    assert torch.equal(drop_rows(whole, 0.4, torch.Generator().manual_seed(0)).targets, whole.targets)
    with pytest.raises(ValueError, match=r"row_dropout=0.4 needs paths that are built batch by batch"):
        drop_rows(data, 0.4, torch.Generator())


@pytest.mark.parametrize(
    "options",
    [{"row_dropout": 0.3}, {"average_epochs": 3}, {"monitor": "loss", "average_epochs": 2}, {"ema_decay": 0.9}],
    ids=str,
)
def test_a_resumed_training_equals_an_uninterrupted_one(options, tmp_path):
    settings, weights = replace(PLAIN, **options), 1.0 + torch.arange(60) % 2
    whole, result = trained(settings, weights)
    trained(replace(settings, max_epochs=3), weights, folder=tmp_path)
    resumed, again = trained(settings, weights, folder=tmp_path, resume=True)
    assert same_weights(whole, resumed)
    assert again.averaged_epochs == result.averaged_epochs
    assert not same_weights(whole, trained(replace(PLAIN, seed=7))[0])
    with pytest.raises(ValueError, match="cannot resume: data, targets"):
        trained(settings, weights + 1, folder=tmp_path, resume=True)


def test_the_average_is_the_mean_of_the_best_epochs(monkeypatch):
    recorded, end = {}, TrainingState.end_epoch

    def record(self, row, metric):
        recorded[row["epoch"]] = {name: value.clone() for name, value in self.model.state_dict().items()}
        end(self, row, metric)

    monkeypatch.setattr(TrainingState, "end_epoch", record)
    settings = replace(PLAIN, average_epochs=3, monitor="loss", max_epochs=8)
    model, result = trained(settings)
    order = sorted(result.history, key=lambda row: row["validation_loss"])
    assert result.best_epoch == order[0]["epoch"]
    assert result.averaged_epochs in ([row["epoch"] for row in order[:3]], [])
    mean = {name: torch.stack([recorded[r["epoch"]][name] for r in order[:3]]).mean(0) for name in recorded[1]}
    wanted = mean if result.averaged_epochs else recorded[result.best_epoch]
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, wanted[name])
    task, judge = problem(30, seed=5)
    assert float(task.loss(*outputs_of(model, judge))) <= order[0]["validation_loss"] + 1e-6


@pytest.mark.parametrize("worse", [False, True])
def test_the_average_is_kept_unless_it_is_worse(worse, monkeypatch):
    monkeypatch.setattr(
        TrainingState, "quality", lambda self, row, metric: (0.0 if "epoch" in row or not worse else -1,)
    )
    model, result = trained(replace(PLAIN, average_epochs=2))
    assert result.averaged_epochs == ([] if worse else [1, 2])
    best, _ = trained(replace(PLAIN))
    assert same_weights(model, best) is worse


@pytest.mark.parametrize(("monitor", "best"), [("metric", 2), ("loss", 3)])
def test_the_monitored_criterion_chooses_the_epoch_and_stops(monitor, best):
    state = TrainingState(nc.NeuralCDE(2, 1), replace(PLAIN, monitor=monitor, patience=2))
    rows = zip([0.7, 0.9, 0.8, 0.9], [0.5, 0.4, 0.3, 0.6], strict=True)
    for epoch, (auroc, loss) in enumerate(rows, start=1):
        state.end_epoch({"epoch": epoch, "loss": 0.0, "validation_loss": loss, "validation_auroc": auroc}, "auroc")
    assert state.result.best_epoch == best
    assert state.stalled is (monitor == "metric")


def test_weights_are_those_of_the_loss():
    """With one batch per epoch, a weight of 2 equals two copies of the series; validation is weighted, too."""
    task, data = problem()
    settings = replace(PLAIN, batch_size=500, max_epochs=3)
    weights = 1 + torch.arange(60) % 2
    twice = torch.repeat_interleave(torch.arange(60), weights)
    found = []
    for part in (unbuilt(data, weights.double()), unbuilt(data).subset(twice)):
        torch.manual_seed(1)
        model = nc.NeuralCDE(2, 1, hidden=6, width=8, depth=1)
        found.append(train(model, task, part, part, settings).history)
    for a, b in zip(*found, strict=True):
        assert a["loss"] == pytest.approx(b["loss"], rel=1e-4)
        assert a["validation_loss"] == pytest.approx(b["validation_loss"], rel=1e-4)
    with pytest.raises(ValueError, match="weights must be one per target: 60, got shape"):
        unbuilt(data, torch.ones(3))


@pytest.mark.parametrize("kind", [bool, np.bool_])
def test_callbacks_see_every_epoch_and_stop_the_training(kind):
    seen = []
    _, result = trained(
        PLAIN, callbacks=[seen.append, lambda row: "not an answer", lambda row: kind(row["epoch"] == 2)]
    )
    assert seen == result.history
    assert len(seen) == 2
    assert not result.interrupted


def test_progress_tells_the_time_left_also_within_an_epoch(capsys, monkeypatch):
    clock = [100.0]
    monkeypatch.setattr("neuralcde.train.progress.time.monotonic", lambda: clock[0])
    with Progress(11, 1, verbose=1) as progress:
        progress.batch(2, 1, 20)  # too soon for a line
        clock[0] += 3
        progress.batch(2, 5, 20)
        clock[0] += 9
        progress.epoch({"epoch": 2, "loss": 0.25}, "auroc")
        clock[0] += 7200
        progress.epoch({"epoch": 3, "loss": 0.25}, "auroc")
        clock[0] += 3
        progress.epoch({"epoch": 11, "loss": 0.25}, "auroc")
    assert capsys.readouterr().err.splitlines() == [
        "epoch 2/11  batch 5/20  about 2 min left",
        "epoch 2/11  loss 0.2500  about 2 min left",
        "epoch 3/11  loss 0.2500  about 8.0 h left",
        "epoch 11/11  loss 0.2500",
    ]


def test_targets_at_rows_train_with_dropped_rows():
    _, data = problem()
    y = (data.series.values[:, 1] > 0).double()
    rows = nc.PathDataset(data.series, y, per_row=True, build=nc.linear)
    model = nc.NeuralCDE(2, 1, hidden=6, width=8, depth=1)
    result = train(model, classification_task([0, 1]), rows, None, replace(PLAIN, row_dropout=0.5, max_epochs=2))
    assert result.history[1]["loss"] < result.history[0]["loss"]
