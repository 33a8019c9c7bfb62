"""The state of a training: weights, optimizer, learning rate schedule, history."""

from __future__ import annotations

import copy
import functools
import math
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, LRScheduler, ReduceLROnPlateau

from ..contracts import listed
from ..models import PathModel
from .checkpoints import cannot_resume
from .settings import TrainingSettings


@dataclass
class TrainingResult:
    """The result of a training: one row of history per epoch, and the epoch whose weights the model has.

    Epochs are counted from 1 everywhere: in the rows, in progress lines, in saved files and in the report.
    """

    history: list[dict[str, Any]] = field(default_factory=list)
    best_epoch: int = 0  # 0: no epoch is done yet
    averaged_epochs: list[int] = field(default_factory=list)  # the best first; empty: the weights of the best epoch
    skipped_batches: int = 0
    skipped_in_a_row: int = 0
    steps: int = 0  # number of updates of the exponential moving average
    interrupted: bool = False


class TrainingState:
    """The state of a training between two epochs.

    Parameters
    ----------
    model
        The model, trained in place.
    settings
        Training settings.
    batches
        Number of batches per epoch, for the schedule "one_cycle".
    """

    def __init__(self, model: PathModel, settings: TrainingSettings, batches: int = 1):
        self.model, self.settings = model, settings
        self.averaged = copy.deepcopy(model) if settings.ema_decay else None
        self.optimizer = make_optimizer(model, settings)
        self.schedule = _make_schedule(self.optimizer, settings, settings.max_epochs * batches)
        self.result = TrainingResult()
        self.best: dict[int, dict[str, Tensor]] = {}  # weights of the best epochs, the best first

    @property
    def validated_model(self) -> PathModel:
        """The model to validate: the exponential moving average of the weights if there is one, else the model."""
        return self.averaged or self.model

    @property
    def rate(self) -> float:
        """The current learning rate."""
        return float(self.optimizer.param_groups[0]["lr"])

    def step(self) -> None:
        """One step of the optimizer and of a schedule per step, and an update of the exponential moving average."""
        self.optimizer.step()
        if isinstance(self.schedule, LambdaLR):
            self.schedule.step()
        if self.averaged is not None:
            steps = self.result.steps = self.result.steps + 1
            decay = min(self.settings.ema_decay, (1 + steps) / (10 + steps))
            with torch.no_grad():
                torch._foreach_lerp_(list(self.averaged.parameters()), list(self.model.parameters()), 1 - decay)

    def end_epoch(self, row: dict[str, Any], metric: str) -> None:
        """End an epoch: append its row to the history, step the schedule, and keep the weights if among the best.

        Without validation the last weights count as the best.
        """
        if isinstance(self.schedule, ReduceLROnPlateau):
            self.schedule.step(row.get("validation_loss", row["loss"]))
        elif isinstance(self.schedule, CosineAnnealingLR):
            self.schedule.step()
        history = self.result.history
        history.append(row)
        validated = "validation_loss" in row
        epochs = [*self.best, row["epoch"]] if validated else [row["epoch"]]
        if validated:  # the sort is stable: among equal epochs the earlier one is better
            epochs.sort(key=lambda epoch: self.quality(history[epoch - 1], metric), reverse=True)
        kept = epochs[: self.settings.average_epochs]
        if row["epoch"] in kept:
            new = _weights(self.validated_model)
            self.best = {epoch: self.best.get(epoch, new) for epoch in kept}
        self.result.best_epoch = kept[0]

    def quality(self, row: dict[str, Any], metric: str) -> tuple[float, ...]:
        """Sort key of an epoch, larger is better: the monitored criterion, with ties broken by the validation loss."""
        loss = row["validation_loss"]
        negative = -math.inf if math.isnan(loss) else -loss
        if self.settings.monitor == "loss":
            return (negative,)
        value = row[f"validation_{metric}"]
        return (-math.inf if math.isnan(value) else value, negative)

    @property
    def best_weights(self) -> dict[str, Tensor]:
        """The weights of the best epoch."""
        return self.best[self.result.best_epoch]

    def average_of_best(self) -> dict[str, Tensor]:
        """The mean of the weights of the best epochs; buffers of integers are those of the best epoch."""
        best = self.best_weights
        every = {name: [weights[name] for weights in self.best.values()] for name in best}
        return {
            name: torch.stack(every[name]).mean(0) if value.is_floating_point() else value
            for name, value in best.items()
        }

    @property
    def stalled(self) -> bool:
        """Whether the monitored criterion has not improved for `patience` epochs."""
        epochs, patience = len(self.result.history), self.settings.patience
        return patience is not None and epochs > 0 and epochs - self.result.best_epoch >= patience

    def to_dict(self) -> dict[str, Any]:
        """The state as tensors and plain values, for `restore`."""
        return {
            "model": self.model.state_dict(),
            "averaged": None if self.averaged is None else self.averaged.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "schedule": None if self.schedule is None else self.schedule.state_dict(),
            "result": asdict(self.result),
            "settings": asdict(self.settings),
            "best": self.best,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Restore what `to_dict` returned; raise `ValueError` if the settings differ."""
        # the checkpoint may predate an option, which then had its default value
        now, kept = asdict(self.settings), asdict(TrainingSettings()) | state["settings"]
        for name in kept.keys() - now.keys():
            raise KeyError(f"there is no option {name}")
        # some schedules depend on max_epochs; the others can be continued for longer
        free = {"verbose"} if self.settings.schedule in ("cosine", "one_cycle") else {"verbose", "max_epochs"}
        changed = [name for name, value in now.items() if name not in free and kept[name] != value]
        if changed:
            raise cannot_resume(*listed(*changed), " must be the same as in the checkpointed run")
        self.model.load_state_dict(state["model"])
        if self.averaged is not None:
            self.averaged.load_state_dict(state["averaged"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.schedule is not None:
            self.schedule.load_state_dict(state["schedule"])
        self.result, self.best = TrainingResult(**state["result"]), state["best"]


def make_optimizer(model: PathModel, settings: TrainingSettings) -> torch.optim.Optimizer:
    """AdamW, with a separate learning rate for the readout."""
    readout = list(model.readout.parameters()) if settings.readout_lr_scale != 1 else []
    known = {id(p) for p in readout}
    groups = [{"params": [p for p in model.parameters() if id(p) not in known], "lr": float(settings.learning_rate)}]
    if readout:
        groups.append({"params": readout, "lr": float(settings.learning_rate * settings.readout_lr_scale)})
    return torch.optim.AdamW(groups, weight_decay=settings.weight_decay, fused=True)


def _make_schedule(
    optimizer: torch.optim.Optimizer, settings: TrainingSettings, steps: int
) -> LRScheduler | ReduceLROnPlateau | None:
    if settings.schedule == "plateau":
        return ReduceLROnPlateau(optimizer, factor=settings.plateau_factor, patience=settings.plateau_patience)
    if settings.schedule == "cosine":
        return CosineAnnealingLR(optimizer, settings.max_epochs)
    if settings.schedule == "one_cycle":
        return LambdaLR(optimizer, functools.partial(one_cycle, steps=steps))
    return None


def one_cycle(step: int, *, steps: int) -> float:
    """Factor on the learning rate before a step, counted from 0, of `steps` in all.

    It is that of torch's `OneCycleLR(pct_start=0.1)`, which cannot be used itself: it divides by zero for 10 steps.
    """
    start, end, top = 1 / 25, 1 / 25e4, max(0.1 * steps - 1, 0.0)  # `top`: the step with the full rate
    if step < top:
        return start + (1 - start) * (1 - math.cos(math.pi * step / top)) / 2
    done = min((step - top) / max(steps - 1 - top, 1.0), 1.0)
    return end + (1 - end) * (1 + math.cos(math.pi * done)) / 2


def _weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}
