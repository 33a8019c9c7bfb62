"""Files that are whole or not there: one, several, a training's state, its history line by line."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch


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


def save_state(file: Path, state: dict[str, Any]) -> None:
    """Tensors and plain numbers, atomically."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    write_atomically(file, buffer.getvalue())


def load_state(file: Path) -> dict[str, Any]:
    """What `save_state` wrote; runs no code that the file may hold."""
    try:
        state: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as reason:
        raise ValueError(f"{file} is damaged ({type(reason).__name__}); delete it to start anew.") from reason
    return state


def write_history(file: Path, history: list[dict[str, Any]]) -> None:
    """One line of JSON an epoch."""
    write_atomically(file, "".join(json.dumps(row) + "\n" for row in history).encode())
