"""Explanations of predictions: how a change is split (Shapley values), the account of terms, tables and pictures."""

from .coalitions import Coalitions as Coalitions
from .coalitions import coalitions as coalitions
from .explanation import Explanation as Explanation
from .explanation import Importance as Importance
from .explanation import Term as Term
