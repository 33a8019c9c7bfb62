"""Heun's method of second order: the explicit trapezoidal rule."""

from .tableau import Tableau

heun = Tableau("heun", 2, "Heun 1900", a=((), (1.0,)), b=(1 / 2, 1 / 2), c=(0.0, 1.0))
