"""The explicit midpoint method."""

from .tableau import Tableau

midpoint = Tableau("midpoint", 2, "Runge 1895", a=((), (1 / 2,)), b=(0.0, 1.0), c=(0.0, 1 / 2))
