"""The training loop."""

from __future__ import annotations

import copy
import hashlib
import math
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.optim.lr_scheduler import CosineAnnealingLR, LRScheduler, ReduceLROnPlateau

from ..models import PathModel
from ..paths import ControlPath, PathDataset
from ..series import ragged
from ..solve import SolveError
from ..tasks import Task
from .channel_dropout import drop_channels
from .checkpoints import load_state, save_state, write_history
from .processes import Processes
from .progress import Progress
from .settings import TrainingSettings

BATCHES_AT_ONCE = 16


class TrainingError(RuntimeError):
    """Training cannot go on; the message says why and what to do."""


@dataclass
class TrainingResult:
    """What a training leaves behind: a row an epoch, and which of them gave the model."""

    history: list[dict[str, Any]] = field(default_factory=list)
    best_epoch: int = -1
    skipped_batches: int = 0
    skipped_in_a_row: int = 0
    steps: int = 0  # that went into the moving average
    interrupted: bool = False


def train(
    model: PathModel,
    task: Task,
    training: PathDataset,
    validation: PathDataset | None = None,
    settings: TrainingSettings | None = None,
    *,
    folder: Path | None = None,
    resume: bool = False,
) -> TrainingResult:
    """Train a model in place; at the end it has the weights of the epoch with the best validation metric.

    Without validation data the last weights are kept. Ctrl-C ends the training, not the program: the best weights so far are
    kept. With a `folder`, `history.jsonl` and a checkpoint are written after every epoch, and `resume` goes on from it to the
    same result as if nothing had happened. Under torchrun every process takes its share of each batch, and the first one writes.

    Parameters
    ----------
    model, task, training, validation, settings
        What, to what end, on what, judged by what, how. Targets of the data are encoded by the task; with `per_row` data
        there is a target at every observation, and outputs evolve in time.
    folder, resume
        Where history and checkpoint go; whether to go on from the checkpoint there.
    """
    settings = settings or TrainingSettings()
    together = Processes.current()
    together.same_weights(model)
    optimizer = _optimizer(model, settings)
    schedule = _schedule(optimizer, settings)
    averaged = copy.deepcopy(model) if settings.average else None
    result, best, first = TrainingResult(), _weights(model), 0
    file = None if folder is None else Path(folder) / "checkpoint.pt"
    state = together.agree(lambda: load_state(file) if resume and file is not None and file.exists() else None)
    if file is not None and not resume and together.first:
        file.unlink(missing_ok=True)  # of an earlier run, which nobody should resume by mistake
    fingerprint = _fingerprint(model, training)
    if state is not None:
        if state["fingerprint"] != fingerprint:
            raise ValueError(
                "cannot resume: data, path or model differ from the run that is to go on; use resume=False."
            )
        first, best = _restore(state, model, averaged, optimizer, schedule, result, settings)
    with Progress(settings.max_epochs, first, verbose=settings.verbose if together.first else 0) as progress:
        try:
            for epoch in range(first, settings.max_epochs):
                if _stalled(result, epoch, settings):
                    break
                start = time.perf_counter()
                loss = _epoch(model, averaged, task, training, settings, optimizer, epoch, result, together)
                row: dict[str, Any] = {"epoch": epoch, "loss": loss, "rate": optimizer.param_groups[0]["lr"]}
                judged = averaged or model
                if validation is not None:
                    outputs, targets = outputs_of(judged, validation, settings.batch_size * 4, together)
                    row["validation_loss"] = float(task.loss(outputs, targets))
                    row |= {f"validation_{name}": value for name, value in task.metrics(outputs, targets).items()}
                row["seconds"] = time.perf_counter() - start
                _step(schedule, row)
                result.history.append(row)
                if validation is None or _is_best(result, task):
                    best, result.best_epoch = _weights(judged), epoch
                if file is not None and together.first:
                    file.parent.mkdir(parents=True, exist_ok=True)
                    save_state(
                        file,
                        _state(model, averaged, optimizer, schedule, result, settings, best)
                        | {"fingerprint": fingerprint},
                    )
                    write_history(file.parent / "history.jsonl", result.history)
                progress.epoch(row, task.metric)
        except KeyboardInterrupt:
            if result.best_epoch < 0:
                raise
            result.interrupted = True
    model.load_state_dict(best)
    return result


@torch.no_grad()
def outputs_of(
    model: PathModel, data: PathDataset, batch_size: int = 128, together: Processes | None = None
) -> tuple[Float[Tensor, "... outputs"], Float[Tensor, "..."]]:
    """Outputs and targets of all data, a row a series or a row a row, in their order; targets are empty where there are none.

    Processes that work `together` take a part each and give the others theirs.
    """
    together = together or Processes()
    was_training = model.training
    model.eval()
    outputs, targets = [], []
    mine = torch.arange(len(data)).tensor_split(together.size)[together.rank]
    for batch in torch.split(mine, batch_size) if len(mine) else ():
        part = data[batch]
        path, y = part if isinstance(part, tuple) else (part, torch.zeros(0))
        outputs.append(model(path, at=_at(data)))
        targets.append(y)
    model.train(was_training)
    parts = together.gather((outputs, targets))
    return torch.cat([x for part, _ in parts for x in part]), torch.cat([y for _, part in parts for y in part])


def _at(data: PathDataset) -> Literal["knots"] | None:
    return "knots" if data.per_row else None


def _epoch(
    model: PathModel,
    averaged: PathModel | None,
    task: Task,
    training: PathDataset,
    settings: TrainingSettings,
    optimizer: torch.optim.Optimizer,
    epoch: int,
    result: TrainingResult,
    together: Processes,
) -> float:
    """One pass over the data, in an order that depends on seed and epoch alone; the mean loss.

    A batch is shared among the processes, and every share's mean counts by how many targets it is of: the gradient is that of
    the whole batch, whatever the number of processes.
    """
    model.train()
    generator = torch.Generator().manual_seed(settings.seed * 1_000_003 + epoch)
    total, count = 0.0, 0.0
    order = torch.randperm(len(training), generator=generator)
    for path, targets, mine in _batches(training, order, settings.batch_size, together):
        if settings.channel_dropout:
            path = drop_channels(path, settings.channel_dropout, generator)
        optimizer.zero_grad(set_to_none=True)
        weight = task.weight(targets) if mine else 0.0
        trouble = ""
        try:
            outputs = model(path, at=_at(training))
            loss = task.loss(outputs, targets) if weight else 0.0 * outputs.sum()
            value = float(loss.detach())
        except SolveError as explosion:
            value, trouble = math.nan, str(explosion)
        bad = not math.isfinite(value)
        value, whole, troubled = together.sum(0.0 if bad else value * weight, weight, bad)
        if troubled:
            _skip(result, settings, path, trouble or "the loss is not a finite number.")
            continue
        if not whole:  # no target of the batch is known
            continue
        if weight != whole:
            loss = loss * (weight / whole)
        if settings.weight_penalty:
            norms = sum(parameter.norm() for parameter in penalised(model))
            loss = loss + settings.weight_penalty / together.size * norms
        loss.backward()
        together.sum_gradients(model)
        if settings.clip is not None and not _clip(model, settings.clip):
            _skip(result, settings, path, "the gradient is not finite.")
            continue
        result.skipped_in_a_row = 0
        optimizer.step()
        if averaged is not None:
            result.steps += 1
            _average(averaged, model, min(settings.average, (1 + result.steps) / (10 + result.steps)))
        total, count = total + value, count + whole
    return total / count if count else math.nan


def _batches(
    data: PathDataset, order: Tensor, size: int, together: Processes
) -> Iterator[tuple[ControlPath, Tensor, bool]]:
    """The share of every batch that falls to this process; where none does, a stand-in and False.

    Series are put in order for several batches at once, of which each is then a slice: the cheapest to make.
    """
    for several in torch.split(order, size * BATCHES_AT_ONCE):
        shares = [together.share(batch) for batch in torch.split(several, size)]
        part = data.subset(torch.cat([batch if len(batch) else several[:1] for batch in shares]))
        start = 0
        for batch in shares:
            stop = start + max(len(batch), 1)
            path, targets = part[start:stop]
            yield path, targets, len(batch) > 0
            start = stop


def penalised(model: PathModel) -> Iterator[Tensor]:
    """The parameters that the paper penalises: the field's, or all but the initial network's where the model jumps."""
    if hasattr(model, "cell"):
        return (p for name, p in model.named_parameters() if not name.startswith("initial."))
    return model.field.parameters()  # type: ignore[union-attr]


def _optimizer(model: PathModel, settings: TrainingSettings) -> torch.optim.Optimizer:
    readout = list(model.readout.parameters()) if settings.readout_rate != 1 else []
    known = {id(p) for p in readout}
    groups = [{"params": [p for p in model.parameters() if id(p) not in known], "lr": float(settings.learning_rate)}]
    if readout:
        groups.append({"params": readout, "lr": float(settings.learning_rate * settings.readout_rate)})
    return torch.optim.AdamW(groups, weight_decay=settings.weight_decay, fused=True)


def _schedule(optimizer: torch.optim.Optimizer, settings: TrainingSettings) -> LRScheduler | ReduceLROnPlateau | None:
    if settings.schedule == "plateau":
        return ReduceLROnPlateau(optimizer, factor=settings.plateau_factor, patience=settings.plateau_patience)
    if settings.schedule == "cosine":
        return CosineAnnealingLR(optimizer, settings.max_epochs)
    return None


def _step(schedule: LRScheduler | ReduceLROnPlateau | None, row: dict[str, Any]) -> None:
    if isinstance(schedule, ReduceLROnPlateau):
        schedule.step(row.get("validation_loss", row["loss"]))
    elif schedule is not None:
        schedule.step()


@torch.no_grad()
def _clip(model: nn.Module, largest: float) -> bool:
    """Shorten the gradient, and say whether it is finite; torch's clip_grad_norm_ takes more calls, which small models feel."""
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    norm = float(torch.stack(torch._foreach_norm(gradients)).norm())
    if norm > largest:
        torch._foreach_mul_(gradients, largest / norm)
    return math.isfinite(norm)


@torch.no_grad()
def _average(averaged: nn.Module, model: nn.Module, decay: float) -> None:
    torch._foreach_lerp_(list(averaged.parameters()), list(model.parameters()), 1 - decay)


def _is_best(result: TrainingResult, task: Task) -> bool:
    """Whether the last epoch has the best metric so far; equals are told apart by their loss."""

    def quality(row: dict[str, Any]) -> tuple[float, float]:
        metric, loss = row[f"validation_{task.metric}"], row["validation_loss"]
        return (-math.inf if math.isnan(metric) else metric, -math.inf if math.isnan(loss) else -loss)

    if result.best_epoch < 0:
        return True
    return quality(result.history[-1]) > quality(result.history[result.best_epoch])


def _stalled(result: TrainingResult, epoch: int, settings: TrainingSettings) -> bool:
    return settings.patience is not None and epoch - 1 - result.best_epoch >= settings.patience > 0 and epoch > 0


def _skip(result: TrainingResult, settings: TrainingSettings, path: ControlPath, trouble: str) -> None:
    """Count a batch that cannot be learnt from; too many in a row are an error."""
    result.skipped_batches += 1
    result.skipped_in_a_row += 1
    if result.skipped_in_a_row >= settings.skipped_in_a_row:
        raise TrainingError(_no_way_on(result.skipped_in_a_row, path, trouble))


def _no_way_on(count: int, path: ControlPath, trouble: str) -> str:
    names = ", ".join(ragged.series_name(path.series.ids, i) for i in range(min(len(path), 5)))
    more = ", ..." if len(path) > 5 else ""
    return (
        f"{count} batches in a row had no finite loss; the last one held the series {names}{more}: {trouble} "
        "Lower learning_rate, set clip=1.0, or scale the data."
    )


def _fingerprint(model: nn.Module, data: PathDataset) -> str:
    """What a checkpoint belongs to: the model's shape, the paths and the targets."""
    digest = hashlib.sha256(repr(model).encode())
    source, series = data.source, data.series
    tensors = [series.times, series.values, series.offsets, series.static, data.targets]
    for tensor in [*tensors, source.coefficients if isinstance(source, ControlPath) else None]:
        if tensor is not None:
            digest.update(tensor.detach().cpu().contiguous().numpy().data)
    return digest.hexdigest()


def _weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def _state(
    model: nn.Module,
    averaged: nn.Module | None,
    optimizer: torch.optim.Optimizer,
    schedule: LRScheduler | ReduceLROnPlateau | None,
    result: TrainingResult,
    settings: TrainingSettings,
    best: dict[str, Tensor],
) -> dict[str, Any]:
    return {
        "model": model.state_dict(),
        "averaged": None if averaged is None else averaged.state_dict(),
        "optimizer": optimizer.state_dict(),
        "schedule": None if schedule is None else schedule.state_dict(),
        "result": asdict(result),
        "settings": asdict(settings),
        "best": best,
    }


def _restore(
    state: dict[str, Any],
    model: nn.Module,
    averaged: nn.Module | None,
    optimizer: torch.optim.Optimizer,
    schedule: LRScheduler | ReduceLROnPlateau | None,
    result: TrainingResult,
    settings: TrainingSettings,
) -> tuple[int, dict[str, Tensor]]:
    """Everything as it was after the last whole epoch; the next epoch, and the best weights."""
    now = asdict(settings)
    free = (
        ("verbose",) if settings.schedule == "cosine" else ("verbose", "max_epochs")
    )  # cosine rates depend on the end
    changed = [name for name, value in state["settings"].items() if name not in free and now[name] != value]
    if changed:
        raise ValueError(
            f"cannot resume: {', '.join(changed)} differ from the run that is to go on; use the same, or resume=False."
        )
    model.load_state_dict(state["model"])
    if averaged is not None:
        averaged.load_state_dict(state["averaged"])
    optimizer.load_state_dict(state["optimizer"])
    if schedule is not None:
        schedule.load_state_dict(state["schedule"])
    for name, value in state["result"].items():
        setattr(result, name, value)
    return len(result.history), state["best"]
