"""Both estimators pass scikit-learn's estimator checks."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

import neuralcde as nc


@parametrize_with_checks(
    [
        nc.NeuralCDEClassifier(random_state=0, max_epochs=10, learning_rate=0.03),
        nc.NeuralCDERegressor(random_state=0, max_epochs=20),
    ],
    expected_failed_checks=lambda _: {
        "check_sample_weight_equivalence_on_dense_data": "batches of repeated series differ from those of weighted ones"
    },
)
@pytest.mark.filterwarnings("ignore")
def test_estimators_pass_the_checks_of_scikit_learn(estimator, check):
    check(estimator)
