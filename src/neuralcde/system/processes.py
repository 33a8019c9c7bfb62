"""The processes that train one model together: one alone, or those that torchrun started.

torchrun --nproc-per-node 2 train.py
torchrun --nproc-per-node 2 --no-python neuralcde fit vitals.csv --id stay --time hour --label outcome --out model
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed, nn

Value = TypeVar("Value")


@dataclass(frozen=True)
class Processes:
    """The rank of this process, the number of processes, and their communication: gloo on CPUs, NCCL on GPUs.

    Parameters
    ----------
    rank
        Number of this process. The first one, 0, writes files and messages.
    size
        Number of processes.
    """

    rank: int = 0
    size: int = 1

    @classmethod
    def current(cls) -> Processes:
        """The initialised process group, or the one that torchrun set up, or this process alone."""
        if not distributed.is_available():
            return cls()
        if not distributed.is_initialized():
            if int(os.environ.get("WORLD_SIZE", "1")) < 2 or "MASTER_ADDR" not in os.environ:
                return cls()
            if torch.cuda.is_available():
                torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
            # Import this before the group exists. Imported later (optimizers do), its functions would hold the group in
            # their default arguments, and with it gloo's threads. A thread that frees a tensor while Python shuts down
            # aborts the process.
            import_module("torch.distributed.nn.functional")
            distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
            atexit.register(_leave)
        return cls(distributed.get_rank(), distributed.get_world_size())

    @property
    def first(self) -> bool:
        """Whether this is the first process, which writes files and messages."""
        return self.rank == 0

    def share(self, positions: Tensor) -> Tensor:
        """The share of a batch for this process; empty where there are more processes than series."""
        return positions[self.rank :: self.size]

    def agree(self, value: Callable[[], Value]) -> Value:
        """The first process's value, sent to all; the others do not compute theirs."""
        if self.size == 1:
            return value()
        box: list[Any] = [value() if self.first else None]
        distributed.broadcast_object_list(box)
        agreed: Value = box[0]
        return agreed

    def sum(self, *numbers: float) -> list[float]:
        """Each number, summed over the processes."""
        if self.size == 1:
            return list(numbers)
        total = torch.tensor(numbers, dtype=torch.float64, device=_device())
        distributed.all_reduce(total)
        return total.tolist()

    def gather(self, value: Value) -> list[Value]:
        """The values of all processes, in the order of their ranks."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        distributed.all_gather_object(values, value)
        return values

    def sum_gradients(self, model: nn.Module) -> None:
        """Sum every gradient over the processes, in one message."""
        if self.size == 1:
            return
        parameters = [p for p in model.parameters() if p.requires_grad]
        flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).reshape(-1) for p in parameters])
        distributed.all_reduce(flat)
        for parameter, gradient in zip(parameters, torch.split(flat, [p.numel() for p in parameters]), strict=True):
            parameter.grad = gradient.view_as(parameter)

    def same_weights(self, model: nn.Module) -> None:
        """Copy the first process's weights to all processes."""
        if self.size > 1:
            for value in model.state_dict().values():
                distributed.broadcast(value, 0)


def _leave() -> None:
    if distributed.is_initialized():
        distributed.destroy_process_group()


def _device() -> torch.device:
    return torch.device("cuda" if distributed.get_backend() == "nccl" else "cpu")
