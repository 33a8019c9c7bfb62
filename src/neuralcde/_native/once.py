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

    The function must save all that it is differentiable in; its backward gets (ctx, saved tensors, *gradients).

    (torch's own decorator lets them pass for constants where the incoming gradient is one, as that of a sum is.)
    """

    def decorate(backward: Backward) -> Backward:
        @functools.wraps(backward)
        def once(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
            if any(map(_is_batched, gradients)):
                raise RuntimeError("gradients come one at a time here: vectorize=False, no vmap.")
            saved = ctx.saved_tensors  # once: hooks may do some work each time
            with torch.no_grad():
                results = backward(ctx, saved, *gradients)
            if not torch.is_grad_enabled():  # no create_graph
                return results
            kept = [part for part in results if part is not None]
            # what the results depend on: who differentiates them for one of these must come by here
            sources = [part for part in (*saved, *gradients) if part is not None and part.requires_grad]
            found = iter(_Last.apply(message, len(kept), *kept, *sources))  # type: ignore[no-untyped-call]
            return tuple(None if part is None else next(found) for part in results)

        return once

    return decorate


def _is_batched(part: Tensor) -> bool:
    functorch = torch._C._functorch
    return functorch.is_batchedtensor(part) or functorch.is_legacy_batchedtensor(part)


class _Last(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, message: str, count: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.message = message
        return tuple(part.view_as(part) for part in tensors[:count])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        raise RuntimeError(ctx.message)
