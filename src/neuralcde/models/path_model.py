"""The base class of all models: encoder, path, states along the path, readout."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..contracts import ArgumentError, Named, Recipe, Registry, check_sizes
from ..paths import ControlPath, Linear, PathScheme, Times
from ..series import IrregularSeries, ragged
from ..series.channels import ChannelScales, Counts
from ..series.row_features import features_shared
from ..solve import AtKnots, Steps
from .initial_state import Initial, InitialState
from .pooling import mean_over_time, running_mean, running_mean_at
from .readout import Readout, Seen
from .row_encoder import RowEncoder, encoded_series
from .stream_state import StreamState
from .trajectory import Trajectory

Pool = Literal["last", "mean", "both"]
At = Literal["knots"] | Times


class PathModel(nn.Module, Named):
    """A model of paths: encoder -> path -> states -> readout, each replaceable.

    Subclasses define `trajectory`, which computes the states along a path. `model(path)` returns one output per
    series; `model(path, at="knots")` and `model(path, at=times)` return outputs over time. The estimators can choose
    a subclass by its registered name: `class Mine(PathModel, name="mine")`.

    Parameters
    ----------
    channels
        Channels of the path, `path.channels`: time, counts and data. With an encoder, those of the series that it
        reads.
    outputs
        Size of the output.
    hidden
        Size of the state.
    static
        Number of static features that come with the path.
    initial
        The initial state, `self.initial(path)`: "zero", "linear" (a linear map of X(t0)), "static" (a network on the
        static features), "both"; None for a model without one.
    pool
        The state that `model(path)` reads out: the "last" one, the "mean" over time (by the trapezoidal rule between
        rows), or "both", one after the other. With `at`, the state at that time, and its mean up to that time.
    time_channel
        Whether the path has a time channel. Without one a CDE does not depend on how fast time passes (section 6.1).
    encoder
        None, or a module that maps each row to features, which the path then interpolates: a `RowEncoder`, or the name,
        class or recipe of one.
    scheme
        The path scheme inside the model, used if there is an encoder, or if the model is called with series; None for
        `Linear()`.
    readout
        Map from states to outputs: "linear", or the name, class or recipe of a `Readout`.
    readout_features
        Input size of the readout, if the model's `features` differ from the state; None for `hidden`.
    """

    registry: ClassVar[Registry[type[PathModel]]]
    title: ClassVar[str] = ""
    """Name of the model in reports and tables; by default the name of the class."""

    def __init_subclass__(cls, **options: Any):
        super().__init_subclass__(**options)
        if "title" not in vars(cls):
            cls.title = cls.__name__

    def __init__(
        self,
        channels: int,
        outputs: int,
        *,
        hidden: int,
        static: int = 0,
        initial: Initial | None = None,
        pool: Pool = "last",
        time_channel: bool = True,
        encoder: Any = None,
        scheme: PathScheme | str | None = None,
        readout: Any = "linear",
        readout_features: int | None = None,
    ):
        super().__init__()
        check_sizes(channels=channels, outputs=outputs, hidden=hidden)
        if not isinstance(static, int | np.integer) or static < 0:
            raise ValueError(f"static must be the number of static features, got {static!r}.")
        if pool not in ("last", "mean", "both"):
            raise ValueError(f'pool={pool!r} is not "last", "mean" or "both".')
        if encoder is not None and not isinstance(encoder, RowEncoder):
            encoder = Recipe.of(encoder, RowEncoder.registry).build(channels, static=static)
        self.channels, self.outputs, self.hidden, self.static = channels, outputs, hidden, static
        self.pool, self.time_channel = pool, time_channel
        self.encoder: RowEncoder | None = encoder
        self.scheme = Linear() if scheme is None else PathScheme.of(scheme)
        self.path_channels = channels if encoder is None else 1 + encoder.outputs
        if initial is not None:
            self.initial = InitialState(initial, self.path_channels, static, hidden)
        recipe = Recipe.of(readout, Readout.registry)
        self.readout_features = readout_features or hidden
        self.readout: Readout = recipe.build(
            self.readout_features * (2 if pool == "both" else 1),
            outputs,
            channels=self.path_channels,
            data=channels - int(time_channel),
            static=static,
        )

    @abstractmethod
    def trajectory(self, path: ControlPath, *, rows: bool = False, times: Tensor | None = None) -> Trajectory:
        """The last states; with `rows` also the states at all rows, and with `times` (series, k) those at the times."""
        raise NotImplementedError(f"{type(self).__name__} must define trajectory(path, *, rows, times)")

    @classmethod
    def default_steps(cls, substeps: int) -> Steps:
        """The `steps` that the estimators use for a given number of `substeps` between two observations."""
        return AtKnots(substeps)

    def path(self, given: ControlPath | IrregularSeries) -> ControlPath:
        """The path that drives the model: that of the encoded rows if there is an encoder, else the given path."""
        if self.encoder is not None:
            return self.scheme.build(encoded_series(self.encoder, series_of(given)))
        return self.scheme.build(given) if isinstance(given, IrregularSeries) else given

    def driving_path(self, given: ControlPath | IrregularSeries) -> ControlPath:
        """Like `path`, but raises `TypeError` or `ValueError` if the model was not made for such paths."""
        self._check_given(given)
        path = self.path(given)
        self._check_path(path)
        return path

    def forward(self, path: ControlPath | IrregularSeries, at: At | None = None) -> Float[Tensor, "..."]:
        """The outputs of the model.

        Parameters
        ----------
        path
            Control paths, or series, from which the model builds the paths.
        at
            None for one output per series; "knots" for one per row; or times of shape (k,), shared by all series, or
            (series, k).

        Returns
        -------
        Tensor
            Shape (series, outputs), (rows, outputs) with rows as in `path.series`, or (series, k, outputs).
        """
        self._check_given(path)
        with features_shared(series_of(path).values):
            return self._outputs(path, at)

    def _outputs(self, path: ControlPath | IrregularSeries, at: At | None) -> Float[Tensor, "..."]:
        path, given = self.driving_path(path), series_of(path)
        means = self.pool != "last"  # needs the states at all rows
        if at is None:
            end = path.interval[:, 1:]
            states = self.trajectory(path, rows=means)
            last = self.features(states.last[:, None], path, end)[:, 0] if self.pool != "mean" else None
            mean = mean_over_time(self.features_at_rows(_asked(states.at_rows), path), path) if means else None
            return self.readout(Seen(_joined(last, mean), path, path.series.offsets[1:] - 1, given))  # type: ignore[no-any-return]
        if isinstance(at, str):
            if at != "knots":
                raise ValueError(f'at={at!r} is not "knots" or a tensor of times.')
            return self._with_features(path, given, per_row=True)[0]
        times = path.asked_times(at)
        states = self.trajectory(path, rows=means, times=times)
        there, mean = self.features(_asked(states.at_times), path, times), None
        if means:
            mean = running_mean_at(there, times, self.features_at_rows(_asked(states.at_rows), path), path)
        row = ragged.last_row_at_or_before(path.knots.detach(), path.series.offsets, times, strict=False)
        return self.readout(Seen(self.pooled(there, mean), path, row, given))  # type: ignore[no-any-return]

    def with_features(
        self, given: ControlPath | IrregularSeries, *, per_row: bool
    ) -> tuple[Float[Tensor, "cases outputs"], Float[Tensor, "rows features"]]:
        """The outputs, one per series or one per row, and the readout's input at every row, for a second loss on it."""
        self._check_given(given)
        series = series_of(given)
        with features_shared(series.values):
            return self._with_features(self.driving_path(given), series, per_row=per_row)

    def _with_features(self, path: ControlPath, given: IrregularSeries, *, per_row: bool) -> tuple[Tensor, Tensor]:
        at_rows = self.features_at_rows(_asked(self.trajectory(path, rows=True).at_rows), path)
        row, mean = path.series.offsets[1:] - 1, None
        if per_row:
            row = torch.arange(len(at_rows), device=at_rows.device)
        if self.pool != "last":
            mean = running_mean(at_rows, path) if per_row else mean_over_time(at_rows, path)
        found = self.pooled(at_rows if per_row else at_rows[row], mean)
        return self.readout(Seen(found, path, row, given)), at_rows

    def pooled(self, last: Tensor, mean: Tensor | None) -> Tensor:
        """What the readout reads: the state, its mean over time, or both. The mean is None with `pool="last"`."""
        return _joined(None if self.pool == "mean" else last, mean)

    def fit_inputs(self, series: IrregularSeries, *, per_row: bool = False) -> None:
        """Let encoder and readout learn statistics of the training series, such as quantiles; before the training.

        Parameters
        ----------
        series
            Training series, as the model gets them.
        per_row
            Whether outputs are read at all rows rather than at the last one.
        """
        if self.encoder is not None:
            self.encoder.fit(series)
        self.readout.fit(series, per_row=per_row)

    def features(
        self, states: Float[Tensor, "series k hidden"], path: ControlPath, times: Float[Tensor, "series k"]
    ) -> Float[Tensor, "series k features"]:
        """The readout's input at times; see `with_values`."""
        return self.with_values(states, lambda: path.evaluate(times))

    def features_at_rows(
        self, states: Float[Tensor, "rows hidden"], path: ControlPath
    ) -> Float[Tensor, "rows features"]:
        """The readout's input at the rows of the series."""
        return self.with_values(states, path.at_rows)

    def with_values(
        self, states: Float[Tensor, "*batch hidden"], values: Callable[[], Float[Tensor, "*batch channels"]]
    ) -> Float[Tensor, "*batch features"]:
        """The readout's input: by default the states alone; `values` gives X at the same places."""
        return states

    # ---- one row at a time ----

    def start(
        self,
        static: Float[Tensor, "streams static"] | None = None,
        *,
        streams: int | None = None,
        scheme: PathScheme | None = None,
        counts: Counts | None = None,
        scales: ChannelScales | None = None,
    ) -> StreamState:
        """States of streams, which get one row at a time: `update` takes them to the next row, `output` reads them.

        After the rows of a series, `output` gives what the model gives for the series. Without gradients.

        Parameters
        ----------
        static
            Static features, one row per stream; None if there are none.
        streams
            Number of streams, if `static` is None; by default 1.
        scheme
            The scheme of the paths that the model is given, for one without an encoder; by default `model.scheme`.
        counts, scales
            The counts of the series that the model is given, as in `series.with_channels(counts=...)`, and
            `series.scales`.

        Returns
        -------
        StreamState
            Two tensors with one row per stream. They can be indexed and joined, and are never changed.

        Raises
        ------
        ArgumentError
            If the model cannot run on streams: its path is not causal, its steps are adaptive, or a part of it reads
            whole series.

        Examples
        --------
        >>> import torch, neuralcde as nc
        >>> model = nc.NeuralCDE(channels=3, outputs=1)
        >>> state = model.start(streams=2)
        >>> state = model.update(state, torch.tensor([0.0, 7.0]), torch.tensor([[0.1, float("nan")], [0.3, 0.4]]))
        >>> state = model.update(state, torch.tensor([1.0, 7.5]), torch.tensor([[0.2, 0.5], [0.1, 0.4]]))
        >>> model.output(state).shape
        torch.Size([2, 1])
        """
        from .stepper import Stepper  # it imports this module

        stepper = Stepper([self], scheme=scheme, counts=counts, scales=scales)
        return stepper.start(static, streams)

    def update(
        self,
        state: StreamState,
        t: Any,
        x: Any,
    ) -> StreamState:
        """The states after one more row in every stream: times (streams,), values (streams, data channels)."""
        self._check_own(state)
        return state.stepper.update(state, t, x)

    def output(self, state: StreamState) -> Float[Tensor, "streams outputs"]:
        """The outputs at the last row of every stream."""
        self._check_own(state)
        return state.stepper.outputs(state)[0]

    def _check_own(self, state: StreamState) -> None:
        """Refuse a state of another model: its own model would run, and nobody would notice."""
        if len(state.stepper.models) != 1 or state.stepper.models[0] is not self:
            raise ArgumentError(
                "state is that of another model or of an ensemble; begin with the start() of this model.",
                argument="state",
            )

    def engine(self, path: ControlPath | IrregularSeries) -> str:
        """The engine that runs the model on such paths: "torch", or as in `solution.stats.engine`."""
        return "torch"

    def penalised(self) -> list[Tensor]:
        """The parameters in the paper's weight penalty, the sum of their norms; by default all."""
        return list(self.parameters())

    def _check_given(self, given: ControlPath | IrregularSeries) -> None:
        name = type(self).__name__
        if not isinstance(given, ControlPath | IrregularSeries):
            raise TypeError(
                f"{name} takes a ControlPath, got {type(given).__name__}; build one, e.g. "
                "nc.linear(series.with_channels())."
            )
        series, channels = series_of(given), given.channels
        if channels != self.channels:
            raise ValueError(
                f"{name} was made for {self.channels} channels, but the path has {channels}: "
                f"{', '.join(series.channel_names[:8])}{', ...' if channels > 8 else ''}; make it "
                f"{name}(channels=path.channels, ...)."
            )
        features = series.static.shape[1]
        if self.static and features != self.static:
            raise ValueError(
                f"{name} was made for {self.static} static features, but the series have {features}; make it "
                f"{name}(..., static={features})."
            )

    def _check_path(self, path: ControlPath) -> None:
        name = type(self).__name__
        if self.time_channel and "time" not in path.series.roles:
            raise ValueError(
                "the path has no time channel; build it from series.with_channels(), or make the model with "
                "time_channel=False."
            )
        parameter = next(self.readout.parameters(), None)
        if parameter is not None and (parameter.dtype != path.dtype or parameter.device != path.device):
            raise ValueError(
                f"{name} is {parameter.dtype} on {parameter.device}, but the path is {path.dtype} on {path.device}; "
                "convert one: path.to(...) or model.to(...)."
            )


PathModel.registry = Registry("model", PathModel)


def series_of(given: ControlPath | IrregularSeries) -> IrregularSeries:
    """The series that a model is given, by themselves or as those of paths."""
    return given if isinstance(given, IrregularSeries) else given.series


def _joined(*parts: Tensor | None) -> Tensor:
    """The parts that there are, one after the other."""
    found = [part for part in parts if part is not None]
    return found[0] if len(found) == 1 else torch.cat(found, dim=-1)


def _asked(states: Tensor | None) -> Tensor:
    """Narrow the type of states that were requested, and so are not None."""
    assert states is not None
    return states
