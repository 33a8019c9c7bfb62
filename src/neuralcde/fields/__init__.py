"""Vector fields move the state between observations; cells update it at observations."""

from .as_cde import ODEAsCDE as ODEAsCDE
from .as_cde import as_cde as as_cde
from .cells import DecayGRUCell as DecayGRUCell
from .cells import GRUCell as GRUCell
from .low_rank import LowRankField as LowRankField
from .mlp import MLPField as MLPField
from .mlp import activations as activations
from .signature_field import SignatureField as SignatureField
from .time_fields import GRUODEField as GRUODEField
from .time_fields import ODEField as ODEField
from .vector_field import FunctionField as FunctionField
from .vector_field import VectorField as VectorField
from .vector_field import as_field as as_field
from .vector_field import make_field as make_field
