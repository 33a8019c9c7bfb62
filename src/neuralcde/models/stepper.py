"""Models one row at a time: the state after a row from the state before it, for many streams at once."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from ..contracts import ArgumentError
from ..engine import engine_name
from ..engine.stream import StreamProgram, can_stream
from ..paths import PathScheme
from ..series.channels import ChannelScales, Counts, Role
from ..series.row_scaling import RowScaling
from ..series.row_statistics import RowStatistics
from ..solve import AtKnots, FixedSteps
from ..solve.solvers import as_solver
from ..solve.step import Place, time_bounds
from .jump_model import JumpModel
from .native_stepper import native_program
from .path_model import PathModel
from .solved_model import SolvedModel
from .stream_gap import Gap, SeenInStream
from .stream_state import CLOCK, Layout, MemberSizes, StreamState
from .streamable import check_steps, checked_model, checked_scheme


class Stepper:
    """One or several models, and the way from a row to their input: everything that streams share.

    All models see the same rows. What the rows tell (`RowStatistics`) is kept once for all of them.

    Parameters
    ----------
    models
        Models that solve an equation along a causal path.
    scheme
        The scheme of the paths that models without an encoder are given; None for that of the model.
    counts
        Counts of observations that models without an encoder are given, as in `IrregularSeries.with_channels`.
    scales
        Units of the time and count channels.
    scaling
        Scales the rows of a stream first; None if they are scaled already.

    Raises
    ------
    ArgumentError
        If a model cannot run on streams; the message says why.
    """

    def __init__(
        self,
        models: Sequence[PathModel],
        *,
        scheme: PathScheme | None = None,
        counts: Counts | None = None,
        scales: ChannelScales | None = None,
        scaling: RowScaling | None = None,
    ):
        self.models = [checked_model(model) for model in models]
        self.counts, self.scales, self.scaling = counts, scales or ChannelScales(), scaling
        first = self.models[0]
        self.static = first.static
        rest = first.channels - int(first.time_channel or first.encoder is not None) - int(counts == "shared")
        self.data, odd = divmod(rest, 2 if counts == "per_channel" else 1)
        if odd or self.data < 1 or any((m.channels, m.static) != (first.channels, first.static) for m in self.models):
            raise ArgumentError(
                f"{type(first).__name__} of {first.channels} channels cannot have counts={counts!r}; give the counts "
                "that its series have.",
                argument="counts",
            )
        self.schemes = [
            checked_scheme(model.scheme if model.encoder is not None or scheme is None else scheme)
            for model in self.models
        ]
        sizes = [
            MemberSizes(
                model.hidden,
                model.path_channels,
                scheme.memory,
                0 if model.pool == "last" else model.readout_features,
            )
            for model, scheme in zip(self.models, self.schemes, strict=True)
        ]
        self.layout = Layout(self.data, self.static, sizes)
        # Looked up once: a step of one stream takes less time than a walk over the modules of a model.
        parameter = next(self.models[0].readout.parameters())
        self.dtype, self.device = parameter.dtype, parameter.device
        self._native: StreamProgram | str | None = None
        self._sized = any(isinstance(model.steps, FixedSteps) for model in self.models)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_native": None}  # it is built again where it is needed

    # ---- the operations of streams ----

    def start(self, static: Float[Tensor, "streams static"] | None, streams: int | None = None) -> StreamState:
        """The states of streams without any row."""
        if static is None:
            static = torch.full((1 if streams is None else streams, self.static), torch.nan)
        if static.ndim != 2 or static.shape[1] != self.static or streams not in (None, len(static)):
            raise ArgumentError(
                f"static has shape {tuple(static.shape)}; expected (streams, {self.static}).", argument="static"
            )
        real = torch.zeros(len(static), self.layout.reals, dtype=self.dtype, device=self.device)
        self.layout.static_features(real).copy_(static)
        return StreamState(
            real, torch.zeros(len(static), self.layout.doubles, dtype=torch.float64, device=self.device), self
        )

    def update(self, state: StreamState, t: Any, x: Any) -> StreamState:
        """The states after one more row in every stream."""
        times, values = self._checked_rows(state, t, x)
        native = self.native
        if isinstance(native, StreamProgram):
            real, double = state.real.clone(), state.double.clone()
            native.update(real, double, times, values)
            return StreamState(real, double, self)
        given = torch.from_numpy(times).to(self.device), torch.from_numpy(values).to(self.device)
        with torch.no_grad(), evaluating(self.models):
            real, double = self.step(state.real, state.double, *given)
        return StreamState(real, double, self)

    def outputs(self, state: StreamState) -> Float[Tensor, "members streams outputs"]:
        """The outputs of every model at the last row of every stream."""
        if not (state.double.numpy(force=True)[:, 0] > 0).all():
            raise ArgumentError("state: a stream has no row yet, so that there is no output.", argument="state")
        native = self.native
        if isinstance(native, StreamProgram):
            return native.read(state.real, state.double, len(self.models), self.models[0].outputs)
        with torch.no_grad(), evaluating(self.models):
            return self.read(state.real, state.double)

    @property
    def native(self) -> StreamProgram | str:
        """The native step with the present weights, or the reason why plain torch runs."""
        if not can_stream(self.device, self.dtype):
            return "there are no native kernels for these states"
        if self._native is None or (isinstance(self._native, StreamProgram) and not self._native.current):
            self._native = native_program(
                self.models, self.schemes, self.layout, self.counts, self.scales, self.scaling, self.dtype
            )
        return self._native

    @property
    def engine(self) -> str:
        """The engine that runs the step, as in `solution.stats.engine`."""
        native = self.native
        return f"torch: {native}" if isinstance(native, str) else engine_name()

    def _checked_rows(self, state: StreamState, t: Any, x: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Times and values as arrays; refused unless there is one later row per stream."""
        x, t = (part.numpy(force=True) if isinstance(part, Tensor) else part for part in (x, t))
        values, times = np.ascontiguousarray(x, dtype=np.float64), np.asarray(t, dtype=np.float64)
        if values.shape != (len(state), self.data):
            raise ArgumentError(
                f"x has shape {values.shape}; expected (streams, data channels) = {(len(state), self.data)}.",
                argument="x",
            )
        times = np.full(len(state), times) if times.ndim == 0 else np.ascontiguousarray(times)
        if times.shape != (len(state),) or not np.isfinite(times).all():
            raise ArgumentError(
                f"t must be one finite time for each of the {len(state)} streams, got shape {times.shape}.",
                argument="t",
            )
        clock = state.double.numpy(force=True)
        scaled = times if self.scaling is None else times / self.scaling.time_scale
        with np.errstate(over="ignore"):  # a gap that is not finite gives a state that is not, for the caller to refuse
            gap = np.where(clock[:, 0] > 0, scaled - clock[:, CLOCK.index("time")], np.inf)
        if not (gap > 0).all():
            raise ArgumentError(
                f"t: the row of stream {int((gap <= 0).argmax())} is not later than its last one; times must increase.",
                argument="t",
            )
        for model in self.models if self._sized else ():
            check_steps(model, float(gap[np.isfinite(gap)].max(initial=0.0)))
        return times, values

    # ---- the step itself, in plain torch: the specification of the native step, and what is exported ----

    def step(
        self,
        real: Float[Tensor, "streams numbers"],
        double: Float[Tensor, "streams doubles"],
        t: Float[Tensor, " streams"],
        x: Float[Tensor, "streams data"],
    ) -> tuple[Float[Tensor, "streams numbers"], Float[Tensor, "streams doubles"]]:
        """The state after one more row, from the state before it."""
        if self.scaling is not None:
            t, x = self.scaling.times(t), self.scaling.values(x, real.dtype)
        x = x.to(real.dtype)
        rows, _, _, earlier, jumped, jumps = double[:, :6].unbind(1)
        first = rows == 0
        known = self.layout.statistics(real, double)
        start = torch.where(first, t, known.start)
        before = dataclasses.replace(
            known,
            start=start,
            time=torch.where(first, t, known.time),
            seen_at=torch.where(first[:, None], t[:, None], known.seen_at),
        )
        after = before.with_row(t, x)
        observed = ~x.isnan()
        any_observed = observed.any(1)
        jumped = torch.where(first, t, jumped)
        jumps = jumps + any_observed
        gap = Gap(before, after, first, observed, torch.where(first, t, earlier), jumped)
        clock = torch.stack([rows + 1, start, t, before.time, torch.where(any_observed, t, jumped), jumps], dim=1)
        static = self.layout.static_features(real)
        reals, doubles = [after.last, after.low, after.high, static], [clock]
        doubles += [after.count, after.seen_at, after.mean, after.squares]
        for number in range(len(self.models)):
            z, window, area = self._advance(number, gap, self.layout.member(number, real, double), static, jumps)
            reals += [z, window.flatten(1)]
            doubles.append(area)
        return torch.cat(reals, dim=1), torch.cat(doubles, dim=1)

    def read(
        self, real: Float[Tensor, "streams numbers"], double: Float[Tensor, "streams doubles"]
    ) -> Float[Tensor, "members streams outputs"]:
        """The outputs, from the state."""
        known = self.layout.statistics(real, double)
        static = torch.nan_to_num(self.layout.static_features(real), nan=0.0)
        passed = (known.time - known.start)[:, None]
        found = []
        for number, model in enumerate(self.models):
            z, window, area = self.layout.member(number, real, double)
            last, mean = model.with_values(z, _given(window[:, 0])), None
            if model.pool != "last":
                mean = (area / torch.where(passed > 0, passed, 1.0)).to(last.dtype)
                mean = torch.where(passed > 0, mean, last)
            found.append(model.readout(SeenInStream(model.pooled(last, mean), window[:, 0], static, known)))
        return torch.stack(found)

    def _advance(
        self, number: int, gap: Gap, old: tuple[Tensor, Tensor, Tensor], static: Tensor, jumps: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """State, last rows of X and integral of one model after the row."""
        model, scheme = self.models[number], self.schemes[number]
        z, window, area = old
        now = self._path_row(model, gap.after, jumps)
        window = torch.where(gap.first[:, None, None], now[:, None], window)
        here = model.initial.of(now, static)
        here = torch.where(gap.first[:, None], here, self._flow(model, scheme, gap, z, window, now))
        if isinstance(model, JumpModel):
            seen = gap.observations(now, encoded=model.encoder is not None, data=model.data)
            after: Tensor = model.cell(here, model.cell_inputs(seen))
            here = torch.where(seen.jumps[:, None], after, here)
        if model.pool != "last":
            left = model.with_values(z, _given(window[:, 0]))
            right = model.with_values(here, _given(now))
            area = area + gap.duration[:, None] * (left + right) / 2  # 0 at the first row, which has no gap
        return here, torch.cat([now[:, None], window[:, :-1]], dim=1), area

    def _path_row(
        self, model: SolvedModel, known: RowStatistics, jumps: Float[Tensor, " streams"]
    ) -> Float[Tensor, "streams channels"]:
        """X at the last row."""
        dtype, scales, columns = known.last.dtype, self.scales, []
        if model.time_channel or model.encoder is not None:
            clock = known.time - known.start if scales.from_start else known.time
            columns.append((clock / scales.time).to(dtype)[:, None])
        if model.encoder is not None:
            columns.append(model.encoder.encode(model.encoder.inputs.of_statistics(known)))  # type: ignore[union-attr, operator]
            return torch.cat(columns, dim=1)
        if self.counts == "shared":
            columns.append((jumps / scales.count).to(dtype)[:, None])
        if self.counts == "per_channel":
            divisor = torch.tensor(scales.counts or (1.0,) * self.data, dtype=torch.float64, device=jumps.device)
            columns.append((known.count / divisor).to(dtype))
        return torch.cat([*columns, known.last], dim=1)

    def _flow(
        self, model: SolvedModel, scheme: PathScheme, gap: Gap, z: Tensor, window: Tensor, now: Tensor
    ) -> Float[Tensor, "streams hidden"]:
        """The states at the end of the gap, before the jump."""
        term = model.flow()
        if term is None:
            return z
        solver, dtype = as_solver(model.solver), z.dtype
        times = torch.stack([gap.earlier, gap.before.time, gap.after.time], dim=1)[:, -1 - scheme.memory :]
        rows = torch.cat([window.flip(1), now[:, None]], dim=1)
        pieces = scheme.gap(times, rows, self._roles(model))
        for place in range(pieces.shape[1]):
            vertical = place % 2 == 1
            duration = torch.zeros_like(gap.duration) if vertical else gap.duration
            origin = (gap.after.time if vertical else gap.before.time) - gap.after.start
            counts, most = _steps(model, duration)
            for number in range(most):
                length = 1.0 / counts
                begin = origin + duration * (number * length)
                at = Place(
                    pieces[:, place],
                    (number * length).to(dtype)[:, None],
                    length.to(dtype)[:, None],
                    begin.to(dtype),
                    (duration * length).to(dtype)[:, None],
                    *time_bounds(begin, begin + duration * length, dtype),
                )
                end = solver.step(functools.partial(at.increment, term), z)
                z = end if isinstance(model.steps, AtKnots) else torch.where((number < counts)[:, None], end, z)
        return z

    def _roles(self, model: SolvedModel) -> list[Role]:
        """Roles of the channels of X."""
        timed = model.time_channel or model.encoder is not None
        roles: list[Role] = ["time"] if timed else []
        data: list[Role] = ["data"]
        return roles + data * (model.path_channels - len(roles))  # counts move with the data


@contextlib.contextmanager
def evaluating(models: Sequence[PathModel]) -> Iterator[None]:
    """The models in evaluation mode."""
    training = [model for model in models if model.training]
    for model in training:
        model.eval()
    try:
        yield
    finally:
        for model in training:
            model.train()


def _given(values: Tensor) -> Any:
    return lambda: values


def _steps(model: SolvedModel, duration: Tensor) -> tuple[Tensor, int]:
    """Number of steps in a piece of these durations, per stream; and the largest."""
    if isinstance(model.steps, AtKnots):
        return torch.full_like(duration, float(model.steps.substeps)), model.steps.substeps
    assert isinstance(model.steps, FixedSteps)
    counts = (duration / model.steps.size - 1e-9).ceil().clamp(min=1)
    if torch.compiler.is_compiling():
        raise ArgumentError(
            f"steps={model.steps!r} takes a number of steps that depends on the gap, which cannot be exported; use "
            "steps=AtKnots(substeps).",
            argument="steps",
        )
    return counts, int(counts.max()) if len(counts) else 0
