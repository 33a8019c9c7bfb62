"""Operating points, net benefit and the calibration slope, against counts by hand and a logistic regression."""

import itertools

import numpy as np
import pytest
import torch
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, roc_auc_score

from neuralcde.tasks import BinaryTask, Evaluation, Task
from neuralcde.tasks.calibration_slope import BINS, calibration_slopes
from neuralcde.tasks.operating_points import net_benefit, operating_points, thresholds_of, wilson

RNG = np.random.default_rng(0)
P = RNG.beta(1, 3, 200)
YES = RNG.random(200) < P


def test_the_table_has_the_counts_of_each_threshold():
    table = operating_points(P, YES, ("well", "ill"), "series", independent=True)
    thresholds = thresholds_of(P)
    assert len(table.rows) == len(thresholds) == len(table.intervals)
    for t, row, between in zip(thresholds, table.rows, table.intervals, strict=True):
        alarm = t <= P
        wanted = [YES[alarm].sum() / YES.sum(), (~alarm & ~YES).sum() / (~YES).sum()]
        wanted += [YES[alarm].mean() if alarm.any() else None, (~YES)[~alarm].mean() if (~alarm).any() else None]
        for cell, share, interval in zip(row[1:5], wanted, between[1:5], strict=True):
            if share is None:
                assert (cell, interval) == ("-", "")
                continue
            assert float(cell.strip("<> %")) == pytest.approx(100 * share, abs=0.06)
            low, high = (float(x) for x in interval.removesuffix(" %").split(" to "))
            assert low - 0.5 <= 100 * share <= high + 0.5
        assert float(row[5]) == pytest.approx(100 * alarm.mean(), abs=0.06)
    sensitivities = [float(table.rows[k][1].removesuffix(" %")) for k in table.shown]
    assert sensitivities == sorted(sensitivities, reverse=True)
    assert abs(float(table.rows[table.start][1].removesuffix(" %")) - 80) < 5


def test_every_row_has_other_alarms_than_the_one_before():
    for p in (P, P**4, 1 - P**4, np.full(7, 0.3)):
        alarms = [(p >= t).sum() for t in thresholds_of(p)]
        assert all(a > b for a, b in itertools.pairwise(alarms))
        assert alarms[0] == (p >= 0.001).sum()


def test_rows_of_one_series_get_no_intervals():
    table = operating_points(P, YES, ("well", "ill"), "rows", independent=False)
    assert {text for row in table.intervals for text in row} == {""}
    assert table.columns[-1].title == "alarms per 100 rows"


def test_the_net_benefit_is_that_of_its_definition():
    for t in (0.05, 0.2, 0.5):
        alarm = t <= P
        by_hand = ((alarm & YES).sum() - (alarm & ~YES).sum() * t / (1 - t)) / len(P)
        assert net_benefit(np.array([t]), P, YES)[0] == pytest.approx(by_hand)
    assert net_benefit(np.array([0.3]), np.ones(200), YES)[0] == pytest.approx(YES.mean() - (~YES).mean() * 3 / 7)


def test_wilson_intervals_have_the_published_values():
    low, high = wilson(np.array([0.0, 0.5]), np.array([10, 10]))  # Newcombe 1998
    np.testing.assert_allclose([low, high], [[0.0, 0.2366], [0.2775, 0.7634]], atol=1e-3)


def slope(logits, truth, weights=None):
    return LogisticRegression(C=np.inf, tol=1e-10).fit(logits[:, None], truth, weights).coef_[0, 0]


@pytest.mark.parametrize("stretch", [0.4, 1.0, 3.0])
def test_the_calibration_slope_is_that_of_a_logistic_regression(stretch):
    logits = np.log(P / (1 - P)) * stretch
    draws = RNG.multinomial(200, np.full(200, 1 / 200), size=5).astype(float)
    found = calibration_slopes(np.vstack([np.ones(200), draws]), logits, YES.astype(float))
    wanted = [slope(logits, YES), *(slope(logits, YES, draw) for draw in draws)]
    np.testing.assert_allclose(found, wanted, rtol=1e-4)


def test_many_cases_are_binned_without_much_change():
    p = RNG.beta(1, 3, 5 * BINS)
    yes, logits = RNG.random(len(p)) < p, np.log(p / (1 - p))
    found = calibration_slopes(np.ones((1, len(p))), logits, yes.astype(float))[0]
    assert found == pytest.approx(slope(logits, yes), rel=1e-3)
    assert found == pytest.approx(1, abs=0.1)


def test_an_undefined_slope_is_nan():
    logits = np.arange(10.0)
    for truth, of in (
        (np.ones(10), logits),
        (logits > 4.5, logits),
        (logits % 2, np.ones(10)),
        (logits * np.nan, logits),
    ):
        assert np.isnan(calibration_slopes(np.ones((1, 10)), of, np.asarray(truth, dtype=float))[0])


def evaluation(task, share):
    targets = torch.tensor((np.arange(40) < 40 * share).astype(float))
    outputs = torch.linspace(2, -2, 40)[:, None] + torch.sin(torch.arange(40.0))[:, None]
    return Evaluation(outputs, targets, task.target_names("y"), "series", outputs.flip(0))


@pytest.mark.parametrize(
    ("classes", "share", "name"),
    [
        (("died", "survived"), 0.8, "died"),
        (("died", "survived"), 0.3, "survived"),
        (("no", "yes"), 0.8, "yes"),
        ((0, 1), 0.8, "y 1"),
    ],
)
def test_everything_is_about_the_rarer_of_two_words_or_about_1(classes, share, name):
    """Alarms, curves, average precision, explanations and predictions over time speak of one class."""
    test = evaluation(BinaryTask(classes), share)
    task = BinaryTask.from_targets(np.array(classes)[test.targets.int()])
    (table,) = task.sliding_tables(test)
    assert table.title == f"Alarms for {name}"
    figures = task.figures(test)
    assert [figure.title for figure in figures] == [
        "ROC curve",
        f"Precision and recall of {name}",
        f"Calibration of the probability of {name}",
        "Decision curve",
    ]
    assert all(name in figure.see for figure in figures)
    assert "gradient boosting" in figures[-1].svg
    place = list(classes).index(name) if isinstance(classes[0], str) else 1
    p, truth = task.probabilities(test.outputs)[:, place], test.targets.numpy() == place
    metrics = task.test_metrics(test.outputs, test.targets)
    assert metrics["average_precision"] == pytest.approx(average_precision_score(truth, p))
    assert metrics["auroc"] == pytest.approx(roc_auc_score(truth, p))
    resampled = task.resampled_metrics(test.outputs, test.targets, np.ones((1, 40)))
    assert {key: value[0] for key, value in resampled.items()} == pytest.approx(metrics)
    assert task.score_names("y") == [name] == [task.subject(task.target_names("y"))]
    np.testing.assert_allclose(expit(task.scores(test.outputs)[:, 0].numpy()), p)
    assert torch.equal(task.outputs_of_scores(task.scores(test.outputs)), test.outputs.double())
    assert task.indicators(test.targets)[:, 0].tolist() == truth.tolist()
    forecast = task.forecast(test.outputs, test.targets, task.target_names("y"))
    np.testing.assert_array_equal(forecast.curves[0].values, p)
    np.testing.assert_array_equal(forecast.curves[0].truth, truth)
    assert Task.from_config(task.to_config()) == task
    with pytest.raises(ValueError, match="event must be 0 or 1"):
        BinaryTask(classes, event=2)


def test_a_test_of_one_class_has_no_table():
    task = BinaryTask((0, 1))
    assert task.sliding_tables(evaluation(task, 1.0)) == []
    found = task.test_metrics(torch.zeros(3, 1), torch.ones(3, dtype=torch.float64))
    assert found["brier"] == pytest.approx(0.25)
    assert np.isnan(found["calibration_slope"])
