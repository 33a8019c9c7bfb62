"""Locks on folders, so that one run at a time writes to a folder."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from .atomic_io import lock, made, tidy, unlock

LOCK = ".lock"


@contextlib.contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Lock a folder for a context. It is made if it does not exist, and what killed runs left there is removed.

    The system releases the lock when the process ends, even if it is killed; a lock file left behind does no harm.
    Where the system or the file system has no locks, nothing is locked.

    Raises
    ------
    ValueError
        If another run holds the lock.
    """
    file = folder / LOCK
    with made(folder):
        descriptor = _lock_file(file)
        try:
            tidy(folder)
            yield
        finally:
            file.unlink(missing_ok=True)
            unlock(descriptor)


def _lock_file(file: Path) -> int | None:
    while True:
        try:
            return lock(file, os.O_RDWR | os.O_CREAT)
        except BlockingIOError:
            raise ValueError(
                f"{file.parent} is in use: another run is writing to it. Wait until it ends, or choose another folder."
            ) from None
        except FileNotFoundError:  # its owner deleted it after we opened and before we locked it
            if not file.parent.exists():
                raise
