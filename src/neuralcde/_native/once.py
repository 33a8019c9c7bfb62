"""Gradients that cannot be differentiated again, and say so when someone tries."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Backward = Callable[..., tuple[Tensor | None, ...]]


def once_differentiable(message: str) -> Callable[[Backward], Backward]:
    """Decorate the backward of an autograd function: differentiating its results raises, and never passes for zero.

    (torch's own decorator lets them pass for constants where the incoming gradient is one, as that of a sum is.)
    """

    def decorate(backward: Backward) -> Backward:
        @functools.wraps(backward)
        def once(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
            with torch.no_grad():
                results = backward(ctx, *gradients)
            if not torch.is_grad_enabled():  # no create_graph
                return results
            marked = [None if part is None else part.detach().requires_grad_() for part in results]
            kept = [part for part in marked if part is not None]
            found = iter(_Last.apply(message, *kept))  # type: ignore[no-untyped-call]
            return tuple(None if part is None else next(found) for part in marked)

        return once

    return decorate


class _Last(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, message: str, *gradients: Tensor) -> tuple[Tensor, ...]:
        ctx.message = message
        return tuple(part.view_as(part) for part in gradients)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        raise RuntimeError(ctx.message)
