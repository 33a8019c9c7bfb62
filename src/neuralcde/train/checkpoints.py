"""Files of a running training: the checkpoint, and the history as JSON lines."""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path
from typing import Any

import torch

from ..contracts import Argument, ArgumentError
from ..system import write_atomically

MAGIC = b"neuralcde checkpoint 3, sha256 "  # 3: weights of several best epochs
LINE = len(MAGIC) + 64 + 1  # 64 hexadecimal digits and a newline


def save_state(file: Path, state: dict[str, Any]) -> None:
    """Write a checkpoint atomically: a first line with the SHA-256 digest of the content, then the content."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    content = buffer.getvalue()
    write_atomically(file, _first_line(content) + content)


def load_state(file: Path) -> dict[str, Any]:
    """Read a checkpoint that `save_state` wrote.

    torch parses the content only if its digest is right, and with `weights_only=True`, so no code from the file is run.

    Raises
    ------
    ValueError
        If the file is damaged, or was written by an earlier version, which wrote no digest.
    """
    whole = file.read_bytes()
    line, content = whole[:LINE], whole[LINE:]
    if not line.startswith(MAGIC):
        raise cannot_resume(f"{file} is damaged, or was written by an earlier version")
    if line != _first_line(content):
        raise cannot_resume(f"{file} is damaged: its checksum does not match its content")
    try:
        state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception as reason:
        raise cannot_resume(f"{file} is damaged ({type(reason).__name__})") from reason
    if not isinstance(state, dict):
        raise cannot_resume(f"{file} is damaged: it does not contain a training state")
    return state


def _first_line(content: bytes) -> bytes:
    return MAGIC + hashlib.sha256(content).hexdigest().encode() + b"\n"


def cannot_resume(*trouble: str | Argument) -> ArgumentError:
    """The error for a checkpoint from which training cannot resume."""
    return ArgumentError(
        "cannot resume: ", *trouble, "; use ", Argument("resume", False, option="--force"), " to start anew."
    )


def write_history(file: Path, history: list[dict[str, Any]]) -> None:
    """Write one line of JSON per epoch."""
    write_atomically(file, "".join(json.dumps(row) + "\n" for row in history).encode())
