"""An append-only log of what streams were given, on the disk before it is acknowledged; replayed after a kill."""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FILE = re.compile(r"log-\d{16}")


class LogError(Exception):
    """The log cannot be read, or can no longer be written."""


class PushLog:
    """Lines of JSON with a checksum, numbered from 1, in files that are named by the number before their first line.

    A line that was acknowledged is on the disk. Lines that arrive while the disk is busy are written together. The
    last line of a file may be incomplete after a kill; it was not acknowledged, and is cut off.

    Parameters
    ----------
    folder
        Folder of the log, which no other process uses.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self.number = 0  # of the last line
        self.lines = 0  # that are kept
        self.seconds = 0.0  # that the last write took
        self.failed: Exception | None = None  # nothing more is accepted
        self._waiting: list[tuple[bytes, asyncio.Future[None]]] = []
        self._latest: asyncio.Future[None] | None = None  # of the last line
        self._writing: asyncio.Task[None] | None = None
        self._turn: asyncio.Future[None] | None = None
        self._descriptor: int | None = None

    def files(self) -> list[Path]:
        """The files of the log, oldest first."""
        return sorted(file for file in self.folder.glob("log-*") if FILE.fullmatch(file.name))

    def replay(self, after: int) -> Iterator[dict[str, Any]]:
        """The entries of the lines with numbers beyond `after`, oldest first; then the log is open for appending."""
        files = self.files()
        for file in files:
            content = file.read_bytes()
            whole = content.rfind(b"\n") + 1
            for place, line in enumerate(content[:whole].splitlines(), start=1):
                entry = _entry(line)
                # Lines may be missing only if a kill lost them after they were saved elsewhere.
                if entry is None or not self.number < entry["n"] <= max(self.number, after) + 1:
                    raise LogError(
                        f"{file}, line {place}: damaged, or lines before it are missing. Restore the file, or move it "
                        "away to go on without the rows in it."
                    )
                self.number = entry["n"]
                self.lines += 1
                if entry["n"] > after:
                    yield entry
            if whole < len(content):
                os.truncate(file, whole)
        self.number = max(self.number, after)
        self._begin_file(self.number)

    def append(self, entry: dict[str, Any]) -> asyncio.Future[None]:
        """Add a line; the future is done when it is on the disk."""
        text = json.dumps(entry | {"n": self.number + 1}, separators=(",", ":"), allow_nan=False).encode()
        self.number += 1  # now, because a number without a line would make the log unreadable
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((b"%08x %s\n" % (zlib.crc32(text), text), done))
        self._latest = done
        self._start_writing()
        return asyncio.shield(done)  # if the request is cancelled, whoever repeats the row still waits for the line

    async def durable(self) -> None:
        """Return when everything that was appended so far is on the disk."""
        if self._latest is not None:  # lines are written in order
            await asyncio.wait([self._latest])
        if self.failed is not None:
            raise LogError(f"the log cannot be written: {self.failed}")

    async def turn_over(self) -> list[Path]:
        """Begin a new file; gives those before it, which may be deleted when the rows in them are saved elsewhere.

        Raises
        ------
        LogError
            If it cannot be begun. The log goes on in the old file.
        """
        self._turn = self._turn or asyncio.get_running_loop().create_future()
        turn = self._turn
        self._start_writing()
        await asyncio.shield(turn)  # others may wait for the same turn
        return self.files()[:-1]

    def drop(self, files: list[Path]) -> None:
        """Delete files of the log."""
        for file in files:
            file.unlink(missing_ok=True)
        self.lines = self.number - _number_of(self.files()[0])

    def close(self) -> None:
        """Close the file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _start_writing(self) -> None:
        if self._writing is None:
            self._writing = asyncio.get_running_loop().create_task(self._write())

    async def _write(self) -> None:
        try:
            while self._waiting or self._turn is not None:
                if self._turn is not None:
                    turn, self._turn = self._turn, None
                    await self._take_turn(turn)
                taken, self._waiting = self._waiting, []
                if taken:
                    await self._write_lines(taken)
        finally:
            self._writing = None

    async def _take_turn(self, turn: asyncio.Future[None]) -> None:
        """Begin a new file for the lines that wait, and those after them."""
        try:
            await asyncio.to_thread(self._begin_file, self.number - len(self._waiting))
        except Exception as reason:  # such as no free descriptor, or a full disk
            if not turn.done():
                turn.set_exception(LogError(f"no new file of the log can be begun: {reason}"))
        else:
            if not turn.done():
                turn.set_result(None)

    async def _write_lines(self, taken: list[tuple[bytes, asyncio.Future[None]]]) -> None:
        """Write lines, and tell those who wait for them."""
        try:
            started = time.perf_counter()
            await asyncio.to_thread(self._write_now, b"".join(line for line, _ in taken))
            self.seconds = time.perf_counter() - started
        except Exception as reason:  # what was not acknowledged may or may not be there: nothing more is accepted
            self.failed = self.failed or reason
        self.lines += len(taken)
        for _, done in taken:
            if done.done():
                continue
            if self.failed is None:
                done.set_result(None)
            else:
                done.set_exception(LogError(f"the log cannot be written: {self.failed}"))

    def _write_now(self, content: bytes) -> None:
        if self.failed is not None:
            raise OSError(str(self.failed))
        if self._descriptor is None:
            raise OSError("it is closed")
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]
        os.fsync(self._descriptor)

    def _begin_file(self, written: int) -> None:
        """Begin the file of the lines after the first `written`. If that fails, the old file stays in use."""
        file = self.folder / f"log-{written:016d}"
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            sync_folder(self.folder)
        except BaseException:
            os.close(descriptor)
            raise
        self.close()
        self._descriptor = descriptor


def sync_folder(folder: Path) -> None:
    """Return when renames in a folder are on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _number_of(file: Path) -> int:
    return int(file.name.removeprefix("log-"))


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
