"""All of scikit-learn's checks of an estimator; each exception with its reason."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

import neuralcde as nc

EXCEPTIONS = {
    "NeuralCDEClassifier": {
        "check_class_weight_classifiers": "20 epochs on 100 random points do not follow weights of 1000 : 0.0001 to the letter",
    },
}


@parametrize_with_checks(
    [nc.NeuralCDEClassifier(random_state=0, max_epochs=20), nc.NeuralCDERegressor(random_state=0, max_epochs=20)],
    expected_failed_checks=lambda estimator: EXCEPTIONS.get(type(estimator).__name__, {}),
)
@pytest.mark.filterwarnings("ignore")
def test_scikit_learn(estimator, check):
    check(estimator)
