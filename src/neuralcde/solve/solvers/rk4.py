"""The 3/8 rule, the paper's solver (and torchdiffeq's "rk4"); not the classic method with nodes 0, 1/2, 1/2, 1."""

from .tableau import Tableau

rk4 = Tableau(
    "rk4",
    4,
    "Kutta 1901, the 3/8 rule",
    a=((), (1 / 3,), (-1 / 3, 1.0), (1.0, -1.0, 1.0)),
    b=(1 / 8, 3 / 8, 3 / 8, 1 / 8),
    c=(0.0, 1 / 3, 2 / 3, 1.0),
)
