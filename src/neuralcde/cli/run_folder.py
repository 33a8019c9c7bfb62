"""Exclusive access to the output folder of a run, and error notes that say what was written to it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from ..system import folder_lock
from .errors import WrongUseError


@contextlib.contextmanager
def run_folder(out: Path, *, resume: bool) -> Iterator[None]:
    """Lock the folder for this run. After Ctrl-C or a disk error, a note on the exception says what was written."""
    if out.exists() and not out.is_dir():
        raise WrongUseError(f"--out {out} is a file; name a folder.")
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(folder_lock(out))
        except ValueError as reason:
            raise WrongUseError(f"--out {reason}") from reason
        except OSError as reason:
            raise WrongUseError(f"--out {out} cannot be written to: {reason.strerror}.") from reason
        model, checkpoint = out / "config.json", out / "training" / "checkpoint.pt"
        before = _stamp(model), _stamp(checkpoint)
        try:
            yield
        except (KeyboardInterrupt, OSError) as reason:
            if _stamp(model) != before[0]:
                reason.add_note(f"The model is written: {out}.")
            elif _stamp(checkpoint) != before[1] or (resume and checkpoint.exists()):
                reason.add_note(
                    "No model was written. The checkpoint is kept: the same command with --resume continues after its "
                    "last epoch."
                )
            elif isinstance(reason, KeyboardInterrupt):
                reason.add_note("Nothing was written.")
            raise


def _stamp(file: Path) -> tuple[int, int] | None:
    """Inode and modification time of a file, which change when it is replaced."""
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns
