"""The native engine: fused programs that run on tiles of several series at once. Internal; no public API."""

from .._native.transforms import transformed as transformed
from .lowering import lower as lower
from .lowering import lowers as lowers
from .native import EventColumns as EventColumns
from .native import NativeProblem as NativeProblem
from .native import TableauColumns as TableauColumns
from .native import available as available
from .native import engine_name as engine_name
from .native import most_stages as most_stages
from .native import once_differentiable as once_differentiable
from .native import solve_natively as solve_natively
from .program import Program as Program
from .program import ProgramBuilder as ProgramBuilder
from .program import Region as Region
from .rows import apply_layers as apply_layers
from .rows import evaluate_rows as evaluate_rows
from .walks import Walked as Walked
from .walks import WalkProblem as WalkProblem
from .walks import read_steps as read_steps
from .walks import walk_forward as walk_forward
