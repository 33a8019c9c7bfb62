"""The state of a training: weights, optimizer, learning rate schedule, history."""

from __future__ import annotations

import copy
import math
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import CosineAnnealingLR, LRScheduler, ReduceLROnPlateau

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
    """

    def __init__(self, model: PathModel, settings: TrainingSettings):
        self.model, self.settings = model, settings
        self.averaged = copy.deepcopy(model) if settings.ema_decay else None
        self.optimizer = make_optimizer(model, settings)
        self.schedule = _make_schedule(self.optimizer, settings)
        self.result = TrainingResult()
        self.best = _weights(model)

    @property
    def validated_model(self) -> PathModel:
        """The model to validate: the exponential moving average of the weights if there is one, else the model."""
        return self.averaged or self.model

    @property
    def rate(self) -> float:
        """The current learning rate."""
        return float(self.optimizer.param_groups[0]["lr"])

    def step(self) -> None:
        """One step of the optimizer, and an update of the exponential moving average."""
        self.optimizer.step()
        if self.averaged is not None:
            steps = self.result.steps = self.result.steps + 1
            decay = min(self.settings.ema_decay, (1 + steps) / (10 + steps))
            with torch.no_grad():
                torch._foreach_lerp_(list(self.averaged.parameters()), list(self.model.parameters()), 1 - decay)

    def end_epoch(self, row: dict[str, Any], metric: str) -> None:
        """End an epoch: append its row to the history, step the schedule, and keep the weights if they are the best.

        Without validation the last weights count as the best.
        """
        if isinstance(self.schedule, ReduceLROnPlateau):
            self.schedule.step(row.get("validation_loss", row["loss"]))
        elif self.schedule is not None:
            self.schedule.step()
        history = self.result.history
        history.append(row)
        if (
            "validation_loss" not in row
            or not self.result.best_epoch
            or _quality(row, metric) > _quality(history[self.result.best_epoch - 1], metric)
        ):
            self.best, self.result.best_epoch = _weights(self.validated_model), row["epoch"]

    @property
    def stalled(self) -> bool:
        """Whether the validation metric has not improved for `patience` epochs."""
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
        # the cosine schedule depends on max_epochs; the others can be continued for longer
        free = {"verbose"} if self.settings.schedule == "cosine" else {"verbose", "max_epochs"}
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
    optimizer: torch.optim.Optimizer, settings: TrainingSettings
) -> LRScheduler | ReduceLROnPlateau | None:
    if settings.schedule == "plateau":
        return ReduceLROnPlateau(optimizer, factor=settings.plateau_factor, patience=settings.plateau_patience)
    if settings.schedule == "cosine":
        return CosineAnnealingLR(optimizer, settings.max_epochs)
    return None


def _quality(row: dict[str, Any], metric: str) -> tuple[float, float]:
    """Sort key of an epoch, larger is better: the validation metric, with ties broken by the validation loss."""
    value, loss = row[f"validation_{metric}"], row["validation_loss"]
    return (-math.inf if math.isnan(value) else value, -math.inf if math.isnan(loss) else -loss)


def _weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}
