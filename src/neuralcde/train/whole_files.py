"""Files that are whole or not there: one, or several together."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path


def write_atomically(file: Path, content: bytes) -> None:
    """The file has its old content or all of the new one, whenever the process ends."""
    part = file.with_name(f".{file.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        part.replace(file)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def staged(folder: Path) -> Iterator[Path]:
    """A place to write several files; they go to the folder when all are written, in place of those there, or not at all."""
    new = not folder.exists()
    part = folder / f".{os.getpid()}.part"
    part.mkdir(parents=True)
    try:
        yield part
        for file in sorted(part.iterdir()):
            file.replace(folder / file.name)
    finally:
        shutil.rmtree(part, ignore_errors=True)
        if new and not any(folder.iterdir()):
            folder.rmdir()
