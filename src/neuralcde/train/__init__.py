"""Training: the loop, its settings, its checkpoints and its history."""

from .loop import TrainingError as TrainingError
from .loop import outputs_of as outputs_of
from .loop import train as train
from .settings import TrainingSettings as TrainingSettings
from .state import TrainingResult as TrainingResult
