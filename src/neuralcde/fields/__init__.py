"""Vector fields f: what turns the increments of X into the increments of z."""

from .low_rank import LowRankField as LowRankField
from .mlp import MLPField as MLPField
from .mlp import activations as activations
from .vector_field import FunctionField as FunctionField
from .vector_field import VectorField as VectorField
from .vector_field import as_field as as_field
