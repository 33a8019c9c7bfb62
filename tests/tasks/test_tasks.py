"""Conformance suite for every registered task: prior, loss, metrics, JSON, prediction tables and reports."""

import dataclasses
import json

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn import metrics
from sklearn.base import clone

from neuralcde.tasks import Evaluation, Task, classification_task, missing_targets, regression_task
from neuralcde.tasks.task import LINES

RNG = np.random.default_rng(0)
NAN = float("nan")
CASES = {
    "binary": ([0, 1], None, np.array([0, 1, 1, NAN, 0, 1, 1, 1])),
    "binary, balanced": (["a", "b", "b"], "balanced", np.array(["a", "b", "b", None, "a", "b"], dtype=object)),
    "multiclass": (["x", "y", "z"], None, np.array(["z", "x", None, "y", "x", "x"], dtype=object)),
    "multiclass, weighted": ([3, 5, 9], {3: 1.0, 5: 4.0, 9: 0.5}, np.array([3, 9, NAN, 5, 3, 3, 9])),
    "multilabel": ([[0, 1], [1, 1], [1, 0]], None, np.array([[0, 1], [1, NAN], [1, 1], [0, 0], [1, 0]])),
    "multilabel, balanced": (
        [[0, 1], [1, 1], [1, 0]],
        "balanced",
        np.array([[0, 1], [1, NAN], [1, 1], [0, 0], [1, 0]]),
    ),
    "regression": ([1.0, 5.0, 6.0], "numbers", np.array([1.0, NAN, 7.0, -2.0])),
    "regression of two": ([[1.0, 2.0], [5.0, 0.0]], "numbers", np.array([[1.0, 3.0], [NAN, 2.0], [0.0, 1.0]])),
}


def task_of(known, weights):
    return regression_task(known) if weights == "numbers" else classification_task(known, weights)


@pytest.fixture(params=CASES)
def case(request):
    """A task with targets, one of them unknown, and outputs."""
    known, weights, y = CASES[request.param]
    task = task_of(known, weights)
    targets = task.encode(y)
    outputs = torch.from_numpy(np.random.default_rng(1).normal(size=(len(y), task.outputs)))
    return task, targets, outputs


def test_the_prior_minimises_the_loss(case):
    task, targets, _ = case
    prior = task.prior(targets).double().requires_grad_()
    assert prior.shape == (task.outputs,)
    task.loss(prior.expand(len(targets), -1), targets).backward()
    torch.testing.assert_close(prior.grad, torch.zeros_like(prior), atol=1e-7, rtol=0)


def test_the_loss_on_softened_targets_is_a_mixture(case):
    task, targets, outputs = case
    plain, teacher = task.unweighted(), 2 * outputs.roll(1, 0)
    gradients = []
    for share in (0.0, 0.3, 1.0):
        soft = task.softened(targets, teacher, share)
        leaf = outputs.clone().requires_grad_()
        loss = plain.loss(leaf, soft)
        gradients.append(torch.autograd.grad(loss, leaf)[0])
        assert plain.weight(soft) == pytest.approx(plain.weight(targets))
    torch.testing.assert_close(gradients[1], gradients[0].lerp(gradients[2], 0.3))
    leaf = outputs.clone().requires_grad_()
    torch.testing.assert_close(gradients[0], torch.autograd.grad(plain.loss(leaf, targets), leaf)[0])
    leaf = teacher.clone().requires_grad_()  # the predictions themselves have the least loss
    (gradient,) = torch.autograd.grad(plain.loss(leaf, task.softened(targets, teacher, 1.0)), leaf)
    torch.testing.assert_close(gradient, torch.zeros_like(gradient), atol=1e-12, rtol=0)


def test_weights_of_classes_act_on_softened_targets(case):
    task, targets, outputs = case
    hard = task.softened(targets, outputs, 0.0)
    torch.testing.assert_close(task.loss(outputs, hard), task.loss(outputs, targets))
    assert task.weight(hard) == pytest.approx(task.weight(targets))
    soft = task.softened(targets, outputs, 0.5)
    prior = task.prior(soft).double().requires_grad_()
    task.loss(prior.expand(len(targets), -1), soft).backward()
    torch.testing.assert_close(prior.grad, torch.zeros_like(prior), atol=1e-6, rtol=0)


def test_the_weighted_prior_is_that_of_repeated_cases(case):
    task, targets, _ = case
    counts = torch.arange(len(targets)) % 3 + 1
    found = task.weighted_prior(targets, 7.5 * counts.double())
    expected = task.prior(targets.repeat_interleave(counts, dim=0))
    torch.testing.assert_close(found, expected, rtol=2e-3, atol=2e-3)
    assert torch.equal(task.weighted_prior(targets, None), task.prior(targets))


def test_the_loss_is_the_weighted_mean_over_parts(case):
    task, targets, outputs = case
    parts = [slice(0, 2), slice(2, None)]
    weights = [task.weight(targets[part]) for part in parts]
    total = sum(task.loss(outputs[part], targets[part]) * w for part, w in zip(parts, weights, strict=True))
    torch.testing.assert_close(total / sum(weights), task.loss(outputs, targets))
    assert task.weight(targets) == pytest.approx(sum(weights))


def test_a_case_of_weight_two_counts_like_two_cases(case):
    task, targets, outputs = case
    weights = torch.arange(len(targets)) % 3  # 0, 1, 2, 0, ...
    repeated = torch.repeat_interleave(torch.arange(len(targets)), weights)
    loss, weight = task.weighted_loss(outputs, targets, weights.double())
    torch.testing.assert_close(loss, task.loss(outputs[repeated], targets[repeated]))
    assert weight == pytest.approx(task.weight(targets[repeated]))
    same, whole = task.weighted_loss(outputs, targets, torch.full((len(targets),), 0.5))
    torch.testing.assert_close(same, task.loss(outputs, targets))
    assert whole == pytest.approx(0.5 * task.weight(targets))
    nothing, none = task.weighted_loss(outputs, targets, torch.zeros(len(targets)))
    assert (float(nothing), none) == (0.0, 0.0)


def test_losses_equal_the_loss_of_each_target_alone(case):
    task, targets, outputs = case
    plain = {"positive_weight": 1.0, "weights": None, "positive_weights": None}
    task = dataclasses.replace(task, **{name: value for name, value in plain.items() if hasattr(task, name)})
    alone = torch.stack([task.loss(outputs[i : i + 1], targets[i : i + 1]) for i in range(len(targets))])
    torch.testing.assert_close(task.losses(outputs, targets), alone, equal_nan=True)


def test_unknown_targets_are_ignored(case):
    task, targets, outputs = case
    known = ~targets.reshape(len(targets), -1).isnan().any(1)
    if targets.ndim == 1:
        torch.testing.assert_close(task.loss(outputs, targets), task.loss(outputs[known], targets[known]))
        assert task.metrics(outputs, targets) == task.metrics(outputs[known], targets[known])
    changed = outputs.clone()
    changed[targets.reshape(len(targets), -1).isnan().expand_as(outputs)] += 5.0
    torch.testing.assert_close(task.loss(changed, targets), task.loss(outputs, targets))


def test_a_task_survives_json(case):
    task, targets, outputs = case
    again = Task.from_config(json.loads(json.dumps(task.to_config())))
    assert again == task or again.to_config() == task.to_config()
    assert float(again.loss(outputs, targets)) == float(task.loss(outputs, targets))
    np.testing.assert_array_equal(again.decode(outputs), task.decode(outputs))


def test_every_registered_task_has_a_case():
    """Targets cannot be derived from the name of a task, so each task of the package needs a case here."""
    tested = {type(task_of(*CASES[name][:2])) for name in CASES}
    assert {Task.registry[name] for name in Task.registry if not name.startswith("test ")} == tested


def test_a_task_can_be_cloned(case):
    task, _, _ = case
    again = clone(task)
    assert again == task
    assert again is not task
    changed = {name: value for name, value in task.get_params().items() if isinstance(value, float)}
    for name in changed:
        assert getattr(again.set_params(**{name: 2.5}), name) == 2.5


def test_losses_equal_their_default_implementation(case):
    task, targets, outputs = case
    plain = {"positive_weight": 1.0, "weights": None, "positive_weights": None}
    task = dataclasses.replace(task, **{name: value for name, value in plain.items() if hasattr(task, name)})
    torch.testing.assert_close(Task.losses(task, outputs, targets), task.losses(outputs, targets), equal_nan=True)


def test_the_baseline_is_the_prior_without_weights(case):
    task, targets, _ = case
    plain = {"positive_weight": 1.0, "weights": None, "positive_weights": None}
    plain_task = dataclasses.replace(task, **{name: value for name, value in plain.items() if hasattr(task, name)})
    torch.testing.assert_close(task.baseline(targets), plain_task.prior(targets))


def test_targets_of_the_wrong_shape_or_range_are_refused(case):
    task, targets, _ = case
    task.check_encoded(targets, len(targets))
    wrong = [targets[:-1], targets.float(), targets[..., None], torch.full_like(targets, torch.inf)]
    if task.summarised_by == "counts":
        wrong += [targets + 0.5, targets - 1.0, targets + 9.0]
    for tensor in wrong:
        with pytest.raises(ValueError, match="targets are not"):
            task.check_encoded(tensor, len(targets))


def test_names_summary_and_columns_agree(case):
    task, targets, outputs = case
    names = task.target_names("y")
    assert len(task.summary(targets)) == len(names)
    columns = task.prediction_columns(outputs, "y")
    assert {len(column) for column in columns.values()} == {len(targets)}
    assert set(task.prediction_columns(outputs[:0], "y")) == set(columns)
    if task.goal == "classification":
        p = task.probabilities(outputs)
        assert p.shape[-1] == len(task.columns) == len(names)
        assert [columns[f"p_{name}"] for name in task.columns] == p.T.tolist()


def test_figures_tables_and_verdicts_of_a_report_are_complete(case):
    task, targets, outputs = case
    names = task.target_names("y")
    test = Evaluation(outputs, targets, names, "series")
    assert all(drawing.svg.startswith("<svg") for drawing in task.figures(test))
    for table in task.tables(test):
        assert all(len(row) == len(table.header) for row in table.rows)
    for truth in (targets[:1], targets[: len(outputs)]):
        forecast = task.forecast(outputs, truth, names)
        assert 1 <= len(forecast.curves) <= LINES
        for curve in forecast.curves:
            assert len(curve.values) == len(outputs)
            assert curve.truth is None or len(curve.truth) == len(truth)
    for role in ("surest", "typical", "worst"):
        verdict, sentence = task.verdict(outputs[:1], targets[:1], names, role)
        assert verdict
        assert sentence


def test_losses_equal_values_computed_by_hand():
    task = classification_task(["a", "b", "b", "b"], "balanced")  # weights 2 and 2/3
    p = torch.tensor([0.2, 0.9], dtype=torch.float64)
    loss = task.loss(p.logit()[:, None], task.encode(["a", "b"]))
    assert float(loss) == pytest.approx(-(np.log(0.8) + 1 / 3 * np.log(0.9)) / 2)
    task = classification_task(["x", "y", "z"])
    p = torch.tensor([[0.2, 0.3, 0.5]], dtype=torch.float64)
    assert float(task.loss(p.log(), task.encode(["y"]))) == pytest.approx(-np.log(0.3))
    np.testing.assert_allclose(task.probabilities(p.log()), p.numpy())
    assert task.decode(p.log()).tolist() == ["z"]
    task = regression_task([0.0, 2.0])  # mean 1, standard deviation 1
    assert float(task.loss(torch.tensor([[0.5]]), task.encode([3.0]))) == pytest.approx(2.25)
    assert task.decode(torch.tensor([[0.5]])).tolist() == [1.5]


def test_metrics_equal_those_of_scikit_learn():
    truth = RNG.integers(0, 2, 50)
    score = torch.from_numpy(RNG.normal(size=(50, 1)))
    task = classification_task([0, 1])
    p = score.sigmoid().numpy()[:, 0]
    assert task.metrics(score, task.encode(truth)) == pytest.approx(
        {
            "auroc": metrics.roc_auc_score(truth, p),
            "average_precision": metrics.average_precision_score(truth, p),
            "accuracy": metrics.accuracy_score(truth, p > 0.5),
            "log_loss": metrics.log_loss(truth, p),
        }
    )
    numbers, found = RNG.normal(5, 3, 50), RNG.normal(size=(50, 1))
    task = regression_task(numbers)
    predicted = task.decode(torch.from_numpy(found))
    assert task.metrics(torch.from_numpy(found), task.encode(numbers)) == pytest.approx(
        {
            "r2": metrics.r2_score(numbers, predicted),
            "rmse": metrics.root_mean_squared_error(numbers, predicted),
            "mae": metrics.mean_absolute_error(numbers, predicted),
        }
    )


def test_invalid_targets_are_named():
    with pytest.raises(ValueError, match="y has the class 'c', which is not one of"):
        classification_task(["a", "b"]).encode(["a", "c"])
    with pytest.raises(ValueError, match="zeros and ones"):
        classification_task([[0, 1], [1, 0]]).encode([[0, 2]])
    with pytest.raises(ValueError, match="y has 3 targets, but the model was made for 2"):
        regression_task([[0.0, 1.0]]).encode([[0.0, 1.0, 2.0]])
    with pytest.raises(ValueError, match="there is no task 'ranking'; there are"):
        Task.from_config({"name": "ranking"})
    assert missing_targets(np.array(["a", None, NAN], dtype=object)).tolist() == [False, True, True]
    assert missing_targets(np.array([1, 2])).tolist() == [False, False]
    assert missing_targets(np.array([pd.NA, pd.NaT, 0, "", [NAN]], dtype=object)).tolist() == [True, True, *[False] * 3]


@pytest.mark.parametrize(
    "config",
    [
        {"name": ["binary"]},
        {"name": "binary"},
        {"name": "binary", "classes": ["a", "b"], "colour": 1},
        {"name": "binary", "classes": ["a", "b", "c"]},
        {"name": "binary", "classes": "ab"},
        {"name": "binary", "classes": ["a", "a"]},
        {"name": "binary", "classes": ["a", 1]},
        {"name": "binary", "classes": [True, 2]},
        {"name": "binary", "classes": [0, NAN]},
        {"name": "binary", "classes": [[0], [1]]},
        {"name": "binary", "classes": ["a", "b"], "positive_weight": "much"},
        {"name": "binary", "classes": ["a", "b"], "positive_weight": -1.0},
        {"name": "multiclass", "classes": []},
        {"name": "multiclass", "classes": ["a", "b", "c"], "weights": [1.0, 2.0]},
        {"name": "multiclass", "classes": ["a", "b", "c"], "weights": [1.0, 2.0, float("inf")]},
        {"name": "multilabel", "labels": 0},
        {"name": "multilabel", "labels": True},
        {"name": "multilabel", "labels": 2, "positive_weights": [1.0]},
        {"name": "regression", "means": [0.0], "scales": [0.0]},
        {"name": "regression", "means": [0.0], "scales": [1e200]},
        {"name": "regression", "means": [NAN], "scales": [1.0]},
        {"name": "regression", "means": [10**400], "scales": [1.0]},
        {"name": "regression", "means": [0.0, 1.0], "scales": [1.0], "flat": False},
        {"name": "regression", "means": [0.0, 1.0], "scales": [1.0, 1.0]},
        {"name": "regression", "means": [0.0], "scales": [1.0], "flat": "yes"},
        {"name": "regression", "means": 0.0, "scales": 1.0},
    ],
    ids=str,
)
def test_invalid_configs_are_refused(config):
    with pytest.raises(ValueError, match=r"task|classes|weight|labels|means|scales|flat|numbers in y"):
        Task.from_config(config)


def test_constant_targets_have_scale_one():
    assert regression_task([0.1] * 7).scales == (1.0,)
    with pytest.raises(ValueError, match="too large or too small to be squared"):
        regression_task([1e308] * 7)
