"""The states of many streams by id, with the time and a digest of their last rows; saved as safetensors."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Hashable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from safetensors.torch import save as as_safetensors
from torch import Tensor

from ..models import Stepper, StreamState
from .json_shapes import TEXT, WHOLE, Each, check_shape
from .stream_rows import checked_id
from .untrusted_folder import damage_named, parse_tensors

FORMAT = 1
FEWEST = 16  # streams that there is room for at first
TENSORS = {"real": None, "double": torch.float64, "times": torch.float64, "digests": torch.int64}


class StreamTable:
    """The states of streams, one slot per id. Slots of removed streams are used again.

    Parameters
    ----------
    stepper
        What the states are for.

    Attributes
    ----------
    slots : dict
        Slot of each id, in the order of first rows.
    state : StreamState
        One row per slot.
    times : array
        Time of the last row per slot, in the unit of the table; -inf for a free slot.
    digests : array
        Digest of the last row per slot, to recognise the row when it comes again.
    """

    def __init__(self, stepper: Stepper):
        self.slots: dict[Hashable, int] = {}
        self.state = stepper.start(None, FEWEST)
        self.times = np.full(FEWEST, -np.inf)
        self.digests = np.zeros(FEWEST, dtype=np.int64)
        self._stepper = stepper
        self._free: list[int] = []

    def put(
        self,
        slots: int | NDArray[np.int64],
        state: StreamState,
        times: float | NDArray[np.float64],
        digests: int | NDArray[np.int64],
    ) -> None:
        """Replace what is in some slots, or in one."""
        at = slots if isinstance(slots, int) else torch.from_numpy(slots)
        self.state.real[at], self.state.double[at] = state.real.squeeze(0), state.double.squeeze(0)
        self.times[slots], self.digests[slots] = times, digests

    def add(self, names: list[Hashable]) -> list[int]:
        """Slots for new streams. When they run out, their number is doubled."""
        found = [self._free.pop() for _ in range(min(len(self._free), len(names)))]
        start = len(self.slots) + len(self._free) + len(found)  # all slots below are in use or free
        more = len(names) - len(found)
        size = len(self.times)
        if start + more > size:
            room = max(start + more, 2 * size)
            state = self._stepper.start(None, room)
            state.real[:size], state.double[:size] = self.state.real, self.state.double
            self.state = state
            self.times = np.concatenate([self.times, np.full(room - size, -np.inf)])
            self.digests = np.concatenate([self.digests, np.zeros(room - size, dtype=np.int64)])
        found += range(start, start + more)
        self.slots.update(zip(names, found, strict=True))
        return found

    def remove(self, id: Hashable) -> None:
        """Free the slot of a stream."""
        slot = self.slots.pop(id)
        self.state.real[slot], self.state.double[slot] = 0.0, 0.0
        self.times[slot], self.digests[slot] = -np.inf, 0
        self._free.append(slot)

    def snapshot(self, model: str) -> Snapshot:
        """A copy of the states of all streams, of the model with this fingerprint."""
        chosen = np.array(list(self.slots.values()), dtype=np.int64)
        at = torch.from_numpy(chosen)
        tensors = {
            "real": self.state.real[at],
            "double": self.state.double[at],
            "times": torch.from_numpy(self.times[chosen]),
            "digests": torch.from_numpy(self.digests[chosen]),
        }
        return Snapshot(list(self.slots), tensors, model)


class Snapshot(NamedTuple):
    """A copy of the states of streams, in the order of their ids, and the fingerprint of their model."""

    ids: list[Hashable]
    tensors: dict[str, Tensor]
    model: str

    def to_bytes(self, notes: Mapping[str, str] | None = None, more: Mapping[str, Tensor] | None = None) -> bytes:
        """The content of a safetensors file, with notes in its metadata and more float64 numbers, one per stream.

        Metadata has a limited size, which a number for each of a million streams would exceed.
        """
        names = torch.from_numpy(np.frombuffer(json.dumps(self.ids).encode(), dtype=np.uint8).copy())
        about = {"format": FORMAT, "model": self.model, "notes": dict(notes or {})}
        # One entry of metadata, because several have no fixed order.
        return as_safetensors({**self.tensors, **(more or {}), "ids": names}, {"streams": json.dumps(about)})


class Restored(NamedTuple):
    """What a file holds: the states, the notes, and more numbers."""

    table: StreamTable
    notes: dict[str, str]
    more: dict[str, Tensor]


def from_bytes(content: bytes, file: Path, stepper: Stepper, model: str, more: Collection[str] = ()) -> Restored:
    """The states, the notes and `more` numbers in the content of a file, which is named in errors."""
    tensors = parse_tensors(file, content)
    with damage_named(file):
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")]).get("__metadata__", {})
        about = json.loads(header.get("streams", "{}"))
        check_shape(about, {"format": WHOLE, "model": TEXT, "notes": Each(TEXT)})
        if about["format"] != FORMAT or not {*TENSORS, *more, "ids"} <= set(tensors):
            raise ValueError("it does not hold states of streams in this format.")
        if about["model"] != model:
            raise ValueError("its states are those of another model; start new streams.")
        names = [checked_id(name) for name in json.loads(bytes(tensors["ids"].numpy().tobytes()))]
        if len(set(names)) < len(names):
            raise ValueError("an id is there twice.")
        shapes = {"real": (stepper.layout.reals,), "double": (stepper.layout.doubles,)}
        for name, dtype in (TENSORS | dict.fromkeys(more, torch.float64)).items():
            found, wanted = tensors[name], (len(names), *shapes.get(name, ()))
            if tuple(found.shape) != wanted or found.dtype != (dtype or stepper.dtype):
                raise ValueError(f"{name} has shape {tuple(found.shape)} and {found.dtype}, expected {wanted}.")
        if not bool(tensors["double"].isfinite().all()) or not bool((tensors["double"][:, 0] >= 1).all()):
            raise ValueError("double is not made of states.")
        if not bool(tensors["times"].isfinite().all()):
            raise ValueError("times are not finite.")
    table = StreamTable(stepper)
    slots = np.array(table.add(names), dtype=np.int64)
    state = StreamState(tensors["real"], tensors["double"], stepper)
    table.put(slots, state, tensors["times"].numpy(), tensors["digests"].numpy())
    return Restored(table, dict(about["notes"]), {name: tensors[name] for name in more})


def digests_of(rows: NDArray[np.float64]) -> Int[np.ndarray, " rows"]:
    """A number per row that differs for different rows (but for one pair in 2^64)."""
    rows = np.where(np.isnan(rows), np.nan, rows + 0.0)  # one NaN, one zero
    found = (hashlib.blake2b(row.tobytes(), digest_size=8).digest() for row in rows)
    return np.frombuffer(b"".join(found), dtype=np.int64)
