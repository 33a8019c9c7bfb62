"""Exclusive access to the output folder of a run, and error notes that say what was written to it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from ..system import folder_lock
from .errors import WrongUseError


@contextlib.contextmanager
def run_folder(out: Path, *, resume: bool, force: bool) -> Iterator[None]:
    """Lock the folder for this run, and refuse one with an earlier run unless it is resumed or `force` is true.

    After Ctrl-C or a disk error, a note on the exception says what was written.
    """
    if out.exists() and not out.is_dir():
        raise WrongUseError(f"--out {out} is a file; name a folder.")
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(folder_lock(out))
        except ValueError as reason:
            raise WrongUseError(f"--out {reason}") from reason
        except OSError as reason:
            raise WrongUseError(f"--out {out} cannot be written to: {reason.strerror}.") from reason
        model = out / "config.json"
        before = _stamp(model), _checkpoints(out)
        if (before[0] or before[1]) and not (resume or force):
            raise WrongUseError(
                f"--out {out} holds an earlier run; name another folder, continue the run with --resume, or replace it "
                "with --force."
            )
        try:
            yield
        except (KeyboardInterrupt, OSError) as reason:
            if _stamp(model) != before[0]:
                reason.add_note(f"The model is written: {out}.")
            elif _checkpoints(out) != before[1] or (resume and before[1]):
                reason.add_note(
                    "No model was written. The checkpoint is kept: the same command with --resume continues after its "
                    "last epoch."
                )
            elif isinstance(reason, KeyboardInterrupt):
                reason.add_note("Nothing was written.")
            raise


def _checkpoints(out: Path) -> dict[Path, tuple[int, int] | None]:
    """The stamps of the checkpoints: one, or one per member of an ensemble."""
    folder = out / "training"
    return {file: _stamp(file) for pattern in ("", "*/") for file in folder.glob(f"{pattern}checkpoint.pt")}


def _stamp(file: Path) -> tuple[int, int] | None:
    """Inode and modification time of a file, which change when it is replaced."""
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns
