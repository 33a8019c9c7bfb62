"""One torch thread for loops of tiny operations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

# Below so many multiplications per evaluation of the field (about 0.1 ms on one core), waking a thread costs more than
# it saves; on a busy machine it costs a thousand times more.
SMALL = 2**22
PER_NUMBER = 16  # an elementwise function of a number takes as long as this many multiplications in a matrix product


@contextmanager
def one_thread(z: Tensor, channels: int, modules: Sequence[nn.Module]) -> Iterator[None]:
    """Use one torch thread if the states are on the CPU and an evaluation of the modules is little work.

    The number of threads is restored at the end, also after an exception. It is not touched if it is one already.

    Parameters
    ----------
    z
        The states, one row per series.
    channels
        Number of channels of the path.
    modules
        The field and the cell.
    """
    threads = torch.get_num_threads()
    if threads == 1 or z.device.type != "cpu" or not _is_small(z, channels, modules):
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _is_small(z: Tensor, channels: int, modules: Sequence[nn.Module]) -> bool:
    weights = sum(parameter.numel() for module in modules for parameter in module.parameters())
    return len(z) * max(weights, PER_NUMBER * z.shape[1] * channels) < SMALL
