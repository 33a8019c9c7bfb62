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
    """Which of how many processes this is, and what they do together: gloo between CPUs, NCCL between GPUs.

    Parameters
    ----------
    rank
        This process; the first one, 0, is the one that writes.
    size
        How many there are.
    """

    rank: int = 0
    size: int = 1

    @classmethod
    def current(cls) -> Processes:
        """The group that was initialised, or the one whose description torchrun left in the environment, or this process alone."""
        if not distributed.is_available():
            return cls()
        if not distributed.is_initialized():
            if int(os.environ.get("WORLD_SIZE", "1")) < 2 or "MASTER_ADDR" not in os.environ:
                return cls()
            if torch.cuda.is_available():
                torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
            # Imported later, as optimizers do, its functions would keep the group for their defaults, and gloo's threads with it:
            # one that then gives back a tensor while Python ends aborts the process.
            import_module("torch.distributed.nn.functional")
            distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
            atexit.register(_leave)
        return cls(distributed.get_rank(), distributed.get_world_size())

    @property
    def first(self) -> bool:
        """Whether this is the process that writes."""
        return self.rank == 0

    def share(self, positions: Tensor) -> Tensor:
        """What of a batch falls to this process; empty where there are more processes than series."""
        return positions[self.rank :: self.size]

    def agree(self, value: Callable[[], Value]) -> Value:
        """The first process's value, for all; the others do not compute theirs."""
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
        """Everybody's value, in the order of their ranks."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        distributed.all_gather_object(values, value)
        return values

    def sum_gradients(self, model: nn.Module) -> None:
        """Every gradient, summed over the processes, in one message."""
        if self.size == 1:
            return
        parameters = [p for p in model.parameters() if p.requires_grad]
        flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).reshape(-1) for p in parameters])
        distributed.all_reduce(flat)
        for parameter, gradient in zip(parameters, torch.split(flat, [p.numel() for p in parameters]), strict=True):
            parameter.grad = gradient.view_as(parameter)

    def same_weights(self, model: nn.Module) -> None:
        """Give everybody the first process's weights."""
        if self.size > 1:
            for value in model.state_dict().values():
                distributed.broadcast(value, 0)


def _leave() -> None:
    if distributed.is_initialized():
        distributed.destroy_process_group()


def _device() -> torch.device:
    return torch.device("cuda" if distributed.get_backend() == "nccl" else "cpu")
