"""Synthetic data sets for demos and experiments, generated from a seed."""

from .icu_table import LABS as LABS
from .icu_table import VITALS as VITALS
from .icu_table import icu_table as icu_table
