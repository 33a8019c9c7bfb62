"""Solving equations driven by X: solvers, step sizes, gradient methods, the plain torch loop, and solutions."""

from .contributions import channel_contributions as channel_contributions
from .gradients import Backprop as Backprop
from .gradients import Backsolve as Backsolve
from .gradients import Checkpoint as Checkpoint
from .gradients import Gradient as Gradient
from .gradients import Reversible as Reversible
from .logsignature import logsignature as logsignature
from .logsignature import logsignature_windows as logsignature_windows
from .signature import signature as signature
from .solution import Solution as Solution
from .solution import SolveError as SolveError
from .solution import Stats as Stats
from .solution import Status as Status
from .solve import solve as solve
from .solve import solve_cde as solve_cde
from .solvers import Solver as Solver
from .solvers import Tableau as Tableau
from .solvers import solvers as solvers
from .steps import Adaptive as Adaptive
from .steps import AtKnots as AtKnots
from .steps import FixedSteps as FixedSteps
from .steps import Steps as Steps
from .terms import ControlTerm as ControlTerm
from .terms import Jump as Jump
from .terms import Term as Term
from .terms import TimeTerm as TimeTerm
