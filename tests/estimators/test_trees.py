"""Trees as plain arrays: they equal scikit-learn's, and damaged arrays are refused."""

import numpy as np
import pytest
import torch
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

from neuralcde.estimators import trees as module
from neuralcde.estimators.trees import TreeEnsemble

RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 5)).astype(np.float32).astype(np.float64)
X[RNG.random(X.shape) < 0.2] = np.nan
X[:, 4] = np.where(X[:, 0] > 0, np.nan, 1.0)  # only whether it is missing tells anything
KNOWN = np.nan_to_num(X)
SMALL = {"max_iter": 12, "random_state": 0}


def arrays_of(model, columns=None):
    baseline = torch.from_numpy(np.array(model._baseline_prediction).reshape(-1))
    columns = range(len(baseline)) if columns is None else columns
    return TreeEnsemble.of_boosting(baseline, [(model, columns)])


@pytest.mark.parametrize("classes", [2, 4])
def test_raw_scores_equal_those_of_the_classifier(classes):
    y = np.digitize(KNOWN[:, 0] + KNOWN[:, 1], [0.0] if classes == 2 else [-1.0, 0.0, 1.0])
    model = HistGradientBoostingClassifier(**SMALL).fit(X, y)
    found = arrays_of(model)(torch.from_numpy(X)).numpy()
    expected = model.decision_function(X).reshape(len(X), -1)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)
    assert np.ptp(found) > 1


def test_predictions_equal_those_of_the_regressor_in_any_chunks(monkeypatch):
    model = HistGradientBoostingRegressor(**SMALL).fit(X, KNOWN[:, 0] * KNOWN[:, 2] + np.isnan(X[:, 4]))
    trees = arrays_of(model)
    found = trees(torch.from_numpy(X))
    np.testing.assert_allclose(found[:, 0].numpy(), model.predict(X), rtol=0, atol=1e-9)
    monkeypatch.setattr(module, "CELLS", 70)
    assert torch.equal(trees(torch.from_numpy(X)), found)


def test_a_split_on_missing_values_alone_has_a_finite_threshold():
    only = X[:, 4:]
    model = HistGradientBoostingRegressor(**SMALL).fit(only, np.isnan(only[:, 0]))
    assert np.isinf(model._predictors[0][0].nodes["num_threshold"]).any()
    trees = arrays_of(model)
    assert trees.threshold.isfinite().all()
    np.testing.assert_allclose(trees(torch.from_numpy(only))[:, 0].numpy(), model.predict(only), rtol=0, atol=1e-9)


def test_without_trees_the_baseline_remains():
    trees = TreeEnsemble.of_boosting(torch.tensor([1.0, 2.0]), [])
    assert trees(torch.zeros(3, 4)).tolist() == [[1.0, 2.0]] * 3
    again = TreeEnsemble.from_tensors(trees.to_tensors(), features=4, outputs=2)
    assert again(torch.zeros(0, 4)).shape == (0, 2)


@pytest.fixture(scope="module")
def tensors():
    return arrays_of(HistGradientBoostingRegressor(**SMALL).fit(X, KNOWN[:, 0])).to_tensors()


def test_arrays_that_were_saved_give_the_same_trees(tensors):
    again = TreeEnsemble.from_tensors(tensors, features=5, outputs=1)
    assert all(torch.equal(again.to_tensors()[name], tensors[name]) for name in tensors)


def changed(tensor, place, value):
    tensor = tensor.clone()
    tensor[place] = value
    return tensor


DAMAGE = {
    "no array": lambda t: {k: v for k, v in t.items() if k != "left"},
    "another array": lambda t: t | {"more": t["left"]},
    "a type": lambda t: t | {"value": t["value"].float()},
    "booleans as numbers": lambda t: t | {"missing_left": t["missing_left"].long()},
    "dimensions": lambda t: t | {"value": t["value"][:, None]},
    "a scalar": lambda t: t | {"baseline": t["baseline"][0]},
    "a length": lambda t: t | {"right": t["right"][:-1]},
    "no offsets": lambda t: t | {"offsets": t["offsets"][:0]},
    "outputs": lambda t: t | {"baseline": torch.zeros(2, dtype=torch.float64)},
    "an infinite value": lambda t: t | {"value": changed(t["value"], 1, torch.inf)},
    "a threshold that is NaN": lambda t: t | {"threshold": changed(t["threshold"], 0, torch.nan)},
    "a feature": lambda t: t | {"feature": changed(t["feature"], 0, 5)},
    "a negative feature": lambda t: t | {"feature": changed(t["feature"], 0, -1)},
    "an output": lambda t: t | {"output": changed(t["output"], 0, 1)},
    "a loop": lambda t: t | {"left": changed(t["left"], int(t["left"][0]), 0)},
    "a child that is its parent": lambda t: t | {"left": changed(t["left"], 0, 0)},
    "a child in another tree": lambda t: t | {"left": changed(t["left"], 0, int(t["offsets"][1]))},
    "a child out of range": lambda t: t | {"right": changed(t["right"], 0, 2**62)},
    "offsets that decrease": lambda t: t | {"offsets": changed(t["offsets"], 1, 2**40)},
    "offsets that do not begin": lambda t: t | {"offsets": changed(t["offsets"], 0, 1)},
    "offsets that end early": lambda t: t | {"offsets": changed(t["offsets"], -1, int(t["offsets"][-1]) - 1)},
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_arrays_are_refused(tensors, damage):
    with pytest.raises(ValueError, match="trees"):
        TreeEnsemble.from_tensors(DAMAGE[damage](dict(tensors)), features=5, outputs=1)
