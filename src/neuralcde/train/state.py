"""What a training changes as it goes on: weights, optimizer, rate, history."""

from __future__ import annotations

import copy
import math
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import CosineAnnealingLR, LRScheduler, ReduceLROnPlateau

from ..models import PathModel
from .settings import TrainingSettings


@dataclass
class TrainingResult:
    """What a training leaves behind: one row of the history per epoch, and which epoch gave the model.

    Epochs are counted from 1, everywhere: in the rows, in progress lines, in saved files and in the report.
    """

    history: list[dict[str, Any]] = field(default_factory=list)
    best_epoch: int = 0  # 0: no epoch is done yet
    skipped_batches: int = 0
    skipped_in_a_row: int = 0
    steps: int = 0  # that went into the moving average
    interrupted: bool = False


class TrainingState:
    """A training between two epochs.

    Parameters
    ----------
    model
        Whose weights are learnt, in place.
    settings
        How.
    """

    def __init__(self, model: PathModel, settings: TrainingSettings):
        self.model, self.settings = model, settings
        self.averaged = copy.deepcopy(model) if settings.average else None
        self.optimizer = make_optimizer(model, settings)
        self.schedule = _make_schedule(self.optimizer, settings)
        self.result = TrainingResult()
        self.best = _weights(model)

    @property
    def validated_model(self) -> PathModel:
        """The model that is validated: the average where there is one."""
        return self.averaged or self.model

    @property
    def rate(self) -> float:
        """The learning rate now."""
        return float(self.optimizer.param_groups[0]["lr"])

    def step(self) -> None:
        """One step of the optimizer, and of the moving average."""
        self.optimizer.step()
        if self.averaged is not None:
            steps = self.result.steps = self.result.steps + 1
            decay = min(self.settings.average, (1 + steps) / (10 + steps))
            with torch.no_grad():
                torch._foreach_lerp_(list(self.averaged.parameters()), list(self.model.parameters()), 1 - decay)

    def end_epoch(self, row: dict[str, Any], metric: str) -> None:
        """Take an epoch's row into the history, its weights where they are the best so far, and perhaps another rate.

        Without validation the last weights are the best.
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
        """Whether nothing has got better for too long."""
        epochs, patience = len(self.result.history), self.settings.patience
        return patience is not None and epochs > 0 and epochs - self.result.best_epoch >= patience

    def to_dict(self) -> dict[str, Any]:
        """Tensors and plain numbers, from which `restore` goes on."""
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
        """Everything as it was; refused where it was trained in another way."""
        now, kept = asdict(self.settings), asdict(TrainingSettings()) | state["settings"]  # may be older than an option
        free = {"verbose"} if self.settings.schedule == "cosine" else {"verbose", "max_epochs"}  # cosine needs its end
        changed = [name for name, value in now.items() if name not in free and kept[name] != value]
        if changed:
            raise ValueError(
                f"cannot resume: {', '.join(changed)} differ from the checkpointed run; use the same, or resume=False."
            )
        self.model.load_state_dict(state["model"])
        if self.averaged is not None:
            self.averaged.load_state_dict(state["averaged"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.schedule is not None:
            self.schedule.load_state_dict(state["schedule"])
        self.result, self.best = TrainingResult(**state["result"]), state["best"]


def make_optimizer(model: PathModel, settings: TrainingSettings) -> torch.optim.Optimizer:
    """AdamW, with a rate of its own for the readout."""
    readout = list(model.readout.parameters()) if settings.readout_rate != 1 else []
    known = {id(p) for p in readout}
    groups = [{"params": [p for p in model.parameters() if id(p) not in known], "lr": float(settings.learning_rate)}]
    if readout:
        groups.append({"params": readout, "lr": float(settings.learning_rate * settings.readout_rate)})
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
    """How good an epoch was: by its metric; equals are told apart by their loss."""
    value, loss = row[f"validation_{metric}"], row["validation_loss"]
    return (-math.inf if math.isnan(value) else value, -math.inf if math.isnan(loss) else -loss)


def _weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}
