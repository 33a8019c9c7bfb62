"""Train members in parallel processes.

The processes are started as programs, not by `multiprocessing`: that would import the main module again, and a script
without `if __name__ == "__main__"` would start over in every process. Data and models are passed by pickle through a
temporary folder. Classes and functions of the main module are pickled by value.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import joblib
import torch
from torch import Tensor

from ..system import Interrupts, interrupted_by
from ..train.state import TrainingResult
from .members import Member, MembersProgress, Plan, train_member
from .training_data import TrainingData

PROGRAM = "from neuralcde.estimators.member_processes import main; main()"
PAUSE = 0.02  # seconds between two looks at the processes
DATA, STOP = "data", "stop"  # names of files; the processes end when the second one is there


class NotPassedError(Exception):
    """Data or models cannot be passed to a process; the message is the reason."""


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a process hands back.

    Parameters
    ----------
    result, weights
        The result of the training, and the weights of the model; None if there are none.
    unreadable
        Why the process could not read what it was given; empty if it could.
    error
        The error that ended the training.
    """

    result: TrainingResult | None = None
    weights: dict[str, Tensor] | None = None
    unreadable: str = ""
    error: Exception | None = None


def train_in_processes(
    data: TrainingData, plans: Sequence[Plan], processes: int, progress: MembersProgress
) -> list[Member]:
    """Train the members in parallel.

    Parameters
    ----------
    data, plans
        What the members are trained on, and how.
    processes
        Number of processes at a time.
    progress
        Shows how far the members are.

    Raises
    ------
    NotPassedError
        If data or models cannot be passed to a process.
    """
    with tempfile.TemporaryDirectory(prefix="neuralcde-") as name:
        folder = Path(name)
        try:
            (folder / DATA).write_bytes(_pickled(data))
            for number, plan in enumerate(plans):
                (folder / f"plan {number}").write_bytes(_pickled(plan))
        except Exception as reason:  # anything that a user's object may raise
            raise NotPassedError(repr(reason)) from reason
        return _run(folder, plans, processes, progress)


def _run(folder: Path, plans: Sequence[Plan], processes: int, progress: MembersProgress) -> list[Member]:
    members: dict[int, Member] = {}
    running: list[subprocess.Popen[bytes]] = []
    with Interrupts(tell=(folder / STOP).touch):
        try:
            running += [_started(folder, len(plans)) for _ in range(processes)]
            codes: list[int | None] = [None]
            while None in codes:
                codes = [process.poll() for process in running]  # before the files: none is missed
                for number in sorted(set(range(len(plans))) - set(members)):
                    outcome = _outcome(folder / f"outcome {number}")
                    if outcome.unreadable:
                        raise NotPassedError(outcome.unreadable)
                    if outcome.error is not None:
                        raise outcome.error
                    if outcome.result is not None and outcome.weights is not None:
                        plans[number].module.load_state_dict(outcome.weights)
                        members[number] = Member.of(plans[number].module, outcome.result)
                        progress.finished(members[number], number)
                if any(codes):  # a code other than 0 and None
                    raise RuntimeError(
                        f"a process that trained members ended with code {next(filter(None, codes))}, maybe for lack "
                        "of memory. With callbacks, members are trained one after the other in this process: "
                        "fit(..., callbacks=[lambda row: None])."
                    )
                progress.training(lambda: _completed(folder, set(range(len(plans))) - set(members)))
                time.sleep(PAUSE)
        finally:
            for process in running:
                process.kill()
                process.wait()
    if not members:
        raise KeyboardInterrupt
    return [members[number] for number in sorted(members)]


def _completed(folder: Path, training: set[int]) -> dict[int, int]:
    """The number of epochs that each of these members has completed, for those with any."""
    files = {number: folder / f"epochs {number}" for number in training}
    return {number: file.stat().st_size for number, file in files.items() if file.exists()}


def _started(folder: Path, members: int) -> subprocess.Popen[bytes]:
    """Start a process that trains members until there are none left."""
    here = str(Path.cwd())  # also at the end: `neuralcde --import` imports modules from there
    path = [*(entry or here for entry in sys.path), here]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path)}
    command = [sys.executable, "-P", "-c", PROGRAM, str(folder), str(members), str(os.getpid())]
    with _without_ctrl_c():
        return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL)


@contextlib.contextmanager
def _without_ctrl_c() -> Iterator[None]:
    """A context in which new processes are deaf to Ctrl-C: the terminal sends it to them, too, even at their start.

    They inherit the mask of signals. In this process, a Ctrl-C is delivered at the end of the context.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _outcome(file: Path) -> Outcome:
    """What a process has handed back; empty if there is nothing yet."""
    found: Outcome = pickle.loads(file.read_bytes()) if file.exists() else Outcome()
    return found


def main() -> None:
    """Train members in this process; the arguments are the folder, the number of members and the parent's id."""
    folder, members, parent = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(1)

    def asked() -> bool:
        return os.getppid() != parent or (folder / STOP).exists()

    with interrupted_by(asked):
        try:
            data: TrainingData = pickle.loads((folder / DATA).read_bytes())
        except Exception as reason:  # e.g. a module that only the parent can import
            _hand_back(folder, 0, Outcome(unreadable=repr(reason)))
            return
        for number in range(members):
            mine = folder / f"taken {number}"
            try:
                (folder / f"plan {number}").rename(mine)
            except FileNotFoundError:  # another process has taken it
                continue
            if asked():
                return
            _hand_back(folder, number, _trained(data, mine, folder / f"epochs {number}"))


def _trained(data: TrainingData, file: Path, epochs: Path) -> Outcome:
    """Train a member. The file `epochs` gets one byte per epoch, so that its size is their number at any time."""

    def note(row: dict[str, Any]) -> None:
        with epochs.open("ab") as counted:
            counted.write(bytes(row["epoch"] - epochs.stat().st_size))

    try:
        plan: Plan = pickle.loads(file.read_bytes())
    except Exception as reason:
        return Outcome(unreadable=repr(reason))
    try:
        result = train_member(data, plan, [note])
    except KeyboardInterrupt:  # before the end of the first epoch
        return Outcome()
    except Exception as reason:
        return Outcome(error=_as_sent(reason))
    return Outcome(result, {name: value.detach().cpu() for name, value in plan.module.state_dict().items()})


def _hand_back(folder: Path, number: int, outcome: Outcome) -> None:
    """Write an outcome, so that the parent sees all of it or nothing."""
    with tempfile.NamedTemporaryFile(dir=folder, delete=False) as part:
        part.write(_pickled(outcome))
    Path(part.name).rename(folder / f"outcome {number}")


def _as_sent(error: Exception) -> Exception:
    """The error, or one with its message if it does not survive pickling."""
    try:
        found = pickle.loads(_pickled(error))
        same = type(found) is type(error) and str(found) == str(error)
    except Exception:
        same = False
    return error if same else RuntimeError(f"{type(error).__name__}: {error}")


def _pickled(value: Any) -> bytes:
    """A pickle that holds the classes and functions of the main module by value."""
    return pickle.dumps(joblib.wrap_non_picklable_objects(value, keep_wrapper=False))
