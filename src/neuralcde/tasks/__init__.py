"""What y means: outputs of a model to losses, predictions and metrics."""

from .classification import BinaryTask as BinaryTask
from .classification import MulticlassTask as MulticlassTask
from .classification import MultilabelTask as MultilabelTask
from .classification import check_class_weight as check_class_weight
from .classification import classification_task as classification_task
from .regression import RegressionTask as RegressionTask
from .regression import regression_task as regression_task
from .task import Task as Task
from .task import is_finite as is_finite
from .task import missing_targets as missing_targets
from .task import task_from_config as task_from_config
