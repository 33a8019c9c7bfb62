"""Predictions at times equal predictions for `series.until(t)`, for every model, scheme and pooling."""

import dataclasses

import numpy as np
import pytest
import torch

import neuralcde as nc
from neuralcde.estimators import outputs_at as module
from neuralcde.models import PathModel, RowEncoder
from neuralcde.models.branches import can_branch
from neuralcde.series import ragged
from registered import members

QUICK = {"max_epochs": 1, "hidden": 5, "width": 6, "depth": 1, "validation_fraction": 0, "random_state": 0}
TIMES = [-1.0, 0.5, 2.0, 2.7, 3.0, 9.0, 30.0]  # before the start, between rows, at rows, after the end
PATHS = [
    nc.Linear(),
    nc.Linear(fill="interpolate"),
    nc.Hermite(),
    nc.Hermite(fill="interpolate"),
    nc.Rectilinear(),
    nc.NaturalCubic(),
    nc.Smoothing(),
]
MODELS = list(members(PathModel.registry))
PAPER = [nc.GRUODE.with_options(variant="paper"), nc.GRUD.with_options(variant="paper")]


class RunningMean(RowEncoder):
    """The causal mean of each channel over the rows so far, so that a row depends on all rows before it."""

    def __init__(self, channels):
        super().__init__()
        self.outputs = channels

    def forward(self, series):
        values = series.values.nan_to_num(0.0)
        parts = torch.split(values, series.lengths.tolist())
        return torch.cat([part.cumsum(0) / torch.arange(1, len(part) + 1)[:, None] for part in parts])


def drawn(seed=0, count=12):
    rng = np.random.default_rng(seed)
    pairs = []
    for rows in rng.integers(1, 8, count):
        values = rng.normal(size=(rows, 2)).cumsum(0)
        values[rng.random(values.shape) < 0.4] = np.nan
        times = np.sort(rng.choice(np.arange(0, 12), rows, replace=False)).astype(float)
        pairs.append((times, values))
    return nc.IrregularSeries.from_list(pairs, static=rng.normal(size=(count, 1)))


SERIES = drawn()
Y = np.arange(len(SERIES)) % 2


def fitted(model="neural_cde", **options):
    return nc.NeuralCDEClassifier(model, **QUICK, **options).fit(SERIES, Y)


def expected(clf, series, t):
    """One plain prediction per truncated series; NaN for those that begin later."""
    begun = series.times[series.offsets[:-1]] <= t
    found = torch.full((len(series), 1), torch.nan)
    if begun.any():
        known = series[begun.numpy()].until(t)
        outputs = clf.outputs(known)
        found[begun] = outputs[known.offsets[1:] - 1] if clf.per_row else outputs
    return found


def check(clf, series=SERIES):
    found = clf.outputs_at(series, TIMES)
    assert found.shape == (len(series), len(TIMES), 1)
    assert found[:, 0].isnan().all()
    assert found[:, -1].isfinite().all()
    for j, t in enumerate(TIMES):
        torch.testing.assert_close(found[:, j], expected(clf, series, t), rtol=1e-5, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("pool", ["last", "mean", "both"])
@pytest.mark.parametrize("path", PATHS, ids=repr)
@pytest.mark.parametrize("model", [*MODELS, *PAPER], ids=lambda model: getattr(model, "name", str(model))[:60])
def test_outputs_at_a_time_equal_those_of_the_truncated_series(model, path, pool):
    check(fitted(model, path=path, pool=pool))


@pytest.mark.parametrize("pool", ["last", "mean"])
@pytest.mark.parametrize("model", [nc.NeuralCDE, nc.ODERNN])
def test_they_do_with_an_encoder(model, pool):
    clf = fitted(pool=pool)
    torch.manual_seed(0)
    encoded = model(clf.preparation_.channels, 1, hidden=5, static=1, pool=pool, encoder=RunningMean)
    clf.members_ = [dataclasses.replace(clf.members_[0], module=encoded)]
    check(clf)


@pytest.mark.parametrize("pool", ["last", "mean"])
def test_they_do_for_a_target_per_row(pool):
    y = np.arange(len(SERIES.times)) % 2
    check(nc.NeuralCDEClassifier(**QUICK, per_row=True, pool=pool).fit(SERIES, y))


def test_they_do_for_a_field_of_time_and_for_substeps():
    clf = fitted(substeps=3)
    field = clf.module_.field

    class Timed(nc.VectorField):
        def forward(self, t, z):
            return field(t, z) * (1 + t)[:, None, None]

    clf.module_.field = Timed()
    check(clf)


@pytest.mark.parametrize("path", [nc.Linear(), nc.NaturalCubic()], ids=repr)
def test_times_do_not_affect_each_other_and_memory_is_bounded(path, monkeypatch):
    clf = fitted(path=path, pool="mean")
    together = clf.outputs_at(SERIES, TIMES)
    alone = torch.cat([clf.outputs_at(SERIES, [t]) for t in TIMES], dim=1)
    torch.testing.assert_close(together, alone, rtol=1e-6, atol=1e-6, equal_nan=True)
    monkeypatch.setattr(module, "CELLS", 20)
    monkeypatch.setattr(module, "SERIES", 5)
    torch.testing.assert_close(clf.outputs_at(SERIES, TIMES), together, rtol=1e-6, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize("options", [{"encoder": "mlp", "readout": "summary"}, {"path": nc.NaturalCubic()}], ids=str)
def test_every_series_may_have_its_own_times_in_any_order_and_twice(options):
    clf = fitted(members=2, boosting=True, **options)
    first, last = SERIES.times[SERIES.offsets[:-1]], SERIES.times[SERIES.offsets[1:] - 1]
    asked = torch.stack([last + 2, first, (first + last) / 2, first - 1, last, first], dim=1)
    found = clf.outputs_at(SERIES, asked.numpy())
    for j, t in enumerate(asked.T):
        expected = torch.full((len(SERIES), 1), torch.nan) if j == 3 else clf.outputs(SERIES.until(t))
        torch.testing.assert_close(found[:, j], expected, rtol=1e-5, atol=1e-5, equal_nan=True)
    with pytest.raises(ValueError, match=r"times of shape \(3, 6\) do not fit 12 series"):
        clf.outputs_at(SERIES, asked[:3])


@pytest.mark.parametrize("path", PATHS, ids=repr)
def test_rows_after_a_time_change_nothing(path):
    clf = fitted(path=path)
    other = dataclasses.replace(SERIES, values=SERIES.values + 5.0 * (SERIES.times > 2.8)[:, None])
    before, after = clf.outputs_at(SERIES, [2.8, 9.0]), clf.outputs_at(other, [2.8, 9.0])
    torch.testing.assert_close(before[:, 0], after[:, 0], rtol=0, atol=1e-6, equal_nan=True)
    assert (before[:, 1] - after[:, 1]).abs().nan_to_num().max() > 1e-4


def test_only_causal_schemes_and_fixed_steps_branch():
    branching = [can_branch(fitted().module_, path) for path in PATHS]
    assert branching == [True, False, True, False, True, False, False]
    adaptive = nc.NeuralCDE(3, 1, solver="dopri5", steps=nc.Adaptive())
    assert not can_branch(adaptive, nc.Linear())
    encoded = nc.NeuralCDE(3, 1, encoder=RunningMean, scheme=nc.NaturalCubic())
    assert not can_branch(encoded, nc.Linear())


def test_probabilities_of_series_that_had_not_begun_are_nan():
    p = fitted().predict_proba_at(SERIES, [-1.0, 30.0])
    assert np.isnan(p[:, 0]).all()
    np.testing.assert_allclose(p[:, 1].sum(1), 1.0)
    numbers = nc.NeuralCDERegressor(**QUICK).fit(SERIES, Y * 1.0).predict_at(SERIES, [-1.0, 30.0])
    assert np.isnan(numbers[:, 0]).all()
    assert np.isfinite(numbers[:, 1]).all()


@pytest.mark.parametrize("path", [nc.Linear(), nc.NaturalCubic()], ids=repr)
def test_no_times_give_no_predictions(path):
    assert fitted(path=path, boosting=True).predict_proba_at(SERIES, []).shape == (len(SERIES), 0, 2)


def test_times_that_are_not_finite_are_refused():
    with pytest.raises(ValueError, match="times holds NaN or infinity"):
        fitted().outputs_at(SERIES, [1.0, np.nan])


def test_series_of_the_test_have_one_row_and_rows_at_asked_times():
    assert 1 in SERIES.lengths
    row = ragged.last_row_at_or_before(
        SERIES.times, SERIES.offsets, torch.tensor([[2.0]]).double().expand(12, 1), strict=False
    )
    assert (SERIES.times[row] == 2.0).any()


@pytest.mark.parametrize("path", [nc.Linear(), nc.Rectilinear(), nc.NaturalCubic()], ids=repr)
@pytest.mark.parametrize("model", MODELS)
def test_with_the_estimators_own_encoder_and_readout(model, path):
    check(fitted(model, encoder="mlp", path=path))
