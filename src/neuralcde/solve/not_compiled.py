"""Excluding functions from torch.compile."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch

Inputs = ParamSpec("Inputs")
Result = TypeVar("Result")


def not_compiled(function: Callable[Inputs, Result]) -> Callable[Inputs, Result]:
    """Decorator for a function that torch.compile must not trace, such as a solve, which is one native call.

    Like `torch.compiler.disable`, but without importing the compiler. That import takes seconds, and is needed only if
    something is compiled.
    """
    untraced: Callable[Inputs, Result] | None = None

    @functools.wraps(function)
    def plain(*arguments: Inputs.args, **options: Inputs.kwargs) -> Result:
        nonlocal untraced
        if untraced is None:
            if "torch._dynamo" not in sys.modules:
                return function(*arguments, **options)
            untraced = torch.compiler.disable(function)  # type: ignore[no-untyped-call]
        return untraced(*arguments, **options)

    return plain
