"""Ralston's method: second order with the smallest error bound, and quadrature exact for quadratics."""

from .tableau import Tableau

ralston = Tableau("ralston", 2, "Ralston 1962", a=((), (2 / 3,)), b=(1 / 4, 3 / 4), c=(0.0, 2 / 3))
