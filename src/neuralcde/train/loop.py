"""The training loop."""

from __future__ import annotations

import contextlib
import hashlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..models import PathModel, drawing_from
from ..paths import ControlPath, PathDataset
from ..series import IrregularSeries, ragged
from ..solve import SolveError
from ..system import Interrupts, Processes, folder_lock
from ..tasks import Task
from .augmentation import drop_channels, drop_rows, jitter_channels
from .auxiliary import auxiliary_head, outputs_and_second_loss
from .checkpoints import cannot_resume, load_state, save_state, write_history
from .progress import Progress
from .rescaling import rescale_outputs
from .settings import TrainingSettings
from .state import TrainingResult, TrainingState

Batch = ControlPath | IrregularSeries  # series for models that build their paths themselves
Callback = Callable[[dict[str, Any]], Any]
BATCHES_AT_ONCE = 16  # batches per gather of the shuffled series


class TrainingError(RuntimeError):
    """Training cannot continue; the message says why, and what to do."""


def train(
    model: PathModel,
    task: Task,
    training: PathDataset,
    validation: PathDataset | None = None,
    settings: TrainingSettings | None = None,
    *,
    folder: Path | None = None,
    resume: bool = False,
    callbacks: Sequence[Callback] = (),
    auxiliary: Task | None = None,
) -> TrainingResult:
    """Train a model in place; at the end it has the weights of the best epoch, or the average of the best epochs.

    Without validation data the last weights are kept. Ctrl-C ends the training early and keeps the best weights so far.

    With a `folder`, `history.jsonl` and a checkpoint are written after every epoch. `resume` continues from the
    checkpoint, and gives the same result as an uninterrupted run. Without `resume`, a new training overwrites the
    checkpoint of an earlier one at the end of its first epoch.

    Under torchrun every process computes a part of each batch, and only the first process writes files.

    Parameters
    ----------
    model, task, training, validation, settings
        Model, task, training data, validation data, settings. Targets must be encoded by the task. If the data are
        `per_row`, there is a target for every row, and the outputs at the rows are trained.
    folder, resume
        Folder for history and checkpoint; whether to continue from the checkpoint in it.
    callbacks
        Functions that are called after each epoch with its row of the history, a dictionary. If one returns True,
        training stops. Under torchrun only the first process calls them.
    auxiliary
        Task of the second loss, on the `auxiliary` targets of the training data; None for no second loss.

    Raises
    ------
    ValueError
        If another training is writing to the folder, or if the checkpoint is damaged or belongs to a training with
        other data, another model or other settings.
    TrainingError
        If the loss or the gradient is not finite for too many batches in a row.
    """
    settings = settings or TrainingSettings()
    together = Processes.current()
    with auxiliary_head(model, auxiliary, training):
        together.same_weights(model)
        return _train(model, task, training, validation, settings, folder, callbacks, together, resume=resume)


def _train(
    model: PathModel,
    task: Task,
    training: PathDataset,
    validation: PathDataset | None,
    settings: TrainingSettings,
    folder: Path | None,
    callbacks: Sequence[Callback],
    together: Processes,
    *,
    resume: bool,
) -> TrainingResult:
    file = None if folder is None else Path(folder) / "checkpoint.pt"
    with contextlib.nullcontext() if file is None or not together.first else folder_lock(file.parent):
        state, fingerprint = TrainingState(model, settings, _number_of_batches(training, settings)), ""
        if file is not None:
            fingerprint = _fingerprint(model, task, training, validation)
            if resume:
                _resume(state, file, fingerprint, together)
        _epochs(state, task, training, validation, together, file, fingerprint, callbacks)
    if validation is None or not _average(state, task, validation, together):
        model.load_state_dict(state.best_weights)
    if validation is not None and settings.rescale_outputs:
        found = outputs_of(model, validation, settings.batch_size * 4, together)
        rescale_outputs(model, task, training, found, validation)
    return state.result


def _average(state: TrainingState, task: Task, validation: PathDataset, together: Processes) -> bool:
    """Give the model the average of the best epochs' weights; returns whether it is as good as the best epoch."""
    if len(state.best) < 2:
        return False
    state.model.load_state_dict(state.average_of_best())
    row = _validated(state.model, task, validation, state.settings, together)
    if state.quality(row, task.metric) < state.quality(state.result.history[state.result.best_epoch - 1], task.metric):
        return False
    state.result.averaged_epochs = list(state.best)
    return True


def _validated(
    model: PathModel, task: Task, validation: PathDataset, settings: TrainingSettings, together: Processes
) -> dict[str, Any]:
    """Loss and metrics on the validation data; weights count in the loss."""
    outputs, targets = outputs_of(model, validation, settings.batch_size * 4, together)
    weights = validation.weights
    loss = task.loss(outputs, targets) if weights is None else task.weighted_loss(outputs, targets, weights)[0]
    metrics = task.metrics(outputs, targets)
    return {"validation_loss": float(loss)} | {f"validation_{name}": value for name, value in metrics.items()}


def _resume(state: TrainingState, file: Path, fingerprint: str, together: Processes) -> None:
    """Restore the state from the checkpoint, if there is one; raise `ValueError` if it belongs to another training."""
    kept = together.agree(lambda: load_state(file) if file.exists() else None)
    if kept is None:
        return
    if kept.pop("fingerprint", "") != fingerprint:
        raise cannot_resume("data, targets, path or model differ from the checkpointed run")
    try:
        state.restore(kept)
    except (KeyError, TypeError, AttributeError, RuntimeError) as reason:
        raise cannot_resume(f"{file} was written by another version ({reason})") from reason
    if together.first:  # the run may have been killed between writing its checkpoint and writing its history
        write_history(file.parent / "history.jsonl", state.result.history)


def _epochs(
    state: TrainingState,
    task: Task,
    training: PathDataset,
    validation: PathDataset | None,
    together: Processes,
    file: Path | None,
    fingerprint: str,
    callbacks: Sequence[Callback],
) -> None:
    """Run the remaining epochs, each with validation and checkpoint."""
    settings, result, first = state.settings, state.result, len(state.result.history)
    verbose = settings.verbose if together.first else 0
    with Interrupts() as interrupts, Progress(settings.max_epochs, first, verbose=verbose) as progress:
        try:
            for epoch in range(first + 1, settings.max_epochs + 1):
                if state.stalled:
                    break
                start = time.perf_counter()
                loss = _epoch(state, task, training, epoch, together, interrupts, progress)
                row: dict[str, Any] = {"epoch": epoch, "loss": loss, "rate": state.rate}
                if validation is not None:
                    row |= _validated(state.validated_model, task, validation, settings, together)
                row["seconds"] = time.perf_counter() - start
                with interrupts.held_back():  # so that the state and the checkpoint always agree
                    state.end_epoch(row, task.metric)
                    if file is not None and together.first:
                        file.parent.mkdir(parents=True, exist_ok=True)
                        save_state(file, state.to_dict() | {"fingerprint": fingerprint})
                        write_history(file.parent / "history.jsonl", result.history)
                progress.epoch(row, task.metric)
                answers = [callback(dict(row)) for callback in callbacks] if together.first else []
                # Most functions return None, or something that is not meant as an answer; numpy's True is meant.
                stops = any(isinstance(answer, bool | np.bool_) and bool(answer) for answer in answers)
                stop, asked = together.sum(stops, interrupts.asked)
                if asked:
                    raise KeyboardInterrupt
                if stop:
                    break
        except KeyboardInterrupt:
            if not result.best_epoch:
                raise
            result.interrupted = True


@torch.no_grad()
def outputs_of(
    model: PathModel, data: PathDataset, batch_size: int = 128, together: Processes | None = None
) -> tuple[Float[Tensor, "... outputs"], Float[Tensor, "..."]]:
    """Outputs and targets of all data, one row per series, or one per observation for `per_row` data.

    Targets are empty if the data have none. Several processes compute a part each, and every process gets all results.
    """
    together = together or Processes()
    was_training = model.training
    if was_training:
        model.eval()
    outputs, targets = [], []
    mine = torch.arange(len(data)).tensor_split(together.size)[together.rank]
    for batch in torch.split(mine, batch_size) if len(mine) else ():
        part = data[batch]
        path, y = part if isinstance(part, tuple) else (part, torch.zeros(0))
        outputs.append(model(path, at=_at(data)))
        targets.append(y)
    if was_training:
        model.train()
    parts = together.gather((outputs, targets))
    return torch.cat([x for part, _ in parts for x in part]), torch.cat([y for _, part in parts for y in part])


def _at(data: PathDataset) -> Literal["knots"] | None:
    return "knots" if data.per_row else None


def _epoch(
    state: TrainingState,
    task: Task,
    training: PathDataset,
    epoch: int,
    together: Processes,
    interrupts: Interrupts,
    progress: Progress,
) -> float:
    """One epoch, in an order that depends only on seed and epoch; returns the mean loss.

    Every batch is split among the processes. The mean loss of each part is weighted by its share of the known
    targets (or of their weights), so the gradient is that of the whole batch for any number of processes.
    """
    model, settings = state.model, state.settings
    model.train()
    generator = torch.Generator().manual_seed(settings.seed * 1_000_003 + epoch - 1)
    total, count = 0.0, 0.0
    order = torch.randperm(len(training), generator=generator)
    batches = _number_of_batches(training, settings)
    for number, (part, mine) in enumerate(_batches(training, order, settings.batch_size, together)):
        progress.batch(epoch, number, batches)
        if settings.row_dropout:
            part = drop_rows(part, settings.row_dropout, generator)
        path, targets = part.inputs, part.targets
        assert targets is not None
        if settings.channel_dropout:
            path = drop_channels(path, settings.channel_dropout, generator)
        if settings.channel_jitter:
            path = jitter_channels(path, settings.channel_jitter, generator)
        state.optimizer.zero_grad(set_to_none=True)
        weight = task.weight(targets) if mine else 0.0
        trouble = ""
        try:
            with drawing_from(model, generator):
                outputs, second_loss = outputs_and_second_loss(model, path, part)
            if part.weights is not None and mine:
                loss, weight = task.weighted_loss(outputs, targets, part.weights)
            else:
                loss = task.loss(outputs, targets) if weight else 0.0 * outputs.sum()
            value = float(loss.detach())
        except SolveError as explosion:
            value, trouble = math.nan, explosion.trouble
        bad = not math.isfinite(value)
        value, whole, troubled, asked = together.sum(0.0 if bad else value * weight, weight, bad, interrupts.asked)
        if asked:  # by any process: all must stop at the same batch, or one would wait forever for the others
            raise KeyboardInterrupt
        if troubled:
            _skip(state, path, trouble or "the loss is not a finite number.")
            continue
        if not whole:  # the whole batch has no known target
            continue
        if weight != whole:
            loss = loss * (weight / whole)
        loss = loss + settings.auxiliary_weight / together.size * second_loss
        if settings.weight_penalty:
            norms = sum(parameter.norm() for parameter in model.penalised())
            loss = loss + settings.weight_penalty / together.size * norms
        loss.backward()  # type: ignore[no-untyped-call]
        together.sum_gradients(model)
        if settings.gradient_clip is not None and not _clip(model, settings.gradient_clip):
            _skip(state, path, "the gradient is not finite.")
            continue
        state.result.skipped_in_a_row = 0
        state.step()
        total, count = total + value, count + whole
    return total / count if count else math.nan


def _number_of_batches(data: PathDataset, settings: TrainingSettings) -> int:
    return math.ceil(len(data) / settings.batch_size)


def _batches(data: PathDataset, order: Tensor, size: int, together: Processes) -> Iterator[tuple[PathDataset, bool]]:
    """The part of every batch for this process, and whether the part is not empty.

    An empty part is replaced by one arbitrary series, so that every process runs the same operations. The shuffled
    series of several batches are gathered at once; each batch is then a slice, which is cheap.
    """
    for several in torch.split(order, size * BATCHES_AT_ONCE):
        shares = [together.share(batch) for batch in torch.split(several, size)]
        part = data.subset(torch.cat([batch if len(batch) else several[:1] for batch in shares]))
        start = 0
        for batch in shares:
            stop = start + max(len(batch), 1)
            yield part.subset(slice(start, stop)), len(batch) > 0
            start = stop


@torch.no_grad()
def _clip(model: nn.Module, largest: float) -> bool:
    """Clip the gradient norm in place; returns whether it is finite.

    torch's `clip_grad_norm_` makes more calls, an overhead that matters for small models.
    """
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    norm = float(torch.stack(torch._foreach_norm(gradients)).norm())
    if norm > largest:
        torch._foreach_mul_(gradients, largest / norm)
    return math.isfinite(norm)


def _skip(state: TrainingState, path: Batch, trouble: str) -> None:
    """Count a skipped batch; too many in a row raise `TrainingError`."""
    state.result.skipped_batches += 1
    state.result.skipped_in_a_row += 1
    if state.result.skipped_in_a_row >= state.settings.skipped_in_a_row:
        raise TrainingError(_no_finite_loss(state.result.skipped_in_a_row, path, trouble))


def _no_finite_loss(count: int, path: Batch, trouble: str) -> str:
    ids = path.ids if isinstance(path, IrregularSeries) else path.series.ids
    names = ", ".join(ragged.series_name(ids, i) for i in range(min(len(path), 5)))
    more = ", ..." if len(path) > 5 else ""
    return (
        f"{count} batches in a row had no finite loss; the last one held the series {names}{more}: {trouble} "
        "Lower learning_rate, set gradient_clip=1.0, or scale the data."
    )


def _fingerprint(model: nn.Module, task: Task, *data: PathDataset | None) -> str:
    """Hash of the model and its solver options, the task, the paths and the targets: what a checkpoint belongs to.

    If paths are built batch by batch, only those of the first series are hashed, with the data of all series.
    """
    digest = hashlib.sha256(repr((model, task)).encode())
    for part in (part for part in data if part is not None):
        series = part.series
        of_series = [series.times, series.values, series.offsets, series.static]
        tensors = [*of_series, part.targets, part.weights, part.auxiliary]
        first = part.source if isinstance(part.source, ControlPath) or part.build is None else part.build(series[:8])
        if isinstance(first, ControlPath):
            tensors.append(first.coefficients)
        for tensor in (tensor for tensor in tensors if tensor is not None):
            digest.update(tensor.detach().cpu().contiguous().numpy().data)
    return digest.hexdigest()
