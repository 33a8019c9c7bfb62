"""Distillation: targets mixed with what trees predict for series that they were not fitted on."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_array_equal

import neuralcde as nc
from neuralcde.estimators import distillation
from neuralcde.estimators.distillation import explained, out_of_fold, soft_targets
from neuralcde.estimators.preparation import Preparation
from neuralcde.estimators.splits import folds_of
from neuralcde.estimators.training_data import TrainingData
from neuralcde.tasks import classification_task

SMALL = {"hidden": 4, "width": 4, "max_epochs": 2, "random_state": 0, "encoder": "mlp", "members": 1}


def sparse_series(count, seed=0):
    """Series with 70 % of the values missing, and whether the last value of the first channel is high."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(count, 6, 3))
    values[rng.random(values.shape) < 0.7] = np.nan
    values[:, -1, 0] = rng.normal(size=count)
    return nc.IrregularSeries.from_padded(values), (values[:, -1, 0] + rng.normal(0, 0.7, count) > 0.5).astype(int)


def training_data(series, y, **options):
    task = classification_task(y)
    scheme = nc.PathScheme.of("linear")
    preparation = Preparation.fit(series, intensity=True, encoded=True, scheme=scheme)
    given = {"weights": None, "held_out": None, "auxiliary": None, "per_row": False, "per_batch": False}
    return TrainingData(series, task.encode(y), task=task, preparation=preparation, device="cpu", **given | options)


def test_no_series_is_predicted_by_trees_that_know_its_target():
    series, y = sparse_series(300)
    folds = folds_of(300, 0, y, None, argument="distillation", instead=0)
    before = out_of_fold(training_data(series, y), folds, 0, y)
    held = folds[2][1]
    changed = y.copy()
    changed[held] = 1 - changed[held]
    after = out_of_fold(training_data(series, changed), folds, 0, changed)
    assert_array_equal(before[held], after[held])
    assert not torch.equal(before, after)


def test_the_share_is_the_fraction_of_the_loss_that_the_trees_explain():
    series, y = sparse_series(400)
    data = training_data(series, y)
    soft, share = soft_targets(data, None, seed=0, labels=y, groups=None)
    outputs = out_of_fold(data, folds_of(400, 0, y, None, argument="distillation", instead=0), 0, y)
    p = 1 / (1 + np.exp(-outputs[:, 0].numpy()))
    loss, constant = (-np.log(np.where(y == 1, q, 1 - q)).mean() for q in (p, np.full(400, y.mean())))
    assert share == pytest.approx(1 - loss / constant)
    assert 0.2 < share < 0.9
    np.testing.assert_allclose(soft, (1 - share) * y + share * p)
    assert explained(data, data.task.baseline(data.targets).double().expand(400, 1)) == pytest.approx(0)


def test_trees_that_explain_nothing_are_left_out():
    series, _ = sparse_series(300)
    y = np.random.default_rng(1).integers(0, 2, 300)
    assert soft_targets(training_data(series, y), None, seed=0, labels=y, groups=None) == (None, 0.0)


def test_weights_count_in_what_is_explained():
    series, y = sparse_series(300)
    data = training_data(series, y, weights=np.where(np.arange(300) < 150, 2.0, 1.0))
    outputs = torch.randn(300, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    twice = np.concatenate([np.arange(300), np.arange(150)])
    same = training_data(series[twice], y[twice])
    shift = data.task.baseline(data.targets) - same.task.baseline(same.targets)
    assert abs(float(shift)) < 0.2  # the constant is that of equal weights
    p = torch.sigmoid(outputs[twice, 0]).numpy()
    constant = torch.sigmoid(data.task.baseline(data.targets)).item()
    mine, theirs = (-np.log(np.where(y[twice] == 1, q, 1 - q)).sum() for q in (p, np.full(450, constant)))
    assert explained(data, outputs) == pytest.approx(1 - mine / theirs, abs=1e-6)


def test_by_default_only_readouts_of_summaries_learn_from_trees(monkeypatch, capsys):
    monkeypatch.setattr(distillation, "SERIES_FOR_SUMMARIES", 100)
    series, y = sparse_series(200)
    asked = []
    monkeypatch.setattr(
        "neuralcde.estimators.path_estimator.soft_targets",
        lambda data, share, **given: asked.append(share) or soft_targets(data, share, **given),
    )
    nc.NeuralCDEClassifier(**SMALL, verbose=1).fit(series, y)
    assert asked == [None]
    assert "of the loss is on predictions of trees" in capsys.readouterr().err
    nc.NeuralCDEClassifier(**SMALL | {"encoder": None}).fit(series, y)
    nc.NeuralCDEClassifier(**SMALL, distillation=0).fit(series, y)
    nc.NeuralCDEClassifier(**SMALL).fit(series[:90], y[:90])
    nc.NeuralCDERegressor(**SMALL, per_row=True).fit(series, np.repeat(y, series.lengths.numpy()).astype(float))
    assert asked == [None]
    nc.NeuralCDEClassifier(**SMALL | {"encoder": None}, distillation=0.3).fit(series, y)
    assert asked == [None, 0.3]


@pytest.mark.parametrize("kind", ["weighted", "several classes", "labels", "numbers", "validation", "groups"])
def test_every_task_is_distilled(kind):
    series, y = sparse_series(150)
    estimator, given, options = nc.NeuralCDEClassifier, {}, {}
    target = y
    if kind == "weighted":
        options = {"class_weight": "balanced"}
    elif kind == "several classes":
        target, options = y + (np.arange(150) % 3 == 0), {"class_weight": "balanced"}
    elif kind == "labels":
        target = np.stack([y, 1 - y], 1)
    elif kind == "numbers":
        estimator, target = nc.NeuralCDERegressor, np.stack([y, 2.0 * y], 1)
    elif kind == "validation":
        given = {"validation": (series[:40], target[:40])}
    else:
        given = {"groups": np.arange(150) // 2}
    plain, mixed = (
        estimator(**SMALL, distillation=share, **options).fit(series, target, **given) for share in (0, 0.9)
    )
    assert not torch.equal(plain.outputs(series), mixed.outputs(series))
    assert mixed.outputs(series).isfinite().all()


def test_what_cannot_be_distilled_is_refused_by_name():
    series, y = sparse_series(40)
    with pytest.raises(ValueError, match="distillation needs one target per series"):
        rows = np.repeat(y, series.lengths.numpy())
        nc.NeuralCDEClassifier(**SMALL, distillation=0.5, per_row=True).fit(series, rows)
    with pytest.raises(ValueError, match=r"distillation needs at least 2 series of each class.*use distillation=0"):
        nc.NeuralCDEClassifier(**SMALL, distillation=0.5).fit(series, np.arange(40) < 1)


def test_a_rare_class_has_fewer_folds():
    series, _ = sparse_series(60)
    y = (np.arange(60) < 3).astype(int)
    folds = folds_of(60, 0, y, None, argument="distillation", instead=0, least=2)
    assert [y[held].sum() for _, held in folds] == [1, 1, 1]
    clf = nc.NeuralCDEClassifier(**SMALL, distillation=0.5).fit(series, y)
    assert clf.predict_proba(series).shape == (60, 2)


class Unsoftened(nc.tasks.BinaryTask, name="test unsoftened"):
    """A task whose targets cannot be mixed."""

    def softened(self, targets, outputs, share):
        return None


def test_a_task_without_soft_targets_is_trained_without_trees(monkeypatch):
    monkeypatch.setattr(distillation, "SERIES_FOR_SUMMARIES", 30)
    series, y = sparse_series(40)
    nc.NeuralCDEClassifier(**SMALL, task=Unsoftened).fit(series, y)
    with pytest.raises(ValueError, match="does not say how its targets are mixed; use distillation=0"):
        nc.NeuralCDEClassifier(**SMALL, task=Unsoftened, distillation=0.5).fit(series, y)
