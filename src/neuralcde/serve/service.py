"""What the service does, apart from HTTP: streams with a log, expiry and limits, and predictions for whole series."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import time
import warnings
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..estimators.path_estimator import PathEstimator
from ..estimators.stream_rows import RowReader
from ..estimators.stream_table import Snapshot
from ..estimators.streams import OldTimeError, Streams, UnknownStreamError
from ..series import IrregularSeries, ragged
from ..solve import SolveError
from ..system import write_atomically
from .push_log import LogError, PushLog, sync_folder
from .requests import RefusedError, fields, object_of, stream_id, time_of

SNAPSHOT = "streams.safetensors"


@dataclass(frozen=True)
class Limits:
    """Limits of a service.

    Parameters
    ----------
    body
        Bytes of a request.
    rows
        Rows of a prediction.
    streams
        Number of streams.
    idle_hours
        A stream without a push for so long is forgotten; None for never.
    log_lines
        Lines of the log after which the states are saved and the log begins anew.
    """

    body: int = 8 * 2**20
    rows: int = 100_000
    streams: int = 1_000_000
    idle_hours: float | None = None
    log_lines: int = 100_000


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
        self.reader = RowReader(estimator.preparation_)
        self.log = PushLog(folder)
        self.touched: dict[Hashable, float] = {}  # wall time of the last push of each stream, oldest first
        self.rows = self.repeated = self.expired = 0
        self._far_in_predictions: Counter[str] = Counter()  # changed by the thread of `predict` alone
        self.opened = self._compacting = False

    # ---- start and end ----

    def open(self) -> int:
        """Restore the streams from the folder; gives the number of rows that were replayed."""
        file, number = self.folder / SNAPSHOT, 0
        self.folder.mkdir(parents=True, exist_ok=True)
        if file.exists():
            notes = self.streams.from_bytes(file.read_bytes(), file)
            number = int(notes["number"])
            times = dict(zip(self.streams.ids, json.loads(notes["touched"]), strict=True))
            self.touched = dict(sorted(times.items(), key=lambda item: item[1]))
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
        """Save all states, and delete the lines of the log that they contain. Pushes go on meanwhile."""
        self._compacting = True
        try:
            old = await self.log.turn_over()
            await asyncio.to_thread(self._save, *self._snapshot())
            self.log.drop(old)
        finally:
            self._compacting = False

    def _snapshot(self) -> tuple[Snapshot, int, dict[Hashable, float]]:
        """A copy of all states, the number of the last row in them, and the times of the last pushes."""
        return self.streams.snapshot(), self.log.number, self.touched.copy()

    def _save(self, states: Snapshot, number: int, touched: dict[Hashable, float]) -> None:
        times = [touched.get(id, 0.0) for id in states.ids]
        write_atomically(self.folder / SNAPSHOT, states.to_bytes({"number": str(number), "touched": json.dumps(times)}))
        sync_folder(self.folder)

    def _touch(self, id: Hashable, now: float) -> None:
        self.touched.pop(id, None)
        self.touched[id] = now

    async def compact_if_long(self) -> None:
        """`compact`, if the log has become long."""
        if self.log.lines >= self.limits.log_lines and self.log.failed is None and not self._compacting:
            await self.compact()

    async def close(self) -> None:
        """Save all states."""
        if self.log.failed is None:
            await self.compact()
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
        return {"id": id, "t": t, **self.answer(outputs, whole=False), **({"far": far} if far else {})}

    def peek(self, id: str, at: str | None) -> dict[str, Any]:
        """The prediction of a stream, at its last row or later."""
        id = stream_id(id, "the path")
        t = None if at is None else time_of(at, self.form, "the query")
        try:
            outputs = self.streams.peek(id, t, raw=True)
            t = self.streams.last_time(id) if t is None else t
        except UnknownStreamError as reason:
            raise RefusedError(404, str(reason)) from reason
        except OldTimeError as reason:
            raise RefusedError(409, str(reason)) from reason
        except (ValueError, SolveError) as reason:
            raise RefusedError(422, str(reason)) from reason
        return {"id": id, "t": t, **self.answer(outputs[None], whole=False)}

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

    async def _remove(self, id: Hashable) -> None:
        self.streams.remove(id)
        self.touched.pop(id, None)
        await self.log.append({"op": "remove", "id": id})

    async def expire(self, now: float | None = None) -> int:
        """Forget the streams that were idle for too long; gives their number."""
        if self.limits.idle_hours is None or self.log.failed is not None:
            return 0
        before = (time.time() if now is None else now) - 3600 * self.limits.idle_hours
        idle = []
        for id, touched in self.touched.items():  # oldest first
            if touched >= before:
                break
            idle.append(id)
        written = []
        for id in idle:
            self.streams.remove(id)
            del self.touched[id]
            written.append(self.log.append({"op": "remove", "id": id}))
            self.expired += 1
        if written:
            await asyncio.gather(*written)
        return len(idle)

    # ---- whole series ----

    def predict(self, body: dict[str, Any]) -> dict[str, Any]:
        """Predictions for the series in a body, as the estimator gives them."""
        fields(body, "the body", ("rows",), ("static", "at"))
        series = self.series_of(body)
        asked = body.get("at")
        self._far_in_predictions.update(self.estimator.preparation_.scaler.far_values(series).counts)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of far values, which are counted
            try:
                if asked is None:
                    outputs = self.estimator.outputs(series)
                    if self.estimator.per_row:
                        outputs = outputs[series.offsets[1:] - 1]
                    answers = [self.answer(outputs[k : k + 1], whole=True) for k in range(len(series))]
                    return {"predictions": [{"id": id, **one} for id, one in zip(series.ids, answers, strict=True)]}
                if not isinstance(asked, list) or not 1 <= len(asked) <= 1000:
                    raise RefusedError(422, "at must be a list of 1 to 1000 times.")
                times = [time_of(t, self.form, "at") for t in asked]
                if len(times) * len(series) > self.limits.rows:
                    raise RefusedError(413, f"{len(times)} times for {len(series)} series are too many predictions.")
                over_time = self.estimator.outputs_at(series, times)
            except (TypeError, ValueError, SolveError) as reason:
                raise RefusedError(422, str(reason)) from reason
        found = []
        for k, id in enumerate(series.ids.tolist()):
            for j, t in enumerate(times):
                known = not bool(over_time[k, j].isnan().any())  # else the series had not begun
                found.append({"id": id, "t": t, **(self.answer(over_time[k, j : j + 1], whole=False) if known else {})})
        return {"predictions": found}

    def series_of(self, body: dict[str, Any]) -> IrregularSeries:
        """The series in a body."""
        rows, features = body["rows"], object_of(body, "static", "the body")
        if not isinstance(rows, list) or not rows:
            raise RefusedError(422, "rows must be a list of at least one {id, t, values}.")
        if len(rows) > self.limits.rows:
            raise RefusedError(413, f"{len(rows)} rows; at most {self.limits.rows} are accepted.")
        series: dict[str, dict[float, np.ndarray[Any, Any]]] = {}
        try:
            for place, row in enumerate(rows):
                where = f"rows[{place}]"
                if not isinstance(row, dict):
                    raise RefusedError(422, f"{where} is not an object.")
                fields(row, where, ("id", "t"), ("values",))
                id, t = stream_id(row["id"], where), time_of(row["t"], self.form, where)
                known = series.setdefault(id, {})
                if t in known:
                    raise RefusedError(422, f"{where}: series {id!r} has two rows at {self.form.show(t)}.")
                known[t] = self.reader.values(id, object_of(row, "values", where))
            unknown = [name[:80] for name in features if name not in series]
            if unknown:
                raise RefusedError(422, f"static has features of {unknown[0]!r}, which has no rows.")
            static = [self.reader.static_features(id, object_of(features, id, "static")) for id in series]
        except (TypeError, ValueError) as reason:
            raise RefusedError(422, str(reason)) from reason
        ordered = [sorted(known.items()) for known in series.values()]
        preparation = self.estimator.preparation_
        dtype = getattr(torch, preparation.dtype)
        return dataclasses.replace(
            preparation.template(),
            times=torch.tensor([t for known in ordered for t, _ in known], dtype=torch.float64),
            values=torch.from_numpy(np.stack([values for known in ordered for _, values in known])).to(dtype),
            offsets=ragged.offsets_of(torch.tensor([len(known) for known in ordered])),
            static=torch.from_numpy(np.stack(static)).to(dtype),
            ids=np.array(list(series), dtype=object),
        )

    def answer(self, outputs: Tensor, *, whole: bool) -> dict[str, Any]:
        """The prediction of one case, as in the tables of `neuralcde predict`.

        A calibration that was learnt from whole series holds for these alone.
        """
        if whole or self.estimator.per_row:
            outputs = self.estimator.calibrated(outputs)
        columns = self.estimator.task_.prediction_columns(outputs, "prediction")
        return {name: _plain(values[0]) for name, values in columns.items()}

    def far_values(self) -> Counter[str]:
        """Number of values far outside the training range per channel, in pushes and in `predict`."""
        return self.streams.far_values + Counter(dict(self._far_in_predictions))

    def gauges(self) -> dict[str, float]:
        """Numbers for `/metrics`."""
        return {
            "streams": len(self.streams),
            "log_lines": self.log.lines,
            "log_write_seconds": self.log.seconds,
            "healthy": float(self.log.failed is None),
        }


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
