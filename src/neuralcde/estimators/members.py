"""The members of an ensemble: models that differ by their seed and by their validation series."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..contracts import ArgumentError, warn_user
from ..models import PathModel
from ..system import Processes
from ..tasks import Task
from ..train import TrainingSettings, train
from ..train.progress import LINE_EVERY, time_left
from ..train.state import TrainingResult
from .modules import SERIES_FOR_SUMMARIES
from .training_data import TrainingData

CHANNELS_TO_DROP = 10  # from so many channels on, some are dropped in training
MANY_SERIES, MEMBERS_FOR_MANY = 10_000, 2  # with an encoder, one model varies much by its seed
ENGINE_LANES = 16  # series that the engine solves at a time
Callback = Callable[[dict[str, Any]], Any]


@dataclass(frozen=True, eq=False)
class Member:
    """A trained model.

    Parameters
    ----------
    module
        The model, with the weights of its best epoch, or with the average of the best epochs' weights.
    history
        One row per epoch.
    best_epoch
        The epoch with the best validation, counted from 1.
    averaged_epochs
        The epochs whose weights were averaged, the best first; empty if the weights are those of the best epoch.
    interrupted
        Whether Ctrl-C ended the training.
    """

    module: PathModel
    history: list[dict[str, Any]]
    best_epoch: int
    averaged_epochs: list[int]
    interrupted: bool = False

    def __post_init__(self) -> None:
        self.module.eval()  # once: it takes longer than a layer of a prediction

    @classmethod
    def of(cls, module: PathModel, result: TrainingResult) -> Member:
        """A member whose training had this result."""
        return cls(module, result.history, result.best_epoch, result.averaged_epochs, result.interrupted)


@dataclass(frozen=True, eq=False)
class Plan:
    """How a member is to be trained.

    Parameters
    ----------
    module
        The model with its initial weights.
    training, validating
        Positions of its training and its validation series.
    settings
        Training settings, with the seed of the member.
    folder
        Folder for the checkpoint and the history; None to write none.
    resume
        Whether to continue from the checkpoint.
    """

    module: PathModel
    training: NDArray[Any]
    validating: NDArray[Any]
    settings: TrainingSettings
    folder: Path | None
    resume: bool


def train_member(data: TrainingData, plan: Plan, callbacks: Sequence[Callback] = ()) -> TrainingResult:
    """Train a member in place."""
    part = data.part(plan.training, soft=True)
    assert part.targets is not None
    plan.module.fit_inputs(data.prepared(plan.training), per_row=data.per_row)
    plan.module.readout.start_at(data.task.weighted_prior(part.targets, part.weights))
    return train(
        plan.module,
        data.task,
        part,
        data.validation(plan.validating),
        plan.settings,
        folder=plan.folder,
        resume=plan.resume,
        callbacks=callbacks,
        auxiliary=None if data.auxiliary is None else data.auxiliary.task,
    )


def train_members(data: TrainingData, plans: Sequence[Plan], callbacks: Sequence[Callback] = ()) -> list[Member]:
    """Train the members: several in parallel processes where possible, otherwise one after the other.

    Ctrl-C ends the training of all. Members that have completed no epoch are then left out; if none has completed one,
    KeyboardInterrupt is raised.
    """
    from .member_processes import NotPassedError, train_in_processes

    if len(plans) == 1:
        return [Member.of(plans[0].module, train_member(data, plans[0], callbacks))]
    settings = plans[0].settings
    verbose = settings.verbose if Processes.current().first else 0
    progress = MembersProgress(len(plans), settings.max_epochs, data.task, verbose=verbose)
    processes = number_of_processes(len(plans), data.device, callbacks)
    if processes > 1:
        quiet = [replace(plan, settings=replace(plan.settings, verbose=0)) for plan in plans]
        try:
            return train_in_processes(data, quiet, processes, progress)
        except NotPassedError as reason:
            warn_user(f"the members are trained one after the other, not in parallel processes: {reason}.")
    members: list[Member] = []
    with one_thread():  # as in the processes, so that the results are the same
        try:
            for number, plan in enumerate(plans):
                members.append(Member.of(plan.module, train_member(data, plan, callbacks)))
                progress.finished(members[-1], number)
                if members[-1].interrupted:
                    break
        except KeyboardInterrupt:
            if not members:
                raise
            members[-1] = replace(members[-1], interrupted=True)
    return members


def check_callbacks(callbacks: Any) -> None:
    """Refuse callbacks that are not functions: an error after the first epoch would come late."""
    if not isinstance(callbacks, Sequence) or not all(callable(callback) for callback in callbacks):
        raise ArgumentError(f"callbacks must be a list of functions, got {callbacks!r}.", argument="callbacks")


def number_of_processes(members: int, device: Any, callbacks: Sequence[Callback]) -> int:
    """Number of processes to train members in: 1 where they have to be trained in this one.

    That is so with callbacks, which belong to this process; under torchrun and on GPUs, where members would compete;
    and in a process that was itself started to compute in parallel, as by a search with `n_jobs`.
    """
    alone = (
        callbacks
        or Processes.current().size > 1
        or torch.device(device).type != "cpu"
        or multiprocessing.current_process().name != "MainProcess"
        or not sys.executable
    )
    return 1 if alone else min(members, cores())


def cores() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """A context in which torch uses one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class MembersProgress:
    """Shows on standard error how far the members in training are, and a line for each that has finished.

    Parameters
    ----------
    members, epochs
        Number of members, and of epochs of each.
    task
        The task, for the name of its metric.
    verbose
        0 to show nothing.
    """

    def __init__(self, members: int, epochs: int, task: Task, *, verbose: int):
        self.members, self.epochs, self.metric, self.verbose = members, epochs, task.metric, verbose
        self._finished = 0
        self._known: dict[int, int] = {}  # completed epochs of the members in training
        self._begun = self._shown = time.monotonic()

    def finished(self, member: Member, number: int) -> None:
        """Show a member that has finished; members are numbered from 0."""
        self._finished += 1
        self._known.pop(number, None)
        if not self.verbose:
            return
        best, name = member.history[member.best_epoch - 1], f"validation_{self.metric}"
        value = f"validation {self.metric} {best[name]:.4f}" if name in best else f"loss {best['loss']:.4f}"
        done = f"{self._finished}/{self.members} members trained"
        self._print(f"{done}  {value}  epoch {member.best_epoch} of {len(member.history)}")

    def training(self, completed: Callable[[], dict[int, int]]) -> None:
        """Show the epochs that the members in training have completed, if nothing was shown for a while."""
        if not self.verbose or time.monotonic() - self._shown < LINE_EVERY:
            return
        known = completed()
        if known and known != self._known:
            self._known = known
            epochs = (f"member {number + 1} epoch {count}/{self.epochs}" for number, count in sorted(known.items()))
            self._print(", ".join(epochs))

    def _print(self, text: str) -> None:
        """Print a line with the time left at the speed so far; patience may end a training sooner."""
        self._shown = time.monotonic()
        done = self._finished + sum(self._known.values()) / self.epochs
        left = (self._shown - self._begun) / done * (self.members - done)
        print(text + (time_left(left) if left else ""), file=sys.stderr, flush=True)


def number_of_members(members: int | str, series: int, *, encoded: bool) -> int:
    """The number of members to train on so many series, with "auto" replaced by a choice."""
    if isinstance(members, int):
        return members
    return MEMBERS_FOR_MANY if encoded and series >= MANY_SERIES else 1


def member_seed(seed: int, number: int) -> int:
    """The seed of a member, numbered from 0. Training uses it modulo 10**6; members differ there, too."""
    return (seed + number) % (2**31 - 1)


def member_folder(folder: Path | str | None, number: int, members: int) -> Path | None:
    """The folder for the checkpoint of a member, numbered from 0: a folder of its own in an ensemble."""
    if folder is None or members == 1:
        return None if folder is None else Path(folder)
    return Path(folder) / f"member {number + 1}"


def settings_of(
    settings: TrainingSettings, parameters: Mapping[str, Any], data: TrainingData, series: int, seed: int
) -> TrainingSettings:
    """Training settings for so many of the series: the seed, and numbers in place of "auto"."""
    encoded, wide = data.preparation.encoded, data.series.values.shape[1] >= CHANNELS_TO_DROP
    many = encoded and data.preparation.fitted_on >= SERIES_FOR_SUMMARIES
    suited = {
        "batch_size": _batch_size(series),
        "learning_rate": 1e-3 if encoded else 3e-3,
        "weight_decay": 1.0 if many else 0.05,
        "channel_dropout": 0.2 if many and wide else 0.0,
        "patience": int(np.clip(30_000 // max(series, 1), 3, 30)),  # large data overfit after fewer epochs
    }
    chosen: dict[str, Any] = {name: value for name, value in suited.items() if parameters[name] == "auto"}
    return replace(settings, **chosen, seed=seed % 10**6)


def _batch_size(series: int) -> int:
    """A sixtieth of the series, from 8 to 256. From 16 on a multiple of 16: the engine solves 16 series at a time."""
    size = int(np.clip(series // 60, 8, 256))
    return size if size < ENGINE_LANES else size // ENGINE_LANES * ENGINE_LANES
