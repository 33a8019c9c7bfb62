"""Explanations equal their definition and add up, for every causal model, pooling and ensemble."""

import dataclasses
import warnings
from itertools import permutations

import numpy as np
import pandas as pd
import pytest
import torch

import neuralcde as nc
from neuralcde.estimators import explaining, variants
from neuralcde.models import PathModel
from neuralcde.models.branches import can_vary
from registered import members

QUICK = {"max_epochs": 1, "hidden": 5, "width": 6, "depth": 1, "validation_fraction": 0, "random_state": 0}
MODELS = list(members(PathModel.registry))
PAPER = [nc.GRUODE.with_options(variant="paper"), nc.GRUD.with_options(variant="paper")]
CAUSAL = [nc.Linear(), nc.Hermite(), nc.Rectilinear()]
NAN = float("nan")


def drawn(seed, count, *, channels=3, rows=7, missing=0.5):
    """Random series with rows and channels without observations, some of one row, and static features."""
    rng = np.random.default_rng(seed)
    pairs = []
    for length in rng.integers(1, rows + 1, count):
        values = rng.normal(size=(length, channels)).cumsum(0)
        values[rng.random(values.shape) < missing] = NAN
        pairs.append((np.sort(rng.choice(np.arange(0, 3 * rows), length, replace=False)) / 2, values))
    static = np.where(rng.random((count, 2)) < 0.3, NAN, rng.normal(size=(count, 2)))
    return nc.IrregularSeries.from_list(pairs, static=static)


SERIES = drawn(0, 24)
Y = np.arange(len(SERIES)) % 2


def fitted(model="neural_cde", y=Y, **options):
    kind = nc.NeuralCDERegressor if np.asarray(y).dtype == float else nc.NeuralCDEClassifier
    clf = kind(model, **QUICK | options).fit(SERIES, y, callbacks=[lambda _: False])  # no processes for members
    for member in clf.members_:  # a readout of summaries starts at weights of 0, and hardly learns in one epoch
        with torch.no_grad(), torch.random.fork_rng():
            torch.manual_seed(0)
            for parameter in member.module.readout.parameters():
                parameter += 0.3 * torch.randn_like(parameter)
    return clf


# ---- the definition, slowly ----


def score(clf, times, values, static):
    """The score after the last of these rows."""
    one = nc.IrregularSeries.from_list([(times, values)], static=[static])
    outputs = clf.outputs(one)[-1:]
    return clf.task_.scores(outputs)[0].numpy()


def shares(value, players):
    """Shapley values over all orders."""
    found = dict.fromkeys(players, 0.0)
    orders = list(permutations(players))
    for order in orders:
        for k, player in enumerate(order):
            found[player] = found[player] + (value(order[: k + 1]) - value(order[:k])) / len(orders)
    return found


def check_definition(clf, series, positions, atol=2e-5):
    """Every term of these series, from the outputs for series that were truncated and changed by hand."""
    explanation = clf.explain(series)
    for position in positions:
        one, part = series[position], explanation[position]
        times, values, static = one.times.numpy(), one.values.numpy(), one.static.numpy()[0]
        first = int(series.offsets[position])

        def knowing(columns, times=times, values=values, static=static):
            kept = [x if k in columns else NAN for k, x in enumerate(static)]
            return score(clf, times[:1], np.full_like(values[:1], NAN), kept)

        start = knowing(())
        np.testing.assert_allclose(explanation.start[position], start, atol=atol)
        known = np.flatnonzero(~np.isnan(static)).tolist()
        for column, term in shares(knowing, known).items():
            np.testing.assert_allclose(part.static[0, column], term, atol=atol)
        before = None
        for row in range(len(times)):

            def observing(columns, row=row, times=times, values=values, static=static):
                seen = values[: row + 1].copy()
                seen[row, [k for k in range(seen.shape[1]) if k not in columns]] = NAN
                return score(clf, times[: row + 1], seen, static)

            here = np.flatnonzero(~np.isnan(values[row])).tolist()
            for column, term in shares(observing, here).items():
                np.testing.assert_allclose(part.observations[row, column], term, atol=atol)
            missing = [k for k in range(values.shape[1]) if k not in here]
            assert (part.observations[row, missing] == 0).all()
            if before is not None:
                np.testing.assert_allclose(explanation.passing[first + row], observing(()) - before, atol=atol)
            before = observing(here)
            np.testing.assert_allclose(explanation.at_rows[first + row], before, atol=atol)


def check_sums(clf, series):
    explanation = clf.explain(series)
    outputs = clf.outputs(series)
    if clf.per_row:
        outputs = outputs[series.offsets[1:] - 1]
    total = explanation.start + explanation.static.sum(1)
    for k in range(len(series)):
        rows = slice(int(series.offsets[k]), int(series.offsets[k + 1]))
        total[k] += explanation.observations[rows].sum((0, 1)) + explanation.passing[rows].sum(0)
    np.testing.assert_allclose(total, clf.task_.scores(outputs).numpy(), atol=1e-5)
    np.testing.assert_allclose(explanation.final, total, atol=1e-12)
    check_terms_up_to_rows(clf, series, explanation)
    return explanation


def check_terms_up_to_rows(clf, series, explanation):
    """The terms up to some row of each series add up to the output for the series truncated there."""
    first, last = series.offsets[:-1].numpy(), series.offsets[1:].numpy() - 1
    row = np.random.default_rng(0).integers(first, last + 1)
    known = series.until(series.times[row])
    assert len(known.times) == (row - first + 1).sum()  # a row at that time is kept, and none is added
    outputs = clf.outputs(known)
    if clf.per_row:
        outputs = outputs[known.offsets[1:] - 1]
    terms = explanation.observations.sum(1) + explanation.passing
    sums = np.concatenate([np.zeros_like(terms[:1]), terms.cumsum(0)])
    total = explanation.start + explanation.static.sum(1) + sums[row + 1] - sums[first]
    np.testing.assert_allclose(total, clf.task_.scores(outputs).numpy(), atol=1e-5, rtol=1e-5)


SOME = [3, 5, 8]


@pytest.mark.parametrize("pool", ["last", "both"])
@pytest.mark.parametrize("path", CAUSAL, ids=repr)
@pytest.mark.parametrize("model", [*MODELS, *PAPER], ids=lambda model: getattr(model, "name", str(model))[:60])
def test_terms_equal_their_definition(model, path, pool):
    check_definition(fitted(model, path=path, pool=pool), SERIES, SOME[:1])


@pytest.mark.parametrize("options", [{"encoder": "mlp", "readout": "summary"}, {"intensity": False}, {"substeps": 3}])
def test_terms_equal_their_definition_with(options):
    check_definition(fitted(**options), SERIES, SOME)


def test_terms_equal_their_definition_in_an_ensemble_with_boosting():
    """Trees are evaluated again; the mean of models counts as much as they do."""
    check_definition(fitted(members=2, boosting=True, encoder="mlp"), SERIES, SOME)


def test_terms_equal_their_definition_for_several_classes_and_for_targets():
    check_definition(fitted(y=np.arange(24) % 3), SERIES, SOME)
    check_definition(fitted(y=np.random.default_rng(0).normal(50, 9, (24, 2))), SERIES, SOME)


def test_terms_equal_their_definition_per_row():
    y = np.arange(len(SERIES.times)) % 2
    clf = nc.NeuralCDEClassifier(**QUICK, per_row=True).fit(SERIES, y)
    check_definition(clf, SERIES, SOME)


def test_models_that_cannot_branch_are_solved_again():
    clf = fitted(solver="dopri5")
    clf.members_[0].module.steps = nc.Adaptive(rtol=1e-5, atol=1e-7)
    check_definition(clf, SERIES, SOME, atol=5e-4)  # steps are chosen by rounding, too


@pytest.mark.parametrize("options", [{}, {"encoder": "mlp", "readout": "summary", "boosting": True}], ids=str)
@pytest.mark.parametrize("path", CAUSAL, ids=repr)
@pytest.mark.parametrize("model", MODELS)
def test_what_is_known_at_a_row_stands_for_all_earlier_rows(model, path, options, monkeypatch):
    """The quick way gives what truncated series give."""
    clf = fitted(model, path=path, pool="both", **options)
    quick = clf.explain(SERIES)
    asked = []
    monkeypatch.setattr(variants, "can_vary", lambda *given: asked.append(can_vary(*given)))
    slow = clf.explain(SERIES)
    assert all(asked)
    assert asked
    for name in ("start", "static", "observations", "passing", "at_rows"):
        np.testing.assert_allclose(getattr(quick, name), getattr(slow, name), atol=3e-5, rtol=1e-5)


def test_parts_that_a_subclass_changes_are_not_taken_for_the_quick_way():
    class Other(nc.RowMLP):
        def forward(self, series):
            return super().forward(series).roll(1, 0)

    class Both(Other):
        varies = True

    class Longer(nc.Linear):
        def build(self, series):
            return super().build(series)

    class Looking(nc.GRUD):
        def cell_inputs(self, seen):
            return super().cell_inputs(seen)

    assert can_vary(nc.GRUD(3, 1), nc.Linear())
    assert not can_vary(Looking(3, 1), nc.Linear())
    assert can_vary(nc.NeuralCDE(4, 1, encoder=nc.RowMLP), nc.Linear())
    assert not can_vary(nc.NeuralCDE(4, 1, encoder=Other), nc.Linear())
    assert can_vary(nc.NeuralCDE(4, 1, encoder=Both), nc.Linear())
    assert not can_vary(nc.NeuralCDE(4, 1), Longer())


# ---- they add up ----

MANY = drawn(1, 1000, channels=3, rows=6)


WITH_ENCODER = {"encoder": "mlp", "readout": "summary"}


@pytest.mark.parametrize("pool", ["last", "mean", "both"])
@pytest.mark.parametrize("model", MODELS)
def test_terms_add_up_for_a_thousand_random_series(model, pool):
    check_sums(fitted(model, pool=pool), MANY)


@pytest.mark.parametrize("model", MODELS)
def test_terms_add_up_with_an_encoder(model):
    check_sums(fitted(model, **WITH_ENCODER), MANY)


@pytest.mark.parametrize("path", CAUSAL[1:], ids=repr)
@pytest.mark.parametrize("model", MODELS)
def test_terms_add_up_on_other_paths(model, path):
    check_sums(fitted(model, path=path), MANY)


@pytest.mark.parametrize("options", [{}, WITH_ENCODER | {"pool": "mean"}], ids=["values", "encoder"])
def test_terms_of_ensembles_add_up(options):
    check_sums(fitted(members=2, boosting=True, **options), MANY)


def test_terms_add_up_for_several_scores_and_per_row():
    check_sums(fitted(y=np.arange(24) % 3), MANY)
    check_sums(fitted(y=np.random.default_rng(0).normal(50, 9, (24, 2))), MANY)
    y = np.arange(len(SERIES.times)) % 2
    check_sums(nc.NeuralCDEClassifier(**QUICK, per_row=True).fit(SERIES, y), MANY)


def test_terms_add_up_where_more_than_six_columns_are_observed():
    rng = np.random.default_rng(0)
    series = nc.IrregularSeries.from_list([(np.arange(3.0), rng.normal(size=(3, 9))) for _ in range(20)])
    clf = nc.NeuralCDEClassifier(**QUICK).fit(series, np.arange(20) % 2)
    explanation = check_sums(clf, series)
    assert (explanation.observations != 0).all()
    again, other = clf.explain(series), clf.explain(series, random_state=1)
    assert np.array_equal(explanation.observations, again.observations)
    assert not np.array_equal(explanation.observations, other.observations)
    np.testing.assert_allclose(other.observations, explanation.observations, atol=0.3 * abs(other.observations).max())


def test_memory_is_bounded_and_parts_agree(monkeypatch):
    clf = fitted(pool="mean")
    together = clf.explain(SERIES)
    monkeypatch.setattr(variants, "CELLS", 40)
    monkeypatch.setattr(explaining, "CASES", 10)
    monkeypatch.setattr(explaining, "SERIES", 5)
    for parts in (clf.explain(SERIES), clf.explain(SERIES[4:9])):
        chosen = together if len(parts) == len(SERIES) else together[4:9]
        for name in ("start", "static", "observations", "passing", "at_rows"):
            np.testing.assert_allclose(getattr(parts, name), getattr(chosen, name), atol=2e-6)


# ---- what is refused, and what is found ----


@pytest.mark.parametrize("path", ["natural_cubic", "smoothing", nc.Linear(fill="interpolate")], ids=str)
def test_paths_that_are_not_causal_are_refused(path):
    with pytest.raises(ValueError, match=r"depends on later rows.*path=\"linear\""):
        fitted(path=path).explain(SERIES)


def planted(count, seed):
    """Four channels of noise over 24 hours; at one hour channel "b" rises or falls, which decides the class."""
    rng = np.random.default_rng(seed)
    pairs, hours, y = [], [], rng.integers(0, 2, count)
    for label in y:
        times = np.sort(rng.choice(np.arange(24.0), 12, replace=False))
        values = 0.3 * rng.normal(size=(12, 4))
        values[rng.random(values.shape) < 0.5] = NAN
        row = rng.integers(2, 12)
        values[row, 1] = 6.0 * (2 * label - 1)
        pairs.append((times, values))
        hours.append(times[row])
    return nc.IrregularSeries.from_list(pairs, channels=list("abcd")), y, np.array(hours)


def test_a_planted_observation_ranks_first():
    """In nine of ten of the series that are classified correctly."""
    series, y, _ = planted(400, 0)
    clf = nc.NeuralCDEClassifier(max_epochs=25, hidden=8, width=16, random_state=0, learning_rate=0.01).fit(series, y)
    new, truth, hours = planted(300, 1)
    right = clf.predict(new) == truth
    assert right.mean() > 0.9
    explanation = clf.explain(new)
    first = [explanation.top(k, 1)[0] for k in np.flatnonzero(right)]
    found = [term.column == "b" and term.time == hour for term, hour in zip(first, hours[right], strict=True)]
    assert np.mean(found) >= 0.9
    ranked = explanation.importances()
    assert next(item.column for item in ranked if item.kind == "channel") == "b"


# ---- tables, pictures, columns ----


def stays():
    frame = pd.DataFrame(
        {
            "stay": ["s 1", "s 1", "s 1", "s 2", "s 2", "s 3", "s 4"],
            "hour": [0.0, 2.0, 5.0, 1.0, 2.0, 0.0, 3.0],
            "pulse": [80.0, None, 95.0, 70.0, None, 60.0, 90.0],
            "ascites": ["Yes", None, "No", None, "No", "Yes", None],
            "age": [71, 71, 71, 50, 50, 40, 60],
            "sex": ["f", "f", "f", None, None, "m", "f"],
        }
    )
    return nc.IrregularSeries.from_long(frame, id="stay", time="hour", static=["age", "sex"])


def explained():
    series = stays()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return nc.NeuralCDEClassifier(**QUICK).fit(series, ["died", "lived", "died", "lived"]).explain(series)


def test_columns_are_those_of_the_table():
    """A text column has one term, although it became several channels."""
    explanation = explained()
    assert explanation.columns == ("pulse", "ascites")
    assert explanation.static_columns == ("age", "sex")
    assert explanation.names == ("lived",)
    assert explanation.known.tolist() == [[True, True], [True, False], [True, True], [True, True]]
    assert explanation.static[1, 1] == 0
    assert explanation.observed.sum() == 9


def test_the_table_has_every_term_once():
    explanation = explained()
    table = explanation.to_long()
    assert list(table.columns) == ["stay", "hour", "name", "kind", "column", "value", "term"]
    sums = table.groupby("stay", sort=False)["term"].sum()
    assert sums.index.tolist() == ["s 1", "s 2", "s 3", "s 4"]
    np.testing.assert_allclose(sums, explanation.final[:, 0], atol=1e-12)
    assert table.groupby("kind").size().to_dict() == {"channel": 9, "start": 4, "static": 7, "time passing": 3}
    one = table[table["stay"] == "s 1"]
    assert one["kind"].tolist() == [
        *("start", "static", "static", "channel", "channel"),
        *("time passing", "time passing", "channel", "channel"),
    ]
    assert one["column"].tolist()[1:5] == ["age", "sex", "pulse", "ascites"]
    assert one["value"].tolist()[1:5] == ["71", "f", "80", "Yes"]
    assert list(explanation.to_long("polars")["term"]) == table["term"].tolist()


def test_numbers_stay_numbers_and_several_scores_have_names():
    table = fitted(y=np.array(list("abc") * 8)).explain(SERIES[:5]).to_long("pandas")
    assert table["value"].dtype == float
    assert table["name"].tolist()[:4] == ["a", "b", "c", "a"]


def test_the_top_observations_and_importances():
    explanation = explained()
    top = explanation.top(0, 3)
    assert [abs(term.term) for term in top] == sorted((abs(term.term) for term in top), reverse=True)
    assert top[0].series == "s 1"
    assert {(term.time, term.column, term.value) for term in explanation.top(0, 99)} == {
        *((0.0, "pulse", 80.0), (0.0, "ascites", "Yes"), (5.0, "pulse", 95.0), (5.0, "ascites", "No"))
    }
    ranked = {item.column: item for item in explanation.importances()}
    assert set(ranked) == {"pulse", "ascites", "age", "sex", "time passing"}
    terms = explanation.to_long("pandas")
    pulse = terms[terms["column"] == "pulse"].groupby("stay")["term"]
    assert ranked["pulse"].net == pytest.approx(pulse.sum().abs().sum() / 4)
    assert ranked["pulse"].moved == pytest.approx(pulse.apply(lambda x: x.abs().sum()).sum() / 4)
    with pytest.raises(ValueError, match="'dead' is not one of the scores"):
        explanation.top(0, 3, "dead")


def test_probabilities_of_log_odds_are_those_of_the_classes():
    clf = fitted(y=np.arange(24) % 3)
    explanation = clf.explain(SERIES)
    np.testing.assert_allclose(explanation.risk(explanation.final), clf.predict_proba(SERIES), atol=1e-6)


def test_the_picture_names_the_observations_and_escapes_them():
    explanation = explained()
    svg = str(explanation.drawing(0, count=2).svg)
    for term in explanation.top(0, 2):
        assert term.column in svg
    renamed = dataclasses.replace(explanation, columns=("<b>$p$</b>", "ascites"), names=("$died & gone$",))
    svg = str(renamed.drawing(0).svg)
    assert "<b>" not in svg
    assert "&lt;b&gt;$p$" in svg
    assert "age 71" in renamed.drawing(0).see
    assert "sex" not in explanation.drawing(1).see


def test_lines_pass_behind_texts():
    """A line from an early text may cross a late one, which is written to the left of its own line."""
    from matplotlib.figure import Figure

    axes = Figure().subplots()
    explained().plot(0, axes, count=3)
    assert len(axes.texts) == 3
    assert {text.get_bbox_patch().get_facecolor() for text in axes.texts} == {axes.get_facecolor()}


def test_plot_draws_on_given_axes():
    from matplotlib.figure import Figure

    axes = Figure().subplots()
    assert explained().plot(2, axes) is axes  # a series of one row
    assert axes.texts
