"""The training loop: learning, reproducibility, resuming, early stopping, errors."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
from dataclasses import replace

import pytest
import torch

import neuralcde as nc
from neuralcde.system import Interrupts, write_atomically
from neuralcde.tasks import classification_task, regression_task
from neuralcde.train import TrainingError, TrainingSettings, outputs_of, train
from neuralcde.train.augmentation import drop_channels, jitter_channels
from neuralcde.train.checkpoints import load_state, save_state
from neuralcde.train.state import TrainingState, make_optimizer


def problem(count=60, seed=0):
    """Slow and fast oscillations, observed at random times."""
    generator = torch.Generator().manual_seed(seed)
    pairs = []
    for k in range(count):
        times = torch.rand(12, generator=generator, dtype=torch.float64).cumsum(0)
        pairs.append((times, torch.sin(times * (1 + k % 2) * 1.5)[:, None]))
    series = nc.IrregularSeries.from_list(pairs).with_channels()
    y = [["slow", "fast"][k % 2] for k in range(count)]
    task = classification_task(y)
    return task, nc.PathDataset(nc.linear(series), task.encode(y))


def fitted(settings, folder=None, resume=False, validation=True):
    task, data = problem()
    torch.manual_seed(1)
    model = nc.NeuralCDE(2, task.outputs, hidden=6, width=8, depth=1)
    result = train(
        model, task, data, problem(30, seed=5)[1] if validation else None, settings, folder=folder, resume=resume
    )
    return model, result


def same_weights(a, b):
    return all(torch.equal(x, y) for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True))


SETTINGS = TrainingSettings(
    max_epochs=6, batch_size=8, learning_rate=1e-2, ema_decay=0.9, channel_dropout=0.1, channel_jitter=0.1, verbose=0
)


def test_it_learns_and_keeps_the_best_epoch():
    model, result = fitted(replace(SETTINGS, max_epochs=25, channel_dropout=0.0, channel_jitter=0.0))
    best = max(row["validation_auroc"] for row in result.history)
    assert best > 0.9
    assert result.history[result.best_epoch - 1]["validation_auroc"] == best
    task, judge = problem(30, seed=5)
    assert task.metrics(*outputs_of(model, judge))["auroc"] == best


def test_the_same_seed_gives_the_same_model_twice():
    (a, first), (b, second) = fitted(SETTINGS), fitted(SETTINGS)
    assert same_weights(a, b)
    without_time = [[{k: v for k, v in row.items() if k != "seconds"} for row in r.history] for r in (first, second)]
    assert without_time[0] == without_time[1]
    assert not same_weights(a, fitted(replace(SETTINGS, seed=1))[0])


@pytest.mark.parametrize("schedule", ["plateau", "cosine", "one_cycle", "constant"])
def test_a_training_that_is_cut_in_two_equals_one_that_is_not(schedule, tmp_path):
    settings = replace(SETTINGS, schedule=schedule)
    whole, _ = fitted(settings)
    if schedule not in ("cosine", "one_cycle"):
        fitted(replace(settings, max_epochs=3), folder=tmp_path)
    else:  # these schedules depend on max_epochs, so interrupt the run instead of shortening it
        stopped = []

        def interrupt(*_):
            stopped.append(1)
            if len(stopped) == 3:
                raise KeyboardInterrupt

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("neuralcde.train.loop.Progress.epoch", interrupt)
            _, result = fitted(settings, folder=tmp_path)
        assert result.interrupted
        assert len(result.history) == 3
    resumed, result = fitted(settings, folder=tmp_path, resume=True)
    assert same_weights(whole, resumed)
    assert [row["epoch"] for row in result.history] == list(range(1, 7))
    rows = [json.loads(line) for line in (tmp_path / "history.jsonl").read_text().splitlines()]
    assert rows == result.history


def test_a_killed_training_goes_on_to_the_same_result(tmp_path):
    script = textwrap.dedent(
        """
        import os, signal, sys
        sys.path.insert(0, sys.argv[1])
        from pathlib import Path
        from train.test_training import SETTINGS, fitted
        from neuralcde.train import loop
        count = 0
        def after_epoch(self, row, metric):
            if row["epoch"] == 3:
                os.kill(os.getpid(), signal.SIGKILL)
        loop.Progress.epoch = after_epoch
        fitted(SETTINGS, folder=Path(sys.argv[2]))
        """
    )
    tests = os.path.dirname(os.path.dirname(__file__))  # noqa: PTH120
    done = subprocess.run([sys.executable, "-c", script, tests, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    resumed, result = fitted(SETTINGS, folder=tmp_path, resume=True)
    assert len(result.history) == 6
    assert same_weights(resumed, fitted(SETTINGS)[0])


def test_resuming_with_other_settings_is_refused(tmp_path):
    fitted(replace(SETTINGS, max_epochs=1), folder=tmp_path)
    with pytest.raises(ValueError, match="cannot resume: learning_rate must be the same as in the checkpointed run"):
        fitted(replace(SETTINGS, learning_rate=0.5), folder=tmp_path, resume=True)
    kept = load_state(tmp_path / "checkpoint.pt")
    del kept["settings"]["channel_jitter"]  # like a checkpoint that is older than the option
    save_state(tmp_path / "checkpoint.pt", kept)
    with pytest.raises(ValueError, match="cannot resume: channel_jitter must be the same"):
        fitted(SETTINGS, folder=tmp_path, resume=True)
    settings = replace(SETTINGS, channel_jitter=0.0)
    fitted(replace(settings, max_epochs=1), folder=tmp_path)
    kept = load_state(tmp_path / "checkpoint.pt")
    del kept["settings"]["channel_jitter"]
    save_state(tmp_path / "checkpoint.pt", kept)
    assert same_weights(fitted(settings, folder=tmp_path, resume=True)[0], fitted(settings)[0])
    kept["settings"]["average"] = 0.9  # an earlier name of an option
    save_state(tmp_path / "checkpoint.pt", kept)
    with pytest.raises(ValueError, match=r"was written by another version .*there is no option average"):
        fitted(settings, folder=tmp_path, resume=True)
    (tmp_path / "checkpoint.pt").write_bytes(b"nonsense")
    with pytest.raises(ValueError, match="is damaged"):
        fitted(SETTINGS, folder=tmp_path, resume=True)


def test_resuming_with_other_data_or_another_model_is_refused(tmp_path):
    task, data = problem()
    settings = replace(SETTINGS, max_epochs=1)
    train(nc.NeuralCDE(2, 1, hidden=6, width=8, depth=1), task, data, None, settings, folder=tmp_path)
    flipped = nc.PathDataset(data.source, 1 - data.targets)
    cubic = nc.PathDataset(nc.natural_cubic(data.series), data.targets)
    for other, hidden in ((flipped, 6), (cubic, 6), (data, 7)):
        with pytest.raises(ValueError, match="data, targets, path or model differ"):
            train(
                nc.NeuralCDE(2, 1, hidden=hidden, width=8, depth=1),
                task,
                other,
                None,
                settings,
                folder=tmp_path,
                resume=True,
            )
    with pytest.raises(ValueError, match="max_epochs must be the same"):
        train(
            nc.NeuralCDE(2, 1, hidden=6, width=8, depth=1),
            task,
            data,
            None,
            replace(settings, schedule="cosine"),
            folder=tmp_path,
        )
        later = replace(settings, schedule="cosine", max_epochs=2)
        train(nc.NeuralCDE(2, 1, hidden=6, width=8, depth=1), task, data, None, later, folder=tmp_path, resume=True)
    explosive = replace(settings, learning_rate=1e30, gradient_clip=None, max_epochs=9, batch_size=60)
    with pytest.raises(TrainingError, match="5 batches in a row"):  # one batch per epoch
        train(nc.NeuralCDE(2, 1, hidden=6, width=8, depth=1), task, data, None, explosive, folder=tmp_path)


def test_dropped_channels_leave_no_trace():
    _, data = problem()
    series = nc.IrregularSeries.from_list([(part.times, part.values[:, 1:]) for part in data.series])
    path = nc.linear(series.with_channels(counts="per_channel"), fill="forward")
    dropped = drop_channels(path, 0.5, torch.Generator().manual_seed(0))
    time, count, value = (dropped.coefficients[:, :, k].abs().sum(1) for k in range(3))
    assert (time > 0).all()
    gone = torch.tensor([bool(part.values[:, 2].isnan().all()) for part in dropped.series])
    assert 0 < gone.sum() < len(gone)
    for k, (start, stop) in enumerate(zip(path.piece_offsets[:-1], path.piece_offsets[1:], strict=True)):
        assert bool((value[start:stop] == 0).all()) == bool(gone[k])
        assert bool((count[start:stop] == 0).all()) == bool(gone[k])


def test_jittered_channels_are_the_same_series_times_a_factor():
    _, data = problem()
    series = nc.IrregularSeries.from_list([(part.times, part.values[:, 1:].expand(-1, 2)) for part in data.series])
    gaps = torch.rand(series.values.shape, generator=torch.Generator().manual_seed(3)) < 0.3
    gaps[series.offsets[:-1]] = False  # keep the first values, so that the start channels are not 0
    series = replace(series, values=series.values.masked_fill(gaps, torch.nan))
    path = nc.natural_cubic(series.with_channels(counts="per_channel", start=True))
    jittered = jitter_channels(path, 0.1, torch.Generator().manual_seed(0))
    assert torch.equal(jittered.series.times, path.series.times)
    assert torch.equal(jittered.series.values.isnan(), path.series.values.isnan())
    changed = [
        (after.coefficients.abs().sum((0, 1)) / before.coefficients.abs().sum((0, 1)))
        for before, after in each(path, jittered)
    ]
    time, first_count, second_count, first_start, second_start, first, second = factors = torch.stack(changed).T
    assert torch.equal(first_count, torch.ones(len(path))) and torch.equal(second_count, torch.ones(len(path)))
    torch.testing.assert_close(first_start, time * first)
    torch.testing.assert_close(second_start, time * second)
    drawn = torch.cat([time, first, second]) - 1
    assert 0.07 < drawn.std() < 0.13 and abs(drawn.mean()) < 0.03 and len(drawn.unique()) == len(drawn)
    # Path and series agree at the rows, so models with jumps get the same augmented data.
    values = path.series.values * factors.T[torch.repeat_interleave(path.series.lengths)]
    torch.testing.assert_close(jittered.series.values, values, equal_nan=True)
    torch.testing.assert_close(
        jittered.at_rows()[~gaps[:, 0], 5], jittered.series.values[~gaps[:, 0], 5], rtol=1e-4, atol=1e-5
    )
    assert torch.equal(jitter_channels(path, 0.1, torch.Generator().manual_seed(0)).coefficients, jittered.coefficients)


def test_jitter_applies_to_training_and_not_to_validation():
    (plain, _), (jittered, result) = (
        fitted(replace(SETTINGS, channel_dropout=0.0, channel_jitter=s)) for s in (0, 0.1)
    )
    assert not same_weights(plain, jittered)
    task, judge = problem(30, seed=5)
    outputs, targets = outputs_of(jittered, judge)
    assert float(task.loss(outputs, targets)) == pytest.approx(result.history[result.best_epoch - 1]["validation_loss"])


def each(*paths):
    return [[path[k] for path in paths] for k in range(len(paths[0]))]


def test_a_file_is_whole_or_not_there(tmp_path, monkeypatch):
    file = tmp_path / "a"
    write_atomically(file, b"old")
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space"):
        write_atomically(file, b"new and longer")
    assert file.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_weight_decay_shrinks_what_the_loss_leaves_alone():
    task, data = problem(8)
    model = nc.NeuralCDE(2, task.outputs, hidden=6, width=8, depth=1)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with torch.no_grad():  # a readout of zeros, so that no gradient reaches the field
        model.readout.linear.weight.zero_()
        model.readout.linear.weight.requires_grad_(False)
    train(
        model,
        task,
        data,
        None,
        replace(SETTINGS, max_epochs=1, ema_decay=0.0, weight_decay=0.5, channel_dropout=0.0, channel_jitter=0.0),
    )
    shrunk = 1 - SETTINGS.learning_rate * 0.5  # one batch of 8
    for name, value in model.field.state_dict().items():
        torch.testing.assert_close(value, before[f"field.{name}"] * shrunk)


def test_the_average_is_of_the_weights_of_every_step():
    model = nc.NeuralCDE(2, 1, hidden=6, width=8, depth=1)
    state = TrainingState(model, replace(SETTINGS, ema_decay=0.5))
    expected = [p.detach().clone() for p in model.parameters()]
    for k in range(1, 30):
        for p in model.parameters():
            p.grad = torch.randn_like(p)
        state.step()
        decay = min(0.5, (1 + k) / (10 + k))
        expected = [decay * e + (1 - decay) * p.detach() for e, p in zip(expected, model.parameters(), strict=True)]
    for found, wanted in zip(state.validated_model.parameters(), expected, strict=True):
        torch.testing.assert_close(found, wanted)
    assert state.result.steps == 29


def test_the_learning_rate_drops_on_a_plateau():
    model = nc.NeuralCDE(2, 1, hidden=6, width=8, depth=1)
    state = TrainingState(model, replace(SETTINGS, plateau_patience=2, plateau_factor=0.5, learning_rate=0.1))
    rates = []
    for epoch, loss in enumerate([1.0, 0.5, 0.6, 0.7, 0.6, 0.6], start=1):
        state.end_epoch({"epoch": epoch, "loss": 0.0, "validation_loss": loss, "validation_auroc": 0.5}, "auroc")
        rates.append(state.rate)
    assert rates == [0.1, 0.1, 0.1, 0.1, 0.05, 0.05]
    assert state.result.best_epoch == 2  # among equal metrics the epoch with the smallest loss


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_is_shown(terminal, capsys, monkeypatch):
    monkeypatch.setattr("neuralcde.train.progress.LINE_EVERY", 0.0)
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal)
    fitted(replace(SETTINGS, max_epochs=2, verbose=1))
    told = capsys.readouterr().err
    assert ("2/2" in told) and ("validation auroc" in told)
    assert ("epoch 1/2  loss" in told) is not terminal


def test_early_stopping():
    _, result = fitted(replace(SETTINGS, learning_rate=0.0, max_epochs=50, patience=4, ema_decay=0.0))
    assert len(result.history) == 5
    assert result.best_epoch == 1


def test_a_loss_that_is_never_finite_names_the_series():
    task, data = problem()
    model = nc.NeuralCDE(2, 1, hidden=4, width=4, depth=1)
    torch.nn.init.constant_(model.readout.linear.bias, torch.nan)
    with pytest.raises(
        TrainingError, match=r"5 batches in a row had no finite loss; .*held the series \d+, .*learning_rate"
    ):
        train(model, task, data, None, SETTINGS)


def test_one_bad_batch_is_skipped_and_counted():
    task, data = problem()
    data.targets[3] = torch.inf
    model = nc.NeuralCDE(2, 1, hidden=4, width=4, depth=1)
    result = train(model, task, data, None, replace(SETTINGS, max_epochs=2))
    assert result.skipped_batches == 2
    assert all(p.isfinite().all() for p in model.parameters())


def test_the_readout_has_its_own_learning_rate():
    model = nc.NeuralCDE(2, 1)
    groups = make_optimizer(model, replace(SETTINGS, readout_lr_scale=100.0)).param_groups
    assert groups[1]["lr"] == pytest.approx(100 * groups[0]["lr"])
    assert {id(p) for p in groups[1]["params"]} == {id(p) for p in model.readout.parameters()}


def test_gradient_clipping():
    from neuralcde.train.loop import _clip

    for largest in (0.5, 1e6):
        ours, torchs = nc.NeuralCDE(2, 1), nc.NeuralCDE(2, 1)
        torchs.load_state_dict(ours.state_dict())
        for model in (ours, torchs):
            (100 * model(problem()[1].source)).sum().backward()
        _clip(ours, largest)
        torch.nn.utils.clip_grad_norm_(torchs.parameters(), largest)
        for a, b in zip(ours.parameters(), torchs.parameters(), strict=True):
            torch.testing.assert_close(a.grad, b.grad, rtol=1e-5, atol=1e-7)


def test_the_penalty_is_on_what_the_paper_names():
    model = nc.NeuralCDE(2, 1)
    assert {id(p) for p in model.penalised()} == {id(p) for p in model.field.parameters()}
    jumps = nc.GRUD(2, 1, static=3)
    named = {name for name, p in jumps.named_parameters() if any(p is q for q in jumps.penalised())}
    assert "readout.linear.weight" in named
    assert not any(name.startswith("initial.") for name in named)


def test_a_target_at_every_row():
    """One label per row, some of them unknown: the sign of the last value."""
    _, data = problem()
    path = data.source
    y = (path.series.values[:, 1] > 0).double()
    y[::7] = torch.nan
    task = classification_task([0, 1])
    torch.manual_seed(0)
    model = nc.NeuralCDE(2, 1, hidden=6, width=8, depth=1)
    rows = nc.PathDataset(path, y, per_row=True)
    train(model, task, rows, None, replace(SETTINGS, max_epochs=15, channel_dropout=0.0, channel_jitter=0.0))
    assert task.metrics(*outputs_of(model, rows))["auroc"] > 0.9


def test_regression_of_several_targets():
    _, data = problem()
    values = data.source.at_rows()[data.source.series.offsets[1:] - 1]
    y = torch.stack([values[:, 1] * 100 + 7, values[:, 0]], dim=1).numpy()
    task = regression_task(y)
    torch.manual_seed(0)
    model = nc.NeuralCDE(2, 2, hidden=8, width=8, depth=1)
    both = nc.PathDataset(data.source, task.encode(y))
    train(model, task, both, None, replace(SETTINGS, max_epochs=40, channel_dropout=0.0, channel_jitter=0.0))
    outputs, targets = outputs_of(model, both)
    assert task.metrics(outputs, targets)["r2"] > 0.9
    torch.testing.assert_close(
        torch.from_numpy(task.decode(targets)), torch.from_numpy(y).double(), rtol=1e-5, atol=1e-4
    )


@pytest.mark.wrong_types
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_epochs", 0),
        ("batch_size", 2.5),
        ("ema_decay", 1.0),
        ("gradient_clip", 0.0),
        ("schedule", "step"),
        ("weight_decay", -1.0),
        ("channel_jitter", 1.0),
    ],
)
def test_wrong_settings_are_named(name, value):
    with pytest.raises(ValueError, match=name):
        replace(SETTINGS, **{name: value})


def test_ctrl_c_is_not_lost_in_code_that_drops_errors(monkeypatch):
    """For example in callbacks from native code, where exceptions are lost. The previous handler is restored."""
    task, data = problem()
    count, before = 0, signal.getsignal(signal.SIGINT)
    loss = type(task).loss

    def deaf(self, outputs, targets):
        nonlocal count
        count += 1
        if count == 10:
            with contextlib.suppress(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
        return loss(self, outputs, targets)

    monkeypatch.setattr(type(task), "loss", deaf)
    result = train(nc.NeuralCDE(2, 1, hidden=6, width=8, depth=1), task, data, None, replace(SETTINGS, max_epochs=50))
    assert result.interrupted
    assert count == 10
    assert signal.getsignal(signal.SIGINT) is before


def test_the_second_ctrl_c_is_raised_at_once():
    with Interrupts() as interrupts:
        signal.raise_signal(signal.SIGINT)
        assert interrupts.asked
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_signals_that_somebody_else_handles_are_left_alone():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Interrupts() as interrupts:
            signal.raise_signal(signal.SIGINT)
            assert not interrupts.asked
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_dropped_channel_leaves_no_trace_of_its_first_value():
    series = nc.IrregularSeries.from_list([([0.0, 1.0, 2.0], [[5.0, 7.0], [1.0, 2.0], [3.0, 4.0]])])
    path = nc.linear(series.with_channels(start=True), fill="forward")
    dropped = drop_channels(path, 0.999999, torch.Generator().manual_seed(0))
    assert [role == "time" for role in dropped.series.roles] == dropped.coefficients.abs().amax((0, 1)).gt(0).tolist()
