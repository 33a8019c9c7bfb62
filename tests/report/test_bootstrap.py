"""Bootstrap intervals of metrics equal those of a plain loop that resamples series and computes each metric."""

import numpy as np
import pytest
import torch

from neuralcde.report import bootstrap
from neuralcde.report.bootstrap import SEED, intervals, resamples
from neuralcde.tasks import BinaryTask, MulticlassTask, MultilabelTask, RegressionTask, Task


def case(kind, size=80):
    """A task with outputs and targets; some scores are tied, some targets are unknown."""
    generator = torch.Generator().manual_seed(1)
    if kind == "binary":
        y = (torch.rand(size, generator=generator) < 0.3).double()
        return BinaryTask(("no", "yes")), (y[:, None] + torch.randn(size, 1, generator=generator)).round(decimals=1), y
    if kind == "multiclass":
        y = torch.randint(4, (size,), generator=generator).double()
        outputs = torch.randn(size, 5, generator=generator)  # the last class does not occur in the targets
        return MulticlassTask(tuple("abcde")), outputs, y
    y = torch.randn(size, 2, generator=generator).double()
    outputs = y + torch.randn(size, 2, generator=generator)
    if kind == "labels":
        y = (y > 0).double()
    y[:9, 0] = torch.nan
    task = MultilabelTask(2) if kind == "labels" else RegressionTask((3.0, 1e6), (2.0, 0.5), False)
    return task, outputs, y


@pytest.mark.parametrize("kind", ["binary", "multiclass", "labels", "regression"])
def test_equal_weights_give_the_metrics_of_the_task(kind):
    task, outputs, targets = case(kind)
    wanted = task.test_metrics(outputs, targets)
    with np.errstate(invalid="ignore"):  # the recall of the class that does not occur
        found = task.resampled_metrics(outputs, targets, np.ones((1, len(targets))))
    assert {name: float(values[0]) for name, values in found.items()} == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize("kind", ["binary", "multiclass", "labels", "regression"])
def test_vectorised_resamples_equal_metrics_of_repeated_cases(kind):
    task, outputs, targets = case(kind)
    weights = np.random.default_rng(3).integers(0, 3, (5, len(targets))).astype(float)
    with np.errstate(invalid="ignore"):
        found = task.resampled_metrics(outputs, targets, weights)
    for name, values in Task.resampled_metrics(task, outputs, targets, weights).items():
        np.testing.assert_allclose(found[name], values, rtol=1e-9)


@pytest.mark.parametrize("kind", ["binary", "multiclass", "labels", "regression"])
def test_intervals_equal_those_of_a_plain_loop(kind, monkeypatch):
    monkeypatch.setattr(bootstrap, "resamples", lambda targets: 40)
    task, outputs, targets = case(kind)
    generator = np.random.default_rng(SEED)
    again = []
    for _ in range(40):
        drawn = generator.integers(len(targets), size=len(targets))
        again.append(task.test_metrics(outputs[drawn], targets[drawn]))
    for name, (low, high) in intervals(task, outputs, targets).items():
        wanted = np.percentile([row[name] for row in again], [2.5, 97.5])
        np.testing.assert_allclose((low, high), wanted, rtol=1e-6)


def test_series_are_resampled_with_all_their_rows():
    """Copies of a row do not narrow the interval, because whole series are resampled."""
    task, outputs, targets = case("binary")
    alone = intervals(task, outputs, targets)
    counts = np.full(len(targets), 5)
    copied = intervals(task, outputs.repeat_interleave(5, 0), targets.repeat_interleave(5, 0), counts=counts)
    for name, wanted in alone.items():
        np.testing.assert_allclose(copied[name], wanted)


def test_the_number_of_resamples_falls_with_many_targets():
    assert [resamples(size) for size in (0, 10, 50_000, 100_000, 10**7)] == [1000, 1000, 1000, 500, 200]


def test_resamples_of_one_class_are_skipped():
    task = BinaryTask((0, 1))
    found = intervals(task, torch.tensor([[1.0], [-1.0], [-2.0]]), torch.tensor([1.0, 0.0, 0.0]))
    assert found["auroc"] == (1.0, 1.0)
    alone = intervals(task, torch.tensor([[1.0], [2.0]]), torch.tensor([1.0, 1.0]))
    assert "auroc" not in alone
    assert alone["accuracy"] == (1.0, 1.0)
