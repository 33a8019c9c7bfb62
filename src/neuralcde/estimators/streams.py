"""Streams: predictions of a fitted estimator, one observation at a time."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Hashable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from safetensors.torch import save as as_safetensors
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from ..contracts import ArgumentError
from ..models import Stepper, StreamState
from ..system import write_atomically
from .boosting import features_of_statistics
from .ensembles import average
from .fitted_estimator import FittedEstimator
from .json_shapes import TEXT, WHOLE, Each, check_shape
from .stream_rows import RowReader, checked_id
from .untrusted_folder import LARGEST_TENSORS, damage_named, parse_tensors, read_file

FORMAT = 1
FEWEST = 16  # streams that there is room for at first
TENSORS = {"real": None, "double": torch.float64, "times": torch.float64, "digests": torch.int64}


class OldTimeError(ArgumentError):
    """A row, or a look, at a time that a stream has passed."""


class UnknownStreamError(ArgumentError):
    """There is no stream with this id."""


class Streams:
    """Many streams of rows, each with a prediction that follows them.

    Made by `estimator.stream()`. After the rows of a series, the prediction is the one for the series. Not safe for
    use by several threads at once.

    Parameters
    ----------
    estimator
        A fitted estimator on the CPU. Its models must be causal, see `docs/streaming.md`.
    """

    def __init__(self, estimator: FittedEstimator):
        check_is_fitted(estimator, "members_")
        self.estimator, preparation = estimator, estimator.preparation_
        self._stepper = Stepper(
            [member.module for member in estimator.members_],
            scheme=preparation.scheme,
            counts="per_channel" if preparation.counts else None,
            scales=preparation.scaler.channel_scales_,
            scaling=preparation.row_scaling(),
        )
        self._reader = RowReader(preparation)
        self._slots: dict[Hashable, int] = {}
        self._free: list[int] = []
        unknown = torch.full((1, len(preparation.scaler.static_names_in_)), torch.nan, dtype=torch.float64)
        self._unknown = preparation.static(unknown)
        self._empty = self._stepper.start(self._unknown)
        self._state = self._stepper.start(None, FEWEST)
        self._times = np.full(FEWEST, -np.inf)  # of the last rows, in the unit of the table
        self._digests = np.zeros(FEWEST, dtype=np.int64)  # of the last rows, to recognise them when they come again

    def __len__(self) -> int:
        return len(self._slots)

    def __contains__(self, id: object) -> bool:
        return id in self._slots

    @property
    def ids(self) -> list[Hashable]:
        """The ids of all streams, in the order of their first rows."""
        return list(self._slots)

    def last_time(self, id: Hashable) -> float:
        """The time of the last row of a stream, as a number in the unit of the table."""
        return float(self._times[self._slot(id)])

    @property
    def empty_state(self) -> StreamState:
        """The state of one stream without rows, whose static features are unknown."""
        return self._empty

    def push(
        self,
        id: Hashable,
        t: Any,
        values: Mapping[str, Any] | None = None,
        *,
        static: Mapping[str, Any] | None = None,
        raw: bool = False,
    ) -> Any:
        """Add a row to a stream, and give the prediction after it.

        Parameters
        ----------
        id
            The stream, a number or text; a new id starts one.
        t
            Time of the row, later than the last one. The last row may be repeated: it counts once.
        values
            What was observed, {channel: value}, in the columns of the training table. What is left out or None was not
            observed; `{}` records a row without observations.
        static
            Static features, {column: value}, with the first row of the stream.
        raw
            Whether to give the raw outputs, as a tensor.

        Returns
        -------
        array or float
            What `predict_proba_at` or `predict_at` gives at this time.

        Raises
        ------
        OldTimeError
            If the row is not later than the last one, and not the last one again.
        ValueError
            If the row does not fit the training table. The message names the stream, which stays as it was.
        """
        id = checked_id(id)
        time = self._reader.time(id, t)
        row = self._reader.values(id, {} if values is None else values)
        slot = self._slots.get(id)
        features = None if static is None else self._static(id, static)
        digest = _digest(row)
        if slot is not None and time <= self._times[slot]:
            if time == self._times[slot] and digest == self._digests[slot] and self._same_static(slot, features):
                return self._decoded(self._outputs(self._state[slot : slot + 1]), raw)[0]
            raise OldTimeError(self._too_late(id, slot, time), argument="t")
        if slot is not None and not self._same_static(slot, features):
            raise ArgumentError(
                f"stream {id!r} has other static features; they are given with the first row.", argument="static"
            )
        before = self._empty if slot is None else self._state[slot : slot + 1]
        if slot is None and features is not None:
            before = self._stepper.start(features, 1)
        after = self._stepper.update(before, np.array([time]), row[None])
        outputs = self._outputs(after)
        self._check_finite(outputs, [id])
        slot = self._new_slots([id])[0] if slot is None else slot
        self._state.real[slot], self._state.double[slot] = after.real[0], after.double[0]
        self._times[slot], self._digests[slot] = time, digest
        return self._decoded(outputs, raw)[0]

    def peek(self, id: Hashable, t: Any = None, *, raw: bool = False) -> Any:
        """The prediction at a time, as the stream is known now; the stream does not change.

        It is the prediction for `series.until(t)`.

        Parameters
        ----------
        id
            The stream.
        t
            The time of the last row, or a later one; None for that of the last row.
        raw
            Whether to give the raw outputs, as a tensor.
        """
        slot = self._slot(id)
        time = float(self._times[slot]) if t is None else self._reader.time(id, t)
        state = self._state[slot : slot + 1]
        if time < self._times[slot]:
            raise OldTimeError(self._too_late(id, slot, time), argument="t")
        if time > self._times[slot]:
            row = np.full((1, self._reader.channels.size), np.nan)
            state = self._stepper.update(state, np.array([time]), row)
        outputs = self._outputs(state)
        self._check_finite(outputs, [id])
        return self._decoded(outputs, raw)[0]

    def push_many(
        self, ids: Iterable[Hashable], times: Any, values: Any, *, static: Any = None, predict: bool = True
    ) -> NDArray[Any] | None:
        """Add many rows at once, at most one per stream.

        Parameters
        ----------
        ids
            One id per row.
        times
            One time per row.
        values
            Array (rows, channels) in the order of the channels of the training series, NaN where nothing was observed.
        static
            Array (rows, static features), used for new streams; None if unknown.
        predict
            Whether to compute predictions.

        Returns
        -------
        array or None
            One prediction per row, like `push`.

        Raises
        ------
        ValueError
            If a row is refused. Nothing was changed then, unless a prediction is not finite: that is noticed last.
        """
        names = [checked_id(id) for id in ids]
        rows = np.ascontiguousarray(values, dtype=np.float64)
        given = self._reader.format.numbers(times)
        if rows.shape != (len(names), self._reader.channels.size) or given.shape != (len(names),):
            raise ArgumentError(
                f"values have shape {rows.shape} and times {given.shape} for {len(names)} ids; expected "
                f"({len(names)}, {self._reader.channels.size}) and ({len(names)},).",
                argument="values",
            )
        if len(set(names)) < len(names):
            raise ArgumentError("ids holds a stream twice; push its rows one after the other.", argument="ids")
        if not np.isfinite(given).all() or (np.abs(rows) > self._reader.largest).any():
            raise ArgumentError("times and values must be finite, or NaN for values not observed.", argument="values")
        known = np.array([self._slots.get(name, -1) for name in names], dtype=np.int64)
        late = (known >= 0) & (given <= self._times[known])
        digests = _digests(rows)
        again = late & (given == self._times[known]) & (digests == self._digests[known])
        if (late & ~again).any():
            place = int((late & ~again).argmax())
            raise OldTimeError(self._too_late(names[place], int(known[place]), float(given[place])), argument="times")
        features = None if static is None else torch.as_tensor(np.asarray(static, dtype=np.float64))
        fresh = np.flatnonzero(known < 0)
        if len(fresh):
            prepared = self._unknown.expand(len(fresh), -1)
            if features is not None:
                prepared = self.estimator.preparation_.static(features[torch.from_numpy(fresh)])
            started = self._stepper.start(prepared, len(fresh))
            slots = self._new_slots([names[place] for place in fresh])
            self._state.real[slots], self._state.double[slots] = started.real, started.double
            known[fresh] = slots
        moving = np.flatnonzero(~again)
        at = torch.from_numpy(known)
        before = self._state[at]
        if len(moving):
            part = before if len(moving) == len(names) else before[torch.from_numpy(moving)]
            after = self._stepper.update(part, given[moving], rows[moving])
            self._state.real[at[moving]], self._state.double[at[moving]] = after.real, after.double
            self._times[known[moving]], self._digests[known[moving]] = given[moving], digests[moving]
            before = after if len(moving) == len(names) else self._state[at]
        if not predict:
            return None
        outputs = self._outputs(before)
        self._check_finite(outputs, names)
        return self.estimator.predictions_of(outputs)

    def remove(self, id: Hashable) -> None:
        """Forget a stream."""
        slot = self._slot(id)
        del self._slots[id]
        self._state.real[slot], self._state.double[slot] = 0.0, 0.0
        self._times[slot], self._digests[slot] = -np.inf, 0
        self._free.append(slot)

    # ---- saving ----

    def save(self, file: str | Path) -> None:
        """Write the states of all streams into one safetensors file, atomically."""
        write_atomically(Path(file), self.to_bytes())

    def to_bytes(self, notes: Mapping[str, str] | None = None) -> bytes:
        """The states of all streams as the content of a safetensors file, with notes in its metadata."""
        chosen = np.array(list(self._slots.values()), dtype=np.int64)
        at = torch.from_numpy(chosen)
        names = np.frombuffer(json.dumps(list(self._slots)).encode(), dtype=np.uint8).copy()
        tensors = {
            "real": self._state.real[at].contiguous(),
            "double": self._state.double[at].contiguous(),
            "times": torch.from_numpy(self._times[chosen]),
            "digests": torch.from_numpy(self._digests[chosen]),
            "ids": torch.from_numpy(names),
        }
        about = {"format": FORMAT, "model": self.fingerprint, "notes": dict(notes or {})}
        return as_safetensors(tensors, {"streams": json.dumps(about)})  # one entry: several have no fixed order

    def load(self, file: str | Path) -> None:
        """Replace all streams by those of a file that `save` wrote, of the same model.

        Raises
        ------
        FileNotFoundError
            If there is no such file.
        ValueError
            If it is damaged, or of another model.
        """
        file = Path(file)
        self.from_bytes(read_file(file.parent, file.name, LARGEST_TENSORS, missing="there are no states."), file)

    def from_bytes(self, content: bytes, file: Path = Path("states")) -> dict[str, str]:
        """Like `load`, and give the notes; `file` is named in errors."""
        tensors = parse_tensors(file, content)
        with damage_named(file):
            header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")]).get("__metadata__", {})
            about = json.loads(header.get("streams", "{}"))
            check_shape(about, {"format": WHOLE, "model": TEXT, "notes": Each(TEXT)})
            if about["format"] != FORMAT or set(tensors) != {*TENSORS, "ids"}:
                raise ValueError("it does not hold states of streams in this format.")
            if about["model"] != self.fingerprint:
                raise ValueError("its states are those of another model; start new streams.")
            names = [checked_id(name) for name in json.loads(bytes(tensors["ids"].numpy().tobytes()))]
            if len(set(names)) < len(names):
                raise ValueError("an id is there twice.")
            shapes = {"real": (self._stepper.layout.reals,), "double": (self._stepper.layout.doubles,)}
            for name, dtype in TENSORS.items():
                found, wanted = tensors[name], (len(names), *shapes.get(name, ()))
                if tuple(found.shape) != wanted or found.dtype != (dtype or self._stepper.dtype):
                    raise ValueError(f"{name} has shape {tuple(found.shape)} and {found.dtype}, expected {wanted}.")
            if not bool(tensors["double"].isfinite().all()) or not bool((tensors["double"][:, 0] >= 1).all()):
                raise ValueError("double is not made of states.")
            if not bool(tensors["times"].isfinite().all()):
                raise ValueError("times are not finite.")
        self._slots, self._free = {}, []
        self._state, self._times = self._stepper.start(None, FEWEST), np.full(FEWEST, -np.inf)
        self._digests = np.zeros(FEWEST, dtype=np.int64)
        slots = self._new_slots(names)
        self._state.real[slots], self._state.double[slots] = tensors["real"], tensors["double"]
        self._times[slots], self._digests[slots] = tensors["times"].numpy(), tensors["digests"].numpy()
        return dict(about["notes"])

    @functools.cached_property
    def fingerprint(self) -> str:
        """A digest of the model: its weights and its preparation."""
        digest = hashlib.sha256(json.dumps(self.estimator.preparation_.to_state(), sort_keys=True).encode())
        trees = self.estimator.trees_
        parts = [member.module.state_dict() for member in self.estimator.members_]
        for tensors in [*parts, {} if trees is None else trees.to_tensors()]:
            for name, value in tensors.items():
                digest.update(name.encode())
                digest.update(value.detach().cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()

    # ---- parts ----

    def _slot(self, id: Hashable) -> int:
        slot = self._slots.get(id)
        if slot is None:
            raise UnknownStreamError(f"there is no stream {id!r}; push its first row.", argument="id")
        return slot

    def _new_slots(self, names: list[Hashable]) -> list[int]:
        """Places for new streams; there is room for twice as many as before when it runs out."""
        found = [self._free.pop() for _ in range(min(len(self._free), len(names)))]
        start = len(self._slots) + len(self._free) + len(found)  # all places below are in use or free
        more = len(names) - len(found)
        size = len(self._times)
        if start + more > size:
            room = max(start + more, 2 * size) - size
            empty = self._stepper.start(None, room)
            self._state = StreamState.cat([self._state, empty])
            self._times = np.concatenate([self._times, np.full(room, -np.inf)])
            self._digests = np.concatenate([self._digests, np.zeros(room, dtype=np.int64)])
        found += range(start, start + more)
        self._slots.update(zip(names, found, strict=True))
        return found

    def _static(self, id: Hashable, given: Mapping[str, Any]) -> Float[Tensor, "1 static"]:
        found = torch.from_numpy(self._reader.static_features(id, given)[None])
        return self.estimator.preparation_.static(found)

    def _same_static(self, slot: int, features: Tensor | None) -> bool:
        if features is None:
            return True
        known = self._stepper.layout.static_features(self._state.real[slot : slot + 1])
        return torch.equal(known.nan_to_num(0.0), features.to(known).nan_to_num(0.0))

    def _outputs(self, state: StreamState) -> Float[Tensor, "streams outputs"]:
        """The outputs of the ensemble."""
        found = self._stepper.outputs(state)
        if self.estimator.trees_ is not None:
            statistics = self._stepper.layout.statistics(state.real, state.double)
            static = self._stepper.layout.static_features(state.real)
            features = features_of_statistics(self.estimator.preparation_, statistics, static)
            found = torch.cat([found, self.estimator.trees_(features).to(found.dtype)[None]])
        return average(found, boosted=self.estimator.trees_ is not None)

    def _decoded(self, outputs: Float[Tensor, "streams outputs"], raw: bool = False) -> Any:
        return outputs if raw else self.estimator.predictions_of(outputs)

    def _check_finite(self, outputs: Tensor, names: list[Hashable]) -> None:
        if bool(outputs.isfinite().all()):
            return
        wrong = (~outputs.isfinite().all(1)).nonzero()[:, 0].tolist()
        raise ArgumentError(
            f"the model's output for stream {names[wrong[0]]!r} is not finite ({len(wrong)} of {len(names)} streams). "
            "Look for values far outside the range of the training series.",
            argument="values",
        )

    def _too_late(self, id: Hashable, slot: int, time: float) -> str:
        form = self._reader.format
        return (
            f"stream {id!r} has a row at {form.time}={form.show(float(self._times[slot]))} already, and times must "
            f"increase: {form.time}={form.show(time)} is not later."
        )


def _digest(row: NDArray[np.float64]) -> int:
    return int(_digests(row[None])[0])


def _digests(rows: NDArray[np.float64]) -> Int[np.ndarray, " rows"]:
    """A number per row that differs for different rows (but for one pair in 2^64)."""
    rows = np.where(np.isnan(rows), np.nan, rows + 0.0)  # one NaN, one zero
    found = (hashlib.blake2b(row.tobytes(), digest_size=8).digest() for row in rows)
    return np.frombuffer(b"".join(found), dtype=np.int64)
