"""Both estimators pass all of scikit-learn's estimator checks."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

import neuralcde as nc


@parametrize_with_checks(
    [nc.NeuralCDEClassifier(random_state=0, max_epochs=20), nc.NeuralCDERegressor(random_state=0, max_epochs=20)],
)
@pytest.mark.filterwarnings("ignore")
def test_estimators_pass_the_checks_of_scikit_learn(estimator, check):
    check(estimator)
