"""fit, predict, predict_proba, score: the scikit-learn estimators, and saving them."""

from .classifier import NeuralCDEClassifier as NeuralCDEClassifier
from .regressor import NeuralCDERegressor as NeuralCDERegressor
from .saving import load as load
from .splits import stratified_split as stratified_split
