"""What the service does, apart from HTTP: streams with a log, expiry and limits, and predictions for whole series."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
import time
from collections import Counter
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import torch

from ..estimators.path_estimator import PathEstimator
from ..estimators.stream_table import Snapshot
from ..estimators.streams import OldTimeError, Streams, UnknownStreamError
from ..solve import SolveError
from ..system import write_atomically
from .limits import Limits
from .predictions import Predictions
from .push_log import LogError, PushLog, sync_folder
from .requests import RefusedError, fields, object_of, stream_id, time_in_query, time_of

SNAPSHOT = "streams.safetensors"
EXPIRED_TOGETHER = 200  # streams; for so long no other request is answered
EXPIRED_AT_MOST = 20_000  # streams per call: an end of the service waits for them


class Service:
    """The streams of one estimator, kept in a folder.

    Parameters
    ----------
    estimator
        The fitted estimator.
    folder
        Folder of the log and of the saved states. No other process may use it.
    limits
        Limits on what is accepted.
    """

    def __init__(self, estimator: PathEstimator, folder: Path, limits: Limits | None = None):
        self.estimator, self.folder, self.limits = estimator, folder, limits or Limits()
        self.form = estimator.preparation_.format
        self.streams: Streams = estimator.stream()
        self.predictions = Predictions(estimator, self.limits)
        self.log = PushLog(folder)
        self.touched: dict[Hashable, float] = {}  # wall time of the last push of each stream, oldest first
        self.rows = self.repeated = self.expired = 0
        self.opened = False
        self.save_failed: str | None = None  # why the last compaction did not succeed
        self._compaction = asyncio.Lock()
        self._saving, self._saved = threading.Lock(), -1  # number of the last row in the snapshot on the disk

    # ---- start and end ----

    def open(self) -> int:
        """Restore the streams from the folder; gives the number of rows that were replayed."""
        file, number = self.folder / SNAPSHOT, 0
        self.folder.mkdir(parents=True, exist_ok=True)
        if file.exists():
            notes, more = self.streams.from_bytes(file.read_bytes(), file, more=("touched",))
            number = self._saved = int(notes["number"])
            touched = zip(self.streams.ids, more["touched"].tolist(), strict=True)
            self.touched = dict(sorted(touched, key=lambda item: item[1]))
        count = 0
        for entry in self.log.replay(number):
            if entry["op"] == "remove":
                self.streams.remove(entry["id"])
                self.touched.pop(entry["id"], None)
            else:
                self.streams.add(entry["id"], float(entry["t"]), entry["values"], static=entry["static"])
                self._touch(entry["id"], entry["at"])
            count += 1
        self.streams.far_values.clear()  # those since the start are counted
        if not file.exists():  # it says which model the rows in the log are for
            self._save(*self._snapshot())
        self.opened = True
        return count

    async def compact(self) -> None:
        """Save all states, and delete the lines of the log that they contain. Pushes go on meanwhile.

        It runs to its end although the caller is cancelled, because the thread that saves cannot be stopped either.
        """
        await asyncio.shield(asyncio.create_task(self._compact()))

    async def _compact(self) -> None:
        async with self._compaction:
            try:
                old = await self.log.turn_over()
                await asyncio.to_thread(self._save, *self._snapshot())
                self.log.drop(old)
            except Exception as reason:
                self.save_failed = str(reason) or type(reason).__name__
                raise
            self.save_failed = None

    def _snapshot(self) -> tuple[Snapshot, int, dict[Hashable, float]]:
        """A copy of all states, the number of the last row in them, and the times of the last pushes."""
        return self.streams.snapshot(), self.log.number, self.touched.copy()

    def _save(self, states: Snapshot, number: int, touched: dict[Hashable, float]) -> None:
        """Write a snapshot, unless a later one is on the disk: the lines after it may be gone from the log."""
        times = torch.tensor([touched.get(id, 0.0) for id in states.ids], dtype=torch.float64)
        content = states.to_bytes({"number": str(number)}, {"touched": times})
        with self._saving:
            if number < self._saved:
                return
            write_atomically(self.folder / SNAPSHOT, content, mode=0o600)
            sync_folder(self.folder)
            self._saved = number

    def _touch(self, id: Hashable, now: float) -> None:
        self.touched.pop(id, None)
        self.touched[id] = now

    async def compact_if_long(self) -> None:
        """`compact`, if the log has become long."""
        if self.log.lines >= self.limits.log_lines and self.log.failed is None and not self._compaction.locked():
            await self.compact()

    async def close(self) -> None:
        """Save all states, after a compaction that is under way."""
        try:
            if self.log.failed is None:
                await self.compact()
        finally:
            async with self._compaction:
                with contextlib.suppress(LogError):
                    await self.log.durable()
                self.log.close()

    # ---- streams ----

    async def push(self, id: str, body: dict[str, Any]) -> dict[str, Any]:
        """Add a row to a stream; the answer comes when it is on the disk."""
        fields(body, "the body", ("t",), ("values", "static"))
        id = stream_id(id, "the path")
        t = time_of(body["t"], self.form)
        values, static = object_of(body, "values", "the body"), object_of(body, "static", "the body") or None
        if self.log.failed is not None:
            raise RefusedError(503, "the log cannot be written; rows are no longer accepted.")
        if id not in self.streams and len(self.streams) >= self.limits.streams:
            raise RefusedError(429, f"there are {len(self.streams)} streams, and no more are accepted; delete some.")
        try:
            outputs, far, again = self.streams.add(id, t, values, static=static)
        except OldTimeError as reason:
            raise RefusedError(409, str(reason)) from reason
        except (TypeError, ValueError, SolveError) as reason:
            raise RefusedError(422, str(reason)) from reason
        try:
            if again:
                self.repeated += 1
                await self.log.durable()
            else:
                now = time.time()
                self.rows += 1
                self._touch(id, now)
                await self.log.append(
                    {"op": "push", "id": id, "t": t, "values": values, "static": static, "at": round(now, 3)}
                )
        except LogError as reason:
            raise RefusedError(503, str(reason)) from reason
        return {"id": id, "t": t, **self.predictions.answer(outputs, whole=False), **({"far": far} if far else {})}

    def peek(self, id: str, at: str | None) -> dict[str, Any]:
        """The prediction of a stream, at its last row or later."""
        id = stream_id(id, "the path")
        t = None if at is None else time_in_query(at, self.form)
        try:
            outputs = self.streams.peek(id, t, raw=True)
            t = self.streams.last_time(id) if t is None else t
        except UnknownStreamError as reason:
            raise RefusedError(404, str(reason)) from reason
        except OldTimeError as reason:
            raise RefusedError(409, str(reason)) from reason
        except (ValueError, SolveError) as reason:
            raise RefusedError(422, str(reason)) from reason
        return {"id": id, "t": t, **self.predictions.answer(outputs[None], whole=False)}

    async def remove(self, id: str) -> dict[str, Any]:
        """Forget a stream."""
        id = stream_id(id, "the path")
        if self.log.failed is not None:
            raise RefusedError(503, "the log cannot be written; nothing can be deleted.")
        try:
            await self._remove(id)
        except UnknownStreamError as reason:
            raise RefusedError(404, str(reason)) from reason
        except LogError as reason:
            raise RefusedError(503, str(reason)) from reason
        return {"id": id, "deleted": True}

    def _remove(self, id: Hashable) -> asyncio.Future[None]:
        self.streams.remove(id)
        self.touched.pop(id, None)
        return self.log.append({"op": "remove", "id": id})

    async def expire(self, now: float | None = None) -> int:
        """Forget the streams that were idle for too long; gives their number."""
        if self.limits.idle_hours is None or self.log.failed is not None:
            return 0
        before, count = (time.time() if now is None else now) - 3600 * self.limits.idle_hours, 0
        while count < EXPIRED_AT_MOST:
            oldest = itertools.islice(self.touched.items(), EXPIRED_TOGETHER)
            idle = [id for id, touched in oldest if touched < before]
            if not idle:
                break
            written = [self._remove(id) for id in idle]
            count += len(idle)
            self.expired += len(idle)
            await asyncio.gather(*written)  # pushes come in between
        return count

    # ---- whole series, and numbers ----

    def predict(self, body: dict[str, Any]) -> dict[str, Any]:
        """Predictions for the series in a body; nothing is kept."""
        return self.predictions.predict(body)

    def far_values(self) -> Counter[str]:
        """Number of values far outside the training range per channel, in pushes and in `predict`."""
        return self.streams.far_values + Counter(dict(self.predictions.far_values))

    def gauges(self) -> dict[str, float]:
        """Numbers for `/metrics`."""
        return {
            "streams": len(self.streams),
            "log_lines": self.log.lines,
            "log_write_seconds": self.log.seconds,
            "healthy": int(self.log.failed is None),
            "saving": int(self.save_failed is None),
        }
