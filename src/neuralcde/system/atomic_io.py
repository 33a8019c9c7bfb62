"""Atomic writes, of one file or of several together.

New content is written under a temporary name, `.NAME.TOKEN.part`, and renamed when it is complete. The token is random,
because process ids are not unique: in a container the id is often 1. A process locks its temporary files as long as it
lives, so that `tidy` can tell what a killed process left behind from what a running process still needs.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # not a POSIX system: nothing is locked, and nothing is tidied up
    fcntl = None  # type: ignore[assignment]

PART = re.compile(r"\.(.+\.)?[0-9a-f]{16}\.part")
COMPLETE = ".complete"  # a folder of files that are being moved into its parent


def write_durably(file: Path, content: bytes) -> None:
    """Write a file, and return when it is on the disk. Not atomic: meant for files inside a `staged` folder."""
    with file.open("wb") as out:
        out.write(content)
        out.flush()
        os.fsync(out.fileno())


def write_atomically(file: Path, content: bytes, *, mode: int = 0o666) -> None:
    """Write a file so that it has its old content or all of the new content, whenever the process ends.

    `mode` are the permissions of the file, of which the process may withhold some.
    """
    part, descriptor = _new_part(file.parent, f".{file.name}.", functools.partial(Path.touch, mode=mode))
    try:
        write_durably(part, content)
        part.replace(file)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    finally:
        unlock(descriptor)


@contextlib.contextmanager
def staged(folder: Path, *, obsolete: Iterable[str] = ()) -> Iterator[Path]:
    """Yield a temporary folder to write several files into, which then replace those in `folder` together.

    If the process is killed or the body fails before all files are written, `folder` stays as it was. When they are
    written, the temporary folder is renamed to `.complete`. From then on the new files count. The process moves
    them into `folder`; if it is killed between two moves, `tidy` moves the rest. `neuralcde fit` calls `tidy`
    first, and `nc.load` reads the files that `that_counts` names, so both see either the old files or the new ones.
    Other readers may see some of both; the digests in `config.json` reveal it.

    Parameters
    ----------
    folder
        Made if it does not exist.
    obsolete
        Files of `folder` that do not belong to the new ones. They are deleted just before the new files count. A
        kill in between leaves the old files without them, never the new files with them.
    """
    with made(folder):
        part, descriptor = _new_part(folder, ".", Path.mkdir)
        try:
            yield part
            for name in obsolete:
                (folder / name).unlink(missing_ok=True)
            _complete(part, folder)
        finally:
            shutil.rmtree(part, ignore_errors=True)
            unlock(descriptor)


def that_counts(folder: Path, name: str) -> str:
    """Path of a file relative to the folder: in the folder itself, or in `.complete` if it is still to be moved."""
    return f"{COMPLETE}/{name}" if (folder / COMPLETE / name).exists() else name


def tidy(folder: Path) -> None:
    """Finish the moves that a killed process began in a folder, and delete the temporary files that it left there.

    Temporary files of running processes stay. A folder that cannot be written to stays as it is.
    """
    finish_moves(folder)
    for part in [path for path in folder.glob(".*.part") if PART.fullmatch(path.name)]:
        with contextlib.suppress(OSError):  # it is in use, or gone
            descriptor = lock(part)
            if descriptor is not None:
                if part.is_dir():
                    shutil.rmtree(part, ignore_errors=True)
                else:
                    part.unlink(missing_ok=True)
                os.close(descriptor)


def finish_moves(folder: Path) -> None:
    """Finish the moves of `staged` in a folder; a folder that cannot be written to stays as it is."""
    with contextlib.suppress(OSError):
        _move_complete(folder)


@contextlib.contextmanager
def made(folder: Path) -> Iterator[None]:
    """Make a folder and its parents for a context; those that are empty at its end are removed again."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        for path in missing:
            with contextlib.suppress(OSError):  # not empty
                path.rmdir()


def lock(path: Path, flags: int = os.O_RDONLY) -> int | None:
    """Lock a file or folder until the returned descriptor is closed or the process ends.

    Returns
    -------
    int or None
        None where the system or the file system has no locks.

    Raises
    ------
    BlockingIOError
        If another process, or another part of this one, holds the lock.
    FileNotFoundError
        If the file was deleted meanwhile.
    """
    if fcntl is None:
        return None
    descriptor = os.open(path, flags, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(os.fstat(descriptor), path.stat()):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    except (BlockingIOError, FileNotFoundError):
        os.close(descriptor)
        raise
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def unlock(descriptor: int | None) -> None:
    """Release a lock."""
    if descriptor is not None:
        os.close(descriptor)


def _new_part(folder: Path, prefix: str, make: Callable[[Path], None]) -> tuple[Path, int | None]:
    """A new temporary file or folder, locked."""
    while True:
        part = folder / f"{prefix}{secrets.token_hex(8)}.part"
        make(part)
        # `tidy` of another process may lock or delete it before we do: then take another name.
        with contextlib.suppress(BlockingIOError, FileNotFoundError):
            return part, lock(part)


def _complete(part: Path, folder: Path) -> None:
    """Make the files of `part` count: finish the moves of others, rename it to `.complete`, move its files."""
    while True:
        _move_complete(folder)
        try:
            part.replace(folder / COMPLETE)
        except OSError as reason:
            if reason.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        else:
            _move_complete(folder)
            return


def _move_complete(folder: Path) -> None:
    complete = folder / COMPLETE
    if complete.is_symlink() or not complete.is_dir():  # a link could lead to files that are not ours to move
        return
    with contextlib.suppress(FileNotFoundError):  # another process finished them
        for file in sorted(complete.iterdir()):
            with contextlib.suppress(FileNotFoundError):  # another process moved it
                file.replace(folder / file.name)
    with contextlib.suppress(OSError):  # another process removed it, or began the next moves
        complete.rmdir()
