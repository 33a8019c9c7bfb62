"""Files of results as JSON lines, with one writer at a time; every line is on disk before the next is written."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import Any

Line = dict[str, Any]


def read_lines(file: Path) -> list[Line]:
    """All complete lines of a file; an empty list if there is no file."""
    if not file.exists():
        return []
    return [json.loads(text) for text in file.read_bytes().split(b"\n")[:-1] if text.strip()]


class Lines:
    """Context manager for exclusive writing to a file of results; removes the incomplete last line of a killed run."""

    def __init__(self, file: Path):
        self.file = file

    def __enter__(self) -> Lines:
        self._open()
        return self

    def append(self, line: Line) -> None:
        """Write a line and flush it to disk; reopen the file if it was replaced, as git and editors do."""
        if not (self.file.exists() and os.path.samestat(self.file.stat(), os.fstat(self._handle.fileno()))):
            self._handle.close()
            self._open()
        self._handle.write(json.dumps(line).encode() + b"\n")
        self._handle.flush()
        os.fsync(self._handle.fileno())

    def __exit__(self, *error: object) -> None:
        self._handle.close()

    def _open(self) -> None:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self._handle = self.file.open("a+b")
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._handle.close()
            raise RuntimeError(
                f"another process is writing to {self.file}; wait for it, or choose another folder with --out."
            ) from None
        content = self.file.read_bytes()
        self._handle.truncate(content.rfind(b"\n") + 1)
