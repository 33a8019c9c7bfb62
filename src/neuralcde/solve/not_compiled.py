"""What torch.compile shall leave as it is."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch

Inputs = ParamSpec("Inputs")
Result = TypeVar("Result")


def not_compiled(function: Callable[Inputs, Result]) -> Callable[Inputs, Result]:
    """Decorate a function that a compiled module may call, but that is not to be traced: a solve is one native call.

    As `torch.compiler.disable`, which imports the compiler: seconds that only those who compile should wait.
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
