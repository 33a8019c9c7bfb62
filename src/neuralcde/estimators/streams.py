"""Streams: predictions of a fitted estimator, one observation at a time."""

from __future__ import annotations

import functools
import sys
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from ..contracts import ArgumentError, warn_user
from ..models import Stepper, StreamState
from ..series import FarValueWarning
from ..system import write_atomically
from .boosting import features_of_statistics
from .ensembles import average
from .fingerprint import fingerprint_of
from .fitted_estimator import FittedEstimator
from .stream_rows import RowReader, Values, checked_id
from .stream_table import Snapshot, StreamTable, digests_of, from_bytes
from .untrusted_folder import read_file

ANY_SIZE = sys.maxsize  # bytes: the states are the user's own, and a million streams take gigabytes


class OldTimeError(ArgumentError):
    """A row, or a look, at a time that a stream has passed."""


class UnknownStreamError(ArgumentError):
    """There is no stream with this id."""


class Added(NamedTuple):
    """What `Streams.add` gives: the raw outputs (1, outputs), the values far outside the training range, and whether
    the row was there already.
    """

    outputs: Float[Tensor, "1 outputs"]
    far: dict[str, float]
    again: bool


class Streams:
    """Many streams of rows, each with a prediction that follows them.

    Made by `estimator.stream()`. After the rows of a series, the prediction is the one for the series. Not safe for
    use by several threads at once.

    Parameters
    ----------
    estimator
        A fitted estimator on the CPU. Its models must be causal, see `docs/streaming.md`.

    Attributes
    ----------
    far_values : Counter
        Number of values far outside the training range so far, per channel and static feature.
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
        self.far_values: Counter[str] = Counter()
        self._reader = RowReader(preparation)
        self._table = StreamTable(self._stepper)
        unknown = torch.full((1, len(preparation.scaler.static_names_in_)), torch.nan, dtype=torch.float64)
        self._unknown = preparation.static(unknown)
        self._empty = self._stepper.start(self._unknown)

    def __len__(self) -> int:
        return len(self._table.slots)

    def __contains__(self, id: object) -> bool:
        return id in self._table.slots

    @property
    def ids(self) -> list[Hashable]:
        """The ids of all streams, in the order of their first rows."""
        return list(self._table.slots)

    def last_time(self, id: Hashable) -> float:
        """The time of the last row of a stream, as a number in the unit of the table."""
        return float(self._table.times[self._slot(id)])

    def start(self, static: Mapping[str, Any] | None = None) -> StreamState:
        """The state of one stream without rows, from which the exported step starts.

        Parameters
        ----------
        static
            Static features, {column: value}; None if they are unknown.
        """
        return self._empty if static is None else self._stepper.start(self._static("start", static)[0], 1)

    def push(
        self,
        id: Hashable,
        t: Any,
        values: Mapping[str, Any] | None = None,
        *,
        static: Mapping[str, Any] | None = None,
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
        added = self.add(id, t, values, static=static)
        if added.far and not added.again:
            self._warn_of_far_values(id, next(iter(added.far.items())), len(added.far))
        return self.estimator.predictions_of(added.outputs)[0]

    def add(
        self,
        id: Hashable,
        t: Any,
        values: Mapping[str, Any] | None = None,
        *,
        static: Mapping[str, Any] | None = None,
    ) -> Added:
        """Add a row like `push`; gives the raw outputs and the far values, without a warning of these."""
        id = checked_id(id)
        time = self._reader.time(id, t)
        row = self._reader.values(id, {} if values is None else values)
        table = self._table
        slot = table.slots.get(id)
        features, far = (None, {}) if static is None else self._static(id, static)
        far = (far if slot is None else {}) | self._reader.channels.far(row)
        digest = int(digests_of(row[None])[0])
        if slot is not None and time <= table.times[slot]:
            if time == table.times[slot] and digest == table.digests[slot] and self._same_static(slot, features):
                return Added(self._outputs(table.state[slot : slot + 1]), far, True)
            raise OldTimeError(self._too_late(id, slot, time), argument="t")
        if slot is not None and not self._same_static(slot, features):
            raise ArgumentError(
                f"stream {id!r} has other static features; they are given with the first row.", argument="static"
            )
        before = self._empty if slot is None else table.state[slot : slot + 1]
        if slot is None and features is not None:
            before = self._stepper.start(features, 1)
        after = self._stepper.update(before, np.array([time]), row[None])
        outputs = self._outputs(after)
        self._check_states([id], after)
        self._check_outputs([id], outputs)
        table.put(table.add([id])[0] if slot is None else slot, after, time, digest)
        self.far_values.update(far.keys())
        return Added(outputs, far, False)

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
        last = float(self._table.times[slot])
        time = last if t is None else self._reader.time(id, t)
        state = self._table.state[slot : slot + 1]
        if time < last:
            raise OldTimeError(self._too_late(id, slot, time), argument="t")
        if time > last:
            row = np.full((1, self._reader.channels.size), np.nan)
            state = self._stepper.update(state, np.array([time]), row)
        outputs = self._outputs(state)
        self._check_outputs([id], outputs)
        return outputs[0] if raw else self.estimator.predictions_of(outputs)[0]

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
            If a row is refused, or a prediction is not finite. Nothing was changed then.
        """
        names, given, rows = self._reader.many(ids, times, values)
        features = None if static is None else self._reader.many_static(len(names), static)
        table = self._table
        known = np.array([table.slots.get(name, -1) for name in names], dtype=np.int64)
        late = (known >= 0) & (given <= table.times[known])
        digests = digests_of(rows)
        again = late & (given == table.times[known]) & (digests == table.digests[known])
        if (late & ~again).any():
            place = int((late & ~again).argmax())
            raise OldTimeError(self._too_late(names[place], int(known[place]), float(given[place])), argument="times")
        fresh, moving = np.flatnonzero(known < 0), np.flatnonzero(~again)
        state = table.state[torch.from_numpy(known)]  # a copy, in which new streams are replaced at once
        if len(fresh):
            started = self._stepper.start(self._many_static(features, fresh), len(fresh))
            state.real[fresh], state.double[fresh] = started.real, started.double
        if len(moving) == len(names):
            state = after = self._stepper.update(state, given, rows)
        else:
            after = self._stepper.update(state[torch.from_numpy(moving)], given[moving], rows[moving])
            state.real[moving], state.double[moving] = after.real, after.double
        self._check_finite(
            [names[place] for place in moving], "state", self._stepper.layout.finite(after.real, after.double)
        )
        outputs = self._outputs(state) if predict else None
        if outputs is not None:
            self._check_outputs(names, outputs)
        known[fresh] = table.add([names[place] for place in fresh])
        table.put(known[moving], after, given[moving], digests[moving])
        self._note_far_values([names[place] for place in moving], rows[moving])
        return None if outputs is None else self.estimator.predictions_of(outputs)

    def remove(self, id: Hashable) -> None:
        """Forget a stream."""
        self._slot(id)
        self._table.remove(id)

    # ---- saving ----

    def save(self, file: str | Path) -> None:
        """Write the states of all streams into one safetensors file, atomically."""
        write_atomically(Path(file), self.to_bytes())

    def snapshot(self) -> Snapshot:
        """A copy of all states, which can be written while rows are pushed."""
        return self._table.snapshot(self.fingerprint)

    def to_bytes(self) -> bytes:
        """The states of all streams as the content of a safetensors file."""
        return self.snapshot().to_bytes()

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
        self.from_bytes(read_file(file.parent, file.name, ANY_SIZE, missing="there are no states."), file)

    def from_bytes(
        self, content: bytes, file: Path = Path("states"), *, more: Collection[str] = ()
    ) -> tuple[dict[str, str], dict[str, Tensor]]:
        """Like `load`, and give the notes and `more` numbers per stream; `file` is named in errors."""
        self._table, notes, found = from_bytes(content, file, self._stepper, self.fingerprint, more)
        return notes, found

    @functools.cached_property
    def fingerprint(self) -> str:
        """A digest of the model: its weights and its preparation."""
        return fingerprint_of(self.estimator)

    # ---- parts ----

    def _slot(self, id: Hashable) -> int:
        slot = self._table.slots.get(checked_id(id))
        if slot is None:
            raise UnknownStreamError(f"there is no stream {id!r}; push its first row.", argument="id")
        return slot

    def _static(self, id: Hashable, given: Mapping[str, Any]) -> tuple[Float[Tensor, "1 static"], dict[str, float]]:
        """The static features as models get them, and the far values among them."""
        row = self._reader.static_features(id, given)
        return self.estimator.preparation_.static(torch.from_numpy(row[None])), self._reader.static.far(row)

    def _many_static(self, static: Values | None, fresh: NDArray[np.int64]) -> Float[Tensor, "streams static"]:
        """The static features of these rows of `push_many`."""
        if static is None:
            return self._unknown.expand(len(fresh), -1)
        return self.estimator.preparation_.static(torch.from_numpy(static[fresh]))

    def _same_static(self, slot: int, features: Tensor | None) -> bool:
        if features is None:
            return True
        known = self._stepper.layout.static_features(self._table.state.real[slot : slot + 1])
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

    def _check_states(self, names: list[Hashable], state: StreamState) -> None:
        self._check_finite(names, "state", self._stepper.layout.finite(state.real, state.double))

    def _check_outputs(self, names: list[Hashable], outputs: Tensor) -> None:
        self._check_finite(names, "output", outputs.isfinite().all(1).numpy(force=True))

    def _check_finite(self, names: list[Hashable], what: str, finite: NDArray[np.bool_]) -> None:
        if finite.all():
            return
        wrong = np.flatnonzero(~finite)
        raise ArgumentError(
            f"the model's {what} for stream {names[wrong[0]]!r} is not finite ({len(wrong)} of {len(names)} streams). "
            "Look for values far outside the range of the training series.",
            argument="values",
        )

    def _note_far_values(self, names: list[Hashable], rows: NDArray[np.float64]) -> None:
        """Count the far values of many rows, and warn of them."""
        far = self._reader.channels.is_far(rows)
        if not far.any():
            return
        at, channels = far.nonzero()
        columns = self._reader.channels.columns
        self.far_values.update(columns[channel] for channel in channels.tolist())
        first = columns[channels[0]], float(rows[at[0], channels[0]])
        self._warn_of_far_values(names[at[0]], first, len(at))

    def _warn_of_far_values(self, id: Hashable, first: tuple[str, float], count: int) -> None:
        name, value = first
        more = f", and {count - 1} more" * (count > 1)
        warn_user(
            f"stream {id!r}: {name!r} is {value:g}{more}, far outside the range of the training series; such values "
            "are treated as not observed.",
            FarValueWarning,
        )

    def _too_late(self, id: Hashable, slot: int, time: float) -> str:
        form, last = self._reader.format, float(self._table.times[slot])
        return (
            f"stream {id!r} has a row at {form.time}={form.show(last)} already, and times must increase: "
            f"{form.time}={form.show(time)} is not later."
        )
