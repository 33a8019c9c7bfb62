"""Path schemes, fields and models, by name and as objects, from the package and from outside."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

import neuralcde as nc
from neuralcde.contracts import Recipe
from neuralcde.paths import PathScheme
from own_parts import LastValues, Rotation, Staircase

FAST = {"max_epochs": 1, "hidden": 4, "width": 4, "depth": 1, "random_state": 0}
rng = np.random.default_rng(0)
X = rng.normal(size=(24, 9, 2)).cumsum(1)
X[rng.random(X.shape) < 0.2] = np.nan
SERIES, Y = nc.IrregularSeries.from_padded(X), np.arange(24) % 2


CHOICES = {
    "path by name": {"path": "smoothing"},
    "path with options": {"path": nc.Smoothing(penalty=3.0)},
    "linear that looks ahead": {"path": nc.Linear(fill="interpolate")},
    "field by name": {"field": "low_rank"},
    "field with options": {"field": nc.LowRankField.with_options(rank=2, depth=2)},
    "field by class": {"field": nc.LowRankField},
    "model by class": {"model": nc.GRUODE},
    "model with options": {"model": nc.ODERNN.with_options(variant="paper")},
    "solver": {"solver": nc.Tableau("mine", 1, "Euler 1768", a=((),), b=(1.0,), c=(0.0,))},
    "own path by name": {"path": "test staircase"},
    "own path": {"path": Staircase(height=0.1)},
    "own field by name": {"field": "test rotation"},
    "own field": {"field": Rotation.with_options(speed=2.0)},
    "own model by name": {"model": "test last values"},
    "own model": {"model": LastValues},
    "own model, mean": {"model": LastValues, "pool": "mean"},
}


@pytest.mark.parametrize("name", CHOICES)
def test_parts_survive_saving_and_loading(name, tmp_path):
    clf = nc.NeuralCDEClassifier(**FAST, **CHOICES[name]).fit(SERIES, Y)
    clf.save(tmp_path)
    loaded = nc.load(tmp_path)
    assert np.array_equal(loaded.predict_proba(SERIES), clf.predict_proba(SERIES))
    assert np.array_equal(loaded.fit(SERIES, Y).predict_proba(SERIES), clf.predict_proba(SERIES))
    assert clf.predict_proba_at(SERIES, [2.5]).shape == (24, 1, 2)


@pytest.mark.parametrize("name", CHOICES)
def test_parts_survive_cloning(name):
    clf = nc.NeuralCDEClassifier(**FAST, **CHOICES[name])
    copy = clone(clf)
    for option in CHOICES[name]:
        assert getattr(copy, option) == getattr(clf, option)
    assert np.array_equal(copy.fit(SERIES, Y).predict_proba(SERIES), clf.fit(SERIES, Y).predict_proba(SERIES))


def test_options_of_parts_take_effect():
    plain = nc.NeuralCDEClassifier(**FAST).fit(SERIES, Y)
    for choice in CHOICES.values():
        other = nc.NeuralCDEClassifier(**FAST, **choice).fit(SERIES, Y)
        assert not np.array_equal(other.predict_proba(SERIES), plain.predict_proba(SERIES)), choice
    assert nc.NeuralCDEClassifier(field="low_rank", **FAST).fit(SERIES, Y).module_.field.rank == 1
    two = nc.NeuralCDEClassifier(field=nc.LowRankField.with_options(rank=2), **FAST).fit(SERIES, Y)
    assert (two.module_.field.rank, two.module_.field.layers[0].out_features) == (2, 4)


def test_a_grid_search_reaches_the_options_of_parts():
    clf = nc.NeuralCDEClassifier(path=nc.Smoothing(), field=nc.LowRankField.with_options(rank=1), **FAST)
    search = GridSearchCV(clf, {"path__penalty": [0.1, 50.0], "field__rank": [1, 3]}, cv=2).fit(SERIES, Y)
    assert len(search.cv_results_["params"]) == 4
    assert search.best_estimator_.preparation_.scheme.penalty == search.best_params_["path__penalty"]
    assert search.best_estimator_.module_.field.rank == search.best_params_["field__rank"]
    assert clf.path.penalty == 1.0


def test_a_fitted_estimator_copies_its_parts(tmp_path):
    scheme = nc.Smoothing(penalty=3.0)
    clf = nc.NeuralCDEClassifier(path=scheme, **FAST).fit(SERIES, Y)
    before = clf.predict_proba(SERIES)
    scheme.penalty = 1000.0
    assert np.array_equal(clf.predict_proba(SERIES), before)
    clf.save(tmp_path)
    assert np.array_equal(nc.load(tmp_path).predict_proba(SERIES), before)
    assert nc.load(tmp_path).path == nc.Smoothing(penalty=3.0)


def test_loading_an_unregistered_part_names_it_and_imports_nothing(tmp_path):
    class Elsewhere(Rotation, name="test elsewhere"):
        pass

    nc.NeuralCDEClassifier(field=Elsewhere, **FAST).fit(SERIES, Y).save(tmp_path)
    nc.VectorField.registry.remove("test elsewhere")
    with pytest.raises(ValueError, match=r"no field 'test elsewhere'.*first import the module that defines it"):
        nc.load(tmp_path)


def test_an_unregistered_class_can_be_fitted_but_not_saved(tmp_path):
    class Nameless(Rotation):
        pass

    clf = nc.NeuralCDEClassifier(field=Nameless, **FAST).fit(SERIES, Y)
    with pytest.raises(
        ValueError, match=r"'Nameless' is not registered as a field; .*class Nameless\(VectorField, name="
    ):
        clf.save(tmp_path)
    assert not (tmp_path / "config.json").exists()


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"path": "spline"}, r"path must be 'hermite', .* or .*, or a PathScheme of your own, got 'spline'"),
        ({"path": nc.MLPField}, r"path must be .* got <class"),
        ({"model": "transformer"}, r"model must be .*'neural_cde'.*, or a PathModel of your own, got 'transformer'"),
        ({"field": 3}, r"field must be 'mlp', .*, or a VectorField of your own, got 3"),
        ({"field": nc.LowRankField.with_options(rank=10**9)}, r"field: rank must be at most 100000"),
        ({"solver": "rk5"}, r"solver must be \"auto\", 'euler', .* or a Solver of your own, got 'rk5'"),
    ],
)
def test_invalid_parts_are_refused(choice, message):
    with pytest.raises(ValueError, match=message):
        nc.NeuralCDEClassifier(**FAST, **choice).fit(SERIES, Y)


def test_recipes_refuse_unknown_options():
    with pytest.raises(TypeError, match=r"LowRankField has no option 'ranks'; it has \['channels', 'hidden', 'rank'"):
        nc.LowRankField.with_options(ranks=3)
    recipe = nc.ODERNN.with_options(variant="paper", solver="euler")  # options of base classes are accepted too
    assert recipe == Recipe(nc.ODERNN, variant="paper", solver="euler")
    assert repr(recipe) == "ODERNN.with_options(variant='paper', solver='euler')"


def test_a_name_cannot_be_registered_twice():
    with pytest.raises(ValueError, match="the path scheme 'linear' is already neuralcde"):

        class Other(PathScheme, name="linear"):
            pass
