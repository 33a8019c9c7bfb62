"""Euler's method."""

from .tableau import Tableau

euler = Tableau("euler", 1, "Euler 1768", a=((),), b=(1.0,), c=(0.0,))
