"""Ways of differentiating that kernels do not see."""

from __future__ import annotations

import torch
from torch.autograd import forward_ad


def transformed() -> bool:
    """Whether code runs inside a transform of torch.func (grad, jvp, vmap) or in forward mode: then plain torch must do it all."""
    return torch._C._functorch.maybe_current_level() is not None or forward_ad._current_level >= 0
