"""Backward passes that cannot be differentiated again, and raise an error when this is tried."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Backward = Callable[..., tuple[Tensor | None, ...]]


def once_differentiable(message: str) -> Callable[[Backward], Backward]:
    """Decorator for the backward of an autograd function: differentiating its results raises an error.

    The autograd function must save every tensor that it is differentiable in. The decorated backward is called with
    (ctx, saved tensors, *gradients).

    torch's own `once_differentiable` raises only if the incoming gradient requires gradients. If it is a constant, like
    the gradient of a sum, the results pass for constants and their second derivatives are silently zero.

    Parameters
    ----------
    message
        Text of the error.
    """

    def decorate(backward: Backward) -> Backward:
        @functools.wraps(backward)
        def once(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
            if any(map(_is_batched, gradients)):
                raise RuntimeError(
                    "this backward pass takes one gradient at a time; use vectorize=False, and no vmap over gradients."
                )
            saved = ctx.saved_tensors  # read once: saved-tensor hooks may run at each access
            with torch.no_grad():
                results = backward(ctx, saved, *gradients)
            if not torch.is_grad_enabled():  # create_graph=False: nobody can differentiate the results
                return results
            kept = [part for part in results if part is not None]
            # The results depend on these tensors. _Raise ties both together in the graph, so that differentiating a
            # result with respect to any of them goes through its backward, which raises.
            sources = [part for part in (*saved, *gradients) if part is not None and part.requires_grad]
            tied = iter(_Raise.apply(message, len(kept), *kept, *sources))  # type: ignore[no-untyped-call]
            return tuple(None if part is None else next(tied) for part in results)

        return once

    return decorate


def _is_batched(part: Tensor) -> bool:
    functorch = torch._C._functorch
    return functorch.is_batchedtensor(part) or functorch.is_legacy_batchedtensor(part)


class _Raise(torch.autograd.Function):
    """Identity on the first `count` tensors; its backward raises an error."""

    @staticmethod
    def forward(ctx: Any, message: str, count: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.message = message
        return tuple(part.view_as(part) for part in tensors[:count])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        raise RuntimeError(ctx.message)
