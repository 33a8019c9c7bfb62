"""EES(2,5) with parameter 1/10: an explicit method of order 2 that is reversible up to order 5."""

from .tableau import Tableau

_x = 1 / 10

ees25 = Tableau(
    "ees25",
    2,
    "explicit and effectively symmetric schemes, arXiv:2507.21006",
    a=(
        (),
        ((1 + 2 * _x) / (4 * (1 - _x)),),
        ((4 * _x - 1) ** 2 / (4 * (_x - 1) * (1 - 4 * _x**2)), (1 - _x) / (1 - 4 * _x**2)),
    ),
    b=(_x, 1 / 2, 1 / 2 - _x),
    c=(
        0.0,
        (1 + 2 * _x) / (4 * (1 - _x)),
        (4 * _x - 1) ** 2 / (4 * (_x - 1) * (1 - 4 * _x**2)) + (1 - _x) / (1 - 4 * _x**2),
    ),
    reversible=True,
)
