"""The fifth-order method of Dormand and Prince, with an embedded fourth-order method."""

from .tableau import Tableau

_b = (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84)
_embedded = (5179 / 57600, 0.0, 7571 / 16695, 393 / 640, -92097 / 339200, 187 / 2100, 1 / 40)

dopri5 = Tableau(
    "dopri5",
    5,
    "Dormand and Prince 1980",
    a=(
        (),
        (1 / 5,),
        (3 / 40, 9 / 40),
        (44 / 45, -56 / 15, 32 / 9),
        (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
        (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
        _b,
    ),
    b=_b,
    c=(0.0, 1 / 5, 3 / 10, 4 / 5, 8 / 9, 1.0, 1.0),
    b_error=tuple(e - f for e, f in zip(_embedded, (*_b, 0.0), strict=True)),
)
