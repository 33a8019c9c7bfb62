"""Detection of torch's function transforms, which compiled kernels do not support."""

from __future__ import annotations

import torch
from torch.autograd import forward_ad


def transformed() -> bool:
    """Whether the code runs inside a torch.func transform (grad, jvp, vmap) or in forward-mode differentiation.

    There every operation must be a torch operation: a kernel would hide its computation from the transform.
    """
    return torch._C._functorch.maybe_current_level() is not None or forward_ad._current_level >= 0
