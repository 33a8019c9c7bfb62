"""Files that are whole or not there: a training's state, and its history line by line."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import torch


def write_atomically(file: Path, content: bytes) -> None:
    """The file has its old content or all of the new one, whenever the process ends."""
    handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with os.fdopen(handle, "wb") as part:
            part.write(content)
            part.flush()
            os.fsync(part.fileno())
        Path(name).replace(file)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def save_state(file: Path, state: dict[str, Any]) -> None:
    """Tensors and plain numbers, atomically."""
    with tempfile.SpooledTemporaryFile() as buffer:
        torch.save(state, buffer)
        buffer.seek(0)
        write_atomically(file, buffer.read())


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
