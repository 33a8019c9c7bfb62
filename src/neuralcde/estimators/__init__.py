"""The scikit-learn estimators, how they are saved and loaded, and stratified splits."""

from ..explanations import Explanation as Explanation
from .classifier import NeuralCDEClassifier as NeuralCDEClassifier
from .data_checks import DataWarning as DataWarning
from .data_checks import Finding as Finding
from .data_checks import check_data as check_data
from .regressor import NeuralCDERegressor as NeuralCDERegressor
from .saving import load as load
from .splits import stratified_split as stratified_split
