"""What a training leaves on the disk as it goes: its state, and its history line by line."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import torch

from .whole_files import write_atomically


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
