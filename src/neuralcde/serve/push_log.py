"""An append-only log of what streams were given, on the disk before it is acknowledged; replayed after a kill."""

from __future__ import annotations

import asyncio
import json
import os
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..system import write_atomically

LOG = "log"


class LogError(Exception):
    """The log cannot be read, or can no longer be written."""


class PushLog:
    """Lines of JSON with a checksum, numbered from 1.

    A line that was acknowledged is on the disk. Lines that arrive while the disk is busy are written together. The
    last line may be incomplete after a kill; it was not acknowledged, and is cut off.

    Parameters
    ----------
    folder
        Folder of the log, which no other process uses.
    """

    def __init__(self, folder: Path):
        self.file = folder / LOG
        self.number = 0  # of the last line
        self.lines = 0  # in the file
        self.seconds = 0.0  # that the last write took
        self.failed: Exception | None = None
        self._waiting: list[tuple[bytes, asyncio.Future[None]]] = []
        self._writing: asyncio.Task[None] | None = None
        self._descriptor: int | None = None

    def replay(self, after: int) -> Iterator[dict[str, Any]]:
        """The entries of the lines with numbers beyond `after`, oldest first; then the log is open for appending."""
        content = self.file.read_bytes() if self.file.exists() else b""
        whole = content.rfind(b"\n") + 1
        lines = content[:whole].splitlines()
        for place, line in enumerate(lines, start=1):
            entry = _entry(line)
            if entry is None or entry["n"] <= self.number:
                raise LogError(
                    f"{self.file}, line {place}: damaged. Restore the file, or move it away to go on without the rows "
                    "in it."
                )
            self.number = entry["n"]
            self.lines += 1
            if entry["n"] > after:
                yield entry
        self.number = max(self.number, after)
        self._descriptor = os.open(self.file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        if whole < len(content):
            os.ftruncate(self._descriptor, whole)
            os.fsync(self._descriptor)

    def append(self, entry: dict[str, Any]) -> asyncio.Future[None]:
        """Add a line; the future is done when it is on the disk."""
        self.number += 1
        text = json.dumps(entry | {"n": self.number}, separators=(",", ":"), allow_nan=False).encode()
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((b"%08x %s\n" % (zlib.crc32(text), text), done))
        if self._writing is None:
            self._writing = asyncio.get_running_loop().create_task(self._write())
        return done

    async def durable(self) -> None:
        """Return when everything that was appended so far is on the disk."""
        if self.failed is not None:
            raise LogError(str(self.failed)) from self.failed
        if self._waiting:
            await asyncio.shield(self._waiting[-1][1])
        elif self._writing is not None:
            await asyncio.shield(self._writing)

    async def _write(self) -> None:
        while self._waiting:
            taken, self._waiting = self._waiting, []
            try:
                started = time.perf_counter()
                await asyncio.to_thread(self._write_now, b"".join(line for line, _ in taken))
                self.seconds = time.perf_counter() - started
            except OSError as reason:  # what was not acknowledged may or may not be there: nothing more is accepted
                self.failed = reason
            self.lines += len(taken)
            for _, done in taken:
                if done.cancelled():
                    continue
                if self.failed is None:
                    done.set_result(None)
                else:
                    done.set_exception(LogError(f"the log cannot be written: {self.failed}"))
        self._writing = None

    def _write_now(self, content: bytes) -> None:
        assert self._descriptor is not None
        if self.failed is not None:
            raise OSError(str(self.failed))
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]
        os.fsync(self._descriptor)

    def restart(self) -> None:
        """Empty the log, after everything in it was saved elsewhere; nothing may be waiting."""
        if self._descriptor is not None:
            os.close(self._descriptor)
        write_atomically(self.file, b"")
        sync_folder(self.file.parent)
        self._descriptor = os.open(self.file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self.lines = 0

    def close(self) -> None:
        """Close the file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def sync_folder(folder: Path) -> None:
    """Return when renames in a folder are on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _entry(line: bytes) -> dict[str, Any] | None:
    """The entry of a line; None if it is damaged."""
    checksum, _, text = line.partition(b" ")
    if checksum != b"%08x" % zlib.crc32(text):
        return None
    try:
        entry = json.loads(text)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) and isinstance(entry.get("n"), int) else None
