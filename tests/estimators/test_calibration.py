"""Calibration: what the maps are, on what they are learnt, where they are applied, and that they are saved."""

import dataclasses
import json
import warnings

import numpy as np
import pytest
import torch
from scipy.special import expit, logit
from sklearn.base import clone
from sklearn.isotonic import IsotonicRegression
from sklearn.metrics import log_loss

import neuralcde as nc
from neuralcde.estimators.calibration import Calibration
from neuralcde.estimators.calibration_curve import Curve, Logistic
from neuralcde.estimators.held_out_outputs import InterruptedFoldError, on_the_scale_of
from neuralcde.estimators.splits import folds_of
from neuralcde.tasks import BinaryTask, MulticlassTask, MultilabelTask

QUICK = {"max_epochs": 2, "hidden": 4, "width": 4, "depth": 1, "random_state": 0, "learning_rate": 0.02}
BINARY = BinaryTask((0, 1))


def binary_case(count, seed=0, sharpness=3.0):
    """Log odds that are too far from 0 by a factor, and the truth."""
    rng = np.random.default_rng(seed)
    true = rng.normal(-1, 1, count)
    y = (rng.random(count) < expit(true)).astype(float)
    return torch.tensor(sharpness * true)[:, None], torch.tensor(y)


def test_temperature_is_the_factor_that_outputs_are_too_sharp_by():
    outputs, targets = binary_case(40_000)
    found = Calibration.fit("temperature", BINARY, outputs, targets)
    assert found.temperature == pytest.approx(3.0, rel=0.05)
    torch.testing.assert_close(found(BINARY, outputs), outputs / found.temperature)


@pytest.mark.parametrize("method", ["temperature", "isotonic"])
def test_calibrated_probabilities_are_better_on_other_cases(method):
    found = Calibration.fit(method, BINARY, *binary_case(4_000))
    outputs, targets = binary_case(20_000, seed=1)
    before, after = (BINARY.losses(part, targets).mean() for part in (outputs, found(BINARY, outputs)))
    assert after < before - 0.1
    p = BINARY.probabilities(found(BINARY, outputs))[:, 1]
    for low in np.arange(0.0, 0.8, 0.1):
        here = (p >= low) & (p < low + 0.1)
        assert abs(targets.numpy()[here].mean() - p[here].mean()) < 0.05


def test_isotonic_shares_hold_at_the_centres_of_blocks_and_are_clipped():
    """By hand: the two cases in the wrong order are pooled, and blocks of n = 2 cases say at most 1/4 and 3/4.

    The centres of the three blocks are -2.5, 0 and 2.5, and the curve is linear between them.
    """
    outputs = torch.tensor([[-3.0], [-2.0], [-1.0], [1.0], [2.0], [3.0]])
    targets = torch.tensor([0.0, 0.0, 1.0, 0.0, 1.0, 1.0]).double()
    found = Calibration.fit("isotonic", BINARY, outputs, targets)
    assert found.curves[0].knots == (-2.5, 0.0, 2.5)
    p = BINARY.probabilities(found(BINARY, outputs))[:, 1]
    np.testing.assert_allclose(p, [0.25, 0.3, 0.4, 0.6, 0.7, 0.75], atol=1e-6)
    np.testing.assert_allclose(BINARY.probabilities(found(BINARY, outputs * 100))[[0, -1], 1], [1 / 4, 3 / 4])


def test_the_centre_of_a_block_is_weighted():
    outputs, targets = torch.tensor([[-1.0], [1.0], [2.0]]), torch.tensor([1.0, 0.0, 1.0]).double()
    found = Calibration.fit("isotonic", BINARY, outputs, targets, np.array([1.0, 3.0, 0.0]))
    assert found.curves[0].knots == (0.5,)
    assert found.curves[0].values == (0.25,)


def extra_loss(curve_of, truth_of, count, seeds=20):
    """How much log-loss beyond the truth's own a curve has on new cases, in the mean over seeds."""
    found = []
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        known, new = (rng.normal(-2.5, 1.2, size) for size in (count, 4000))
        y = (rng.random(count) < truth_of(known)).astype(float)
        p, chance = curve_of(known, y, np.ones(count))(new).clip(1 / (count + 2), 1 - 1 / (count + 2)), truth_of(new)
        found.append((chance * np.log(chance / p) + (1 - chance) * np.log((1 - chance) / (1 - p))).mean())
    return np.mean(found)


def steps(log_odds, truth, weights):
    return IsotonicRegression(out_of_bounds="clip").fit(log_odds, truth, weights).predict


def bent(log_odds):
    """Chances that are no logistic curve of the log odds."""
    return expit(np.where(log_odds < -2.5, log_odds, -2.5 + (log_odds + 2.5) / 4))


def test_curves_are_closer_to_the_truth_than_steps_and_than_a_wrong_shape():
    """From few cases of right outputs nearly as good as a logistic curve, from many with another shape as isotonic."""
    few, many = (expit, 600), (bent, 6000)
    assert 1.3 * extra_loss(Curve.isotonic, *few) < extra_loss(steps, *few)
    assert 1.5 * extra_loss(Curve.fit, *few) < extra_loss(Curve.isotonic, *few)
    assert 1.1 * extra_loss(Curve.isotonic, *many) < extra_loss(steps, *many)
    assert 2 * extra_loss(Curve.fit, *many) < extra_loss(Logistic.fit, *many)
    assert extra_loss(Curve.fit, *many) < 1.1 * extra_loss(Curve.isotonic, *many)


def test_the_logistic_curve_is_that_of_the_truth_and_never_falls():
    outputs, targets = binary_case(40_000)
    z, y = outputs.numpy()[:, 0], targets.numpy()
    found = Logistic.fit(z, y, np.ones(len(y)))
    assert found.slope == pytest.approx(1 / 3, rel=0.05)
    assert found.offset == pytest.approx(0, abs=0.1)
    assert Logistic.fit(-z, y, np.ones(len(y))).slope == 0
    apart = Logistic.fit(np.arange(20.0), (np.arange(20) > 9) * 1.0, np.ones(20))
    assert 0 < apart.slope < 20  # the classes are separable
    values = Curve.fit(-z[:500], y[:500], np.ones(500)).values
    assert (np.diff(values) >= 0).all()


def test_clipped_steps_do_not_pass_the_next_one():
    """One case alone below a step of a share of a fifth: 1/3 would be above it."""
    outputs = torch.arange(6.0)[:, None]
    found = Calibration.fit("isotonic", BINARY, outputs, torch.tensor([0.0, 1.0, 0.0, 0.0, 0.0, 0.0]).double())
    p = BINARY.probabilities(found(BINARY, outputs))[:, 1]
    np.testing.assert_allclose(p, [1 / 5] * 6, atol=1e-6)


def test_clipping_holds_for_temperature_too():
    found = Calibration(8, 1.0, ())
    p = BINARY.probabilities(found(BINARY, torch.tensor([[-50.0], [0.3], [50.0]])))[:, 1]
    np.testing.assert_allclose(p, [0.1, expit(0.3), 0.9], rtol=1e-6)


@pytest.mark.parametrize("method", ["temperature", "isotonic"])
def test_several_classes_add_up_to_one_and_labels_are_on_their_own(method):
    rng = np.random.default_rng(0)
    task = MulticlassTask(("a", "b", "c"))
    logits = torch.tensor(rng.normal(size=(3000, 3)))
    p = task.probabilities(logits)
    targets = torch.tensor([rng.choice(3, p=row) for row in p], dtype=torch.float64)
    found = Calibration.fit(method, task, 2.5 * logits, targets)
    after = task.probabilities(found(task, 2.5 * logits))
    np.testing.assert_allclose(after.sum(1), 1.0)
    assert log_loss(targets, after) < log_loss(targets, task.probabilities(2.5 * logits)) - 0.05
    labels = MultilabelTask(2)
    both = torch.cat([binary_case(3000)[0], binary_case(3000, seed=2)[0]], dim=1)
    truth = torch.stack([binary_case(3000)[1], binary_case(3000, seed=2)[1]], dim=1)
    truth[::3, 0] = torch.nan
    found = Calibration.fit(method, labels, both, truth)
    known = ~truth.isnan().any(1)
    assert labels.losses(found(labels, both), truth)[known].mean() < labels.losses(both, truth)[known].mean() - 0.1


def test_weights_count_like_repeated_cases():
    outputs, targets = binary_case(300)
    weights = np.random.default_rng(0).integers(1, 4, 300)
    often = torch.tensor(weights)
    repeated = outputs.repeat_interleave(often, 0), targets.repeat_interleave(often)
    found = Calibration.fit("temperature", BINARY, outputs, targets, weights)
    assert found.temperature == pytest.approx(Calibration.fit("temperature", BINARY, *repeated).temperature, rel=1e-3)
    z, y, weights = outputs.numpy()[:, 0], targets.numpy(), weights.astype(float)
    inside = np.linspace(-3, 3, 50)
    for fit in (Curve.isotonic, Logistic.fit):
        again = fit(repeated[0].numpy()[:, 0], repeated[1].numpy(), np.ones(len(repeated[1])))
        np.testing.assert_allclose(fit(z, y, weights)(inside), again(inside), atol=0.01)
    part = Curve.fit(z, y, np.where(z < 0, weights, 0.0))
    assert part == Curve.fit(z[z < 0], y[z < 0], weights[z < 0])


def test_unknown_targets_are_left_out():
    outputs, targets = binary_case(500)
    gone = targets.clone()
    gone[::2] = torch.nan
    for method in ("temperature", "isotonic"):
        known = Calibration.fit(method, BINARY, outputs[1::2], targets[1::2])
        assert Calibration.fit(method, BINARY, outputs, gone) == known


# ---- in the estimator ----


def drawn(count, seed=0):
    rng = np.random.default_rng(seed)
    pairs = [(np.arange(4.0), rng.normal(size=(4, 2)).cumsum(0)) for _ in range(count)]
    y = np.array([values[-1, 0] + rng.normal() > 0 for _, values in pairs])
    return nc.IrregularSeries.from_list(pairs), np.where(y, "up", "down")


SERIES, Y = drawn(60)


@pytest.fixture(scope="module", params=["temperature", "isotonic"])
def pair(request):
    """The same model with and without calibration."""
    plain = nc.NeuralCDEClassifier(**QUICK).fit(SERIES, Y)
    return plain, clone(plain).set_params(calibrate=request.param).fit(SERIES, Y)


def test_outputs_are_the_same_and_probabilities_are_calibrated(pair):
    plain, clf = pair
    assert torch.equal(clf.outputs(SERIES), plain.outputs(SERIES))
    p = clf.predict_proba(SERIES)
    expected = clf.task_.probabilities(clf.calibration_(clf.task_, clf.outputs(SERIES)))
    np.testing.assert_array_equal(p, expected)
    assert not np.allclose(p, plain.predict_proba(SERIES))
    assert clf.calibration_.cases == len(SERIES)
    assert p.min() >= 1 / 62 - 1e-6
    np.testing.assert_array_equal(clf.predict(SERIES), clf.classes_[p.argmax(1)])
    assert (np.diff(p[np.argsort(plain.predict_proba(SERIES)[:, 1]), 1]) >= -1e-9).all()


def test_calibration_is_saved(pair, tmp_path):
    _, clf = pair
    clf.save(tmp_path / "model")
    loaded = nc.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_proba(SERIES), clf.predict_proba(SERIES))
    assert loaded.calibration_ == clf.calibration_
    assert loaded.calibration_.method == clf.calibrate


WRONG = [
    {"cases": 0},
    {"cases": None},
    {"temperature": -1.0},
    {"temperature": 1e9},
    {"curves": [{"knots": [1.0, 0.0], "values": [0.0, 1.0]}]},
    {"curves": [{"knots": [0.0, 1.0], "values": [0.5]}]},
    {"curves": [{"knots": [0.0], "values": [1.5]}]},
    {"curves": []},
]


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_damaged_calibrations_are_refused(wrong):
    state = Calibration.fit("isotonic", BINARY, *binary_case(50)).to_state()
    assert Calibration.from_state(json.loads(json.dumps(state)), BINARY).to_state() == state
    with pytest.raises(ValueError, match="calibration"):
        Calibration.from_state(state | wrong, BINARY)


def test_predictions_at_times_are_calibrated_only_per_row(pair):
    plain, clf = pair
    with pytest.warns(UserWarning, match="not calibrated"):
        p = clf.predict_proba_at(SERIES, [1.5])
    np.testing.assert_array_equal(p, plain.predict_proba_at(SERIES, [1.5]))
    y = np.repeat(Y, 4).astype(object)
    y[::4] = None
    per_row = nc.NeuralCDEClassifier(**QUICK, per_row=True, calibrate=clf.calibrate).fit(SERIES, y)
    assert per_row.calibration_.cases == 180
    outputs = per_row.outputs_at(SERIES, [1.5])
    expected = per_row.task_.probabilities(per_row.calibration_(per_row.task_, outputs))
    np.testing.assert_array_equal(per_row.predict_proba_at(SERIES, [1.5]), expected)
    assert per_row.predict_proba_at(SERIES, [-1.0, 1.5])[:, 0].shape == (60, 2)


def test_pictures_show_the_chances_that_the_numbers_tell(pair):
    """Calibrated where `predict_proba_at` is; elsewhere the title says that they are not."""
    from matplotlib import pyplot

    plain, clf = pair
    y = np.repeat(Y, 4).astype(object)
    per_row = nc.NeuralCDEClassifier(**QUICK, per_row=True, calibrate=clf.calibrate).fit(SERIES, y)
    one = SERIES[:1]
    for fitted, early in ((per_row, ""), (plain, ""), (clf, ", before calibration")):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of predictions at times, which is tested above
            axes = fitted.plot_risk(one, one.ids[0])
            expected = fitted.predict_proba_at(one, one.times)[0, :, 1]
        drawn = axes.get_lines()[1].get_ydata()
        np.testing.assert_allclose(drawn, expected, atol=1e-12)
        assert axes.get_title(loc="left") == f"predicted chance of up{early}"
        told = ", before calibration" if fitted is not plain else ""
        explanation = fitted.explain(one)
        assert explanation.plot().get_title() == f"predicted chance of up{told}"
        assert ("Knowing nothing (before calibration): " in explanation.drawing().see) == bool(told)
    pyplot.close("all")


def test_each_case_is_predicted_by_models_that_did_not_see_it():
    """With labels that are noise, outputs of a model that saw them would tell them."""
    groups = np.arange(60) // 3
    folds = folds_of(60, 0, Y, None, argument="calibrate", instead=None)
    assert sorted(np.concatenate([held for _, held in folds]).tolist()) == list(range(60))
    for kept, held in folds:
        assert not set(kept) & set(held)
        assert abs((Y[held] == "up").mean() - (Y == "up").mean()) < 0.1
    for kept, held in folds_of(60, 0, None, groups, argument="calibrate", instead=None):
        assert not set(groups[kept]) & set(groups[held])
    for kept, held in folds_of(60, 0, Y, groups, argument="calibrate", instead=None):
        assert not set(groups[kept]) & set(groups[held])


def test_outputs_of_folds_are_brought_to_the_scale_of_the_fitted_model():
    """A model that is twice as sure as another gets the same calibrated probabilities."""
    outputs, targets = binary_case(2_000)
    folds = np.arange(2_000) % 2
    pooled = torch.where(torch.tensor(folds)[:, None] == 0, outputs, 0.2 * outputs + 1)  # two models
    for scale in (0.5, 3.0):
        reference = scale * binary_case(4_000, seed=1)[0]
        aligned = torch.empty_like(pooled)
        for fold in (0, 1):
            aligned[folds == fold] = on_the_scale_of(reference, pooled[folds == fold])
        found = Calibration.fit("temperature", BINARY, aligned, targets)
        assert found.temperature == pytest.approx(3 * scale, rel=0.12)
    few = on_the_scale_of(reference[:29], pooled)
    assert torch.equal(few, pooled)
    same = on_the_scale_of(reference, torch.ones(5, 1))
    torch.testing.assert_close(same, reference.mean().expand(5, 1))


def test_folds_choose_what_the_whole_chose(monkeypatch):
    """Thresholds on the number of series lie between the size of a fold and that of all series."""
    from neuralcde.estimators import members, modules

    monkeypatch.setattr(members, "MANY_SERIES", 55)
    monkeypatch.setattr(members, "MEMBERS_FOR_MANY", 2)
    monkeypatch.setattr(modules, "SERIES_FOR_SUMMARIES", 45)  # without the validation series 51 and 40 are left
    fitted, real = [], nc.NeuralCDEClassifier.fit

    def spy(self, *args, **options):
        fitted.append(self)
        return real(self, *args, **options, callbacks=[lambda _: True])

    monkeypatch.setattr(nc.NeuralCDEClassifier, "fit", spy)
    gaps = SERIES.values.clone()
    gaps[::2, 0] = torch.nan
    gaps[1::2, 1] = torch.nan
    part = dataclasses.replace(SERIES, values=gaps)
    clf = nc.NeuralCDEClassifier(max_epochs=1, hidden=4, width=4, random_state=0, calibrate="temperature")
    clf.fit(part, Y)
    assert len(fitted) == 6
    kinds = {(len(one.members_), type(one.module_.readout), type(one.module_.encoder)) for one in fitted}
    assert kinds == {(2, nc.SummaryReadout, nc.RowMLP)}
    assert len({one.patience for one in fitted[1:]}) == 1


def test_too_few_series_are_refused_before_training():
    with pytest.raises(ValueError, match=r"at least 5 series of each class.*there are 3"):
        nc.NeuralCDEClassifier(calibrate="isotonic").fit(SERIES[:20], ["a"] * 3 + ["b"] * 17)
    with pytest.raises(ValueError, match=r"as many groups.*there are 2"):
        nc.NeuralCDEClassifier(calibrate="isotonic").fit(SERIES, Y, groups=np.arange(60) % 2)
    with pytest.raises(ValueError, match="calibrate"):
        nc.NeuralCDEClassifier(calibrate="platt").fit(SERIES, Y)


def test_folds_get_weights_groups_validation_and_auxiliary_targets():
    """All that fit takes is passed on; classes of auxiliary targets stay classes."""
    weights, groups = np.ones(60), np.arange(60) // 3
    weights[:5] = 0
    second = np.where(SERIES.values[:, 0] > 0, "high", "low")
    clf = nc.NeuralCDEClassifier(**QUICK, calibrate="temperature", class_weight="balanced")
    clf.fit(SERIES, Y, weights, groups=groups, validation=drawn(20, 1), auxiliary=second)
    assert clf.calibration_.cases == 55


def test_an_interrupted_training_is_not_calibrated(monkeypatch):
    """Ctrl-C in a fold keeps the model, which was trained before the folds."""

    def interrupted(*args, **options):
        raise InterruptedFoldError

    monkeypatch.setattr("neuralcde.estimators.path_estimator.held_out_outputs", interrupted)
    with pytest.warns(UserWarning, match="not calibrated"):
        clf = nc.NeuralCDEClassifier(**QUICK, calibrate="isotonic").fit(SERIES, Y)
    assert clf.interrupted_
    assert clf.calibration_ is None
    assert clf.predict_proba(SERIES).shape == (60, 2)


def test_a_task_that_does_not_say_how_is_refused():
    class Mute(BinaryTask, name="test mute"):
        def indicators(self, targets):
            return None

    with pytest.raises(ValueError, match="does not say how it is calibrated"):
        nc.NeuralCDEClassifier(**QUICK, task=Mute, calibrate="isotonic").fit(SERIES, Y)


# ---- intervals from members ----


def test_intervals_are_those_of_students_distribution_over_members():
    clf = nc.NeuralCDEClassifier(**QUICK, members=3).fit(SERIES, Y, callbacks=[lambda _: False])
    low, high = clf.member_intervals(SERIES, level=0.9)
    outputs = clf.member_outputs(SERIES).double().numpy()[:, :, 0]
    half = 2.919986 * outputs.std(0, ddof=1) * np.sqrt(4 / 3)  # the 95 % quantile for two degrees of freedom
    np.testing.assert_allclose(logit(low[:, 0]), outputs.mean(0) - half, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(logit(high[:, 0]), outputs.mean(0) + half, rtol=1e-4, atol=1e-4)
    p = clf.predict_proba(SERIES)[:, 1]
    assert ((low[:, 0] <= p) & (p <= high[:, 0])).all()
    with pytest.raises(ValueError, match="members=5"):
        nc.NeuralCDEClassifier(**QUICK).fit(SERIES, Y).member_intervals(SERIES)
    with pytest.raises(ValueError, match="level"):
        clf.member_intervals(SERIES, level=1.0)
