"""Tasks, the meaning of y: output size, loss, decoding, metrics, and their part of tables and reports."""

from .binary import BinaryTask as BinaryTask
from .boosting import BoostingProblem as BoostingProblem
from .classification import ClassificationTask as ClassificationTask
from .classification import check_class_weight as check_class_weight
from .evaluation import Curve as Curve
from .evaluation import Evaluation as Evaluation
from .evaluation import Forecast as Forecast
from .inferred import classification_task as classification_task
from .inferred import regression_task as regression_task
from .metrics import METRICS as METRICS
from .metrics import MetricText as MetricText
from .metrics import metric_title as metric_title
from .metrics import metric_title_of as metric_title_of
from .multiclass import MulticlassTask as MulticlassTask
from .multilabel import MultilabelTask as MultilabelTask
from .regression import RegressionTask as RegressionTask
from .task import QUANTILES as QUANTILES
from .task import Task as Task
from .task import is_finite as is_finite
from .task import missing_targets as missing_targets
