"""The data model: many series, each with its own times and missing values, in one ragged container."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator
from types import EllipsisType
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from . import ragged
from .arrays import Padded, Rows, check_dtype, pad, read_list, read_padded
from .channels import ChannelScales, Counts, Role, added_channels
from .construction import (
    ALIKE,
    check_joinable,
    described,
    fields_of_arrays,
    fields_of_table,
    ids_of_series,
    joined_ids,
)
from .table_format import TableFormat
from .tables import Duplicates, write_series

TENSORS = ("times", "values", "offsets", "static")


@dataclasses.dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class IrregularSeries:
    r"""Irregularly sampled, partially observed series: $((t_0, x_0), \ldots, (t_n, x_n))$ for each of them.

    The rows of all series are stored one after the other: those of series i are `offsets[i] .. offsets[i + 1] - 1`. NaN
    means not observed. Objects are frozen. Build them with `from_long`, `from_list` or `from_padded`, which check the
    data; the constructor does not.

    Parameters
    ----------
    times
        Observation times in the user's own unit, float64, strictly increasing within a series.
    values
        Observations, float32 or float64, NaN where a channel was not observed.
    offsets
        The first row of each series, and at the end the number of rows.
    static
        One row of features per series that do not change in time, NaN where unknown.
    ids
        The id of each series, a number or text.
    channel_names, static_names
        Names of the columns of `values` and of `static`.
    roles
        What each channel is: `"data"`, or added by `with_channels`: `"time"`, `"count"`, `"start"`.
    format
        The format of the table that the series came from.
    scales
        Units of the channels that `with_channels` adds; set by `SeriesScaler`.

    Examples
    --------
    >>> import neuralcde as nc
    >>> nan = float("nan")
    >>> first = ([0.0, 0.5, 2.0], [[1.0, nan], [nan, 3.0], [2.0, nan]])
    >>> series = nc.IrregularSeries.from_list([first, ([7.0], [[0.0, 1.0]])])
    >>> series
    IrregularSeries(2 series, 4 rows, 2 channels: 'x0', 'x1'; lengths 1 .. 3, times 0 .. 7, 62 % observed, float32)
    >>> len(series[1:]), series[0].values.shape
    (1, torch.Size([3, 2]))
    """

    times: Float[Tensor, " rows"]
    values: Float[Tensor, "rows channels"]
    offsets: Int[Tensor, " bounds"]
    static: Float[Tensor, "series features"]
    ids: NDArray[Any]
    channel_names: tuple[str, ...]
    static_names: tuple[str, ...] = ()
    roles: tuple[Role, ...]
    format: TableFormat = dataclasses.field(default_factory=TableFormat)
    scales: ChannelScales = dataclasses.field(default_factory=ChannelScales)

    @classmethod
    def from_long(
        cls,
        frame: Any,
        *,
        id: str | None = None,
        time: str | None = None,
        static: Collection[str] = (),
        channels: Collection[str] | None = None,
        unit: str | None = None,
        duplicates: Duplicates = "error",
        dtype: torch.dtype | None = None,
        like: IrregularSeries | None = None,
    ) -> IrregularSeries:
        """Read a long table: one row for each series and time, one column for each channel.

        Parameters
        ----------
        frame
            A pandas, polars or pyarrow table. Rows may come in any order; series keep the order of first appearance.
        id, time
            The columns with the id of a row's series and with the row's time. Ids are numbers or text.
        static
            Columns with one value per series (age, sex). Text becomes one indicator per category.
        channels
            The measured columns; by default all others with numbers, booleans, or text of at most 20 categories. Null
            and NaN mean not observed. Text becomes one indicator per category, 0 or 1, such as `"ascites=Yes"`.
        unit
            For datetime and duration times: the unit of `times` ("ns", "us", "ms", "s", "min", "h", "D"; default "s",
            datetimes counted from 1970). Stamps are kept to about a microsecond.
        duplicates
            What to do with several rows of one series at one time: raise an "error", or take the "mean" or the "last"
            observation of each channel.
        dtype
            torch.float32 (default) or torch.float64.
        like
            Series read before. `id`, `time`, `static`, `channels`, `unit`, the categories and the default of `dtype`
            are taken from it, so that a new table is read exactly like the first one. What is given as well must
            agree with it. A category that was not seen then gets no indicator: those of the others are 0. A channel
            whose column is missing is not observed; a warning names it. So is a static column of numbers, if some
            series had no value in it then.

        Raises
        ------
        TypeError, ValueError
            If the table cannot be read; the message names the column, the series and the fix.

        Examples
        --------
        >>> import pandas as pd, neuralcde as nc
        >>> frame = pd.DataFrame({"stay": ["a", "b", "a"], "hour": [2.0, 0.0, 1.0], "pulse": [80.0, 70.0, None]})
        >>> series = nc.IrregularSeries.from_long(frame, id="stay", time="hour")
        >>> series.ids.tolist(), series.times.tolist()
        (['a', 'b'], [1.0, 2.0, 0.0])
        """
        fields = fields_of_table(
            frame,
            id=id,
            time=time,
            static=static,
            channels=channels,
            unit=unit,
            duplicates=duplicates,
            dtype=dtype,
            like=like,
        )
        return cls(**fields)

    @classmethod
    def from_list(
        cls,
        pairs: Iterable[tuple[Any, Any]],
        *,
        ids: Iterable[Any] | None = None,
        static: Any = None,
        channels: Collection[str] | None = None,
        static_names: Collection[str] | None = None,
        duplicates: Duplicates = "error",
        dtype: torch.dtype = torch.float32,
    ) -> IrregularSeries:
        """Read one (times, values) pair per series: shapes (n_i,) and (n_i, channels), arrays or tensors.

        Gradients flow back to tensors.

        Parameters
        ----------
        pairs
            The series. Times must increase strictly. NaN means not observed.
        ids
            Ids of the series, by default 0, 1, ...
        static
            Features (series, k) that do not change in time, NaN where unknown.
        channels, static_names
            Names of the channels and of the static features.
        duplicates, dtype
            As in `from_long`.
        """
        pairs = list(pairs)
        names = ids_of_series(ids, len(pairs))
        rows = read_list(pairs, ids=names, dtype=check_dtype(dtype))
        return cls(**fields_of_arrays(rows, names, static, channels, static_names, duplicates))

    @classmethod
    def from_padded(
        cls,
        values: Any,
        times: Any = None,
        lengths: Any = None,
        *,
        ids: Iterable[Any] | None = None,
        static: Any = None,
        channels: Collection[str] | None = None,
        static_names: Collection[str] | None = None,
        duplicates: Duplicates = "error",
        dtype: torch.dtype = torch.float32,
    ) -> IrregularSeries:
        """Read a block (series, steps, channels) with NaN where nothing was observed.

        Parameters
        ----------
        values
            The block. The aeon and sktime layout (series, channels, steps) must be swapped first.
        times
            (steps,) shared, or (series, steps); by default 0, 1, 2, ...
        lengths
            Number of rows of each series. Without it, trailing rows that are all NaN are cut off.
        ids, static, channels, static_names, duplicates, dtype
            As in `from_list`.
        """
        rows = read_padded(values, times, lengths, named=channels is not None, dtype=check_dtype(dtype))
        names = ids_of_series(ids, len(rows.offsets) - 1)
        return cls(**fields_of_arrays(rows, names, static, channels, static_names, duplicates))

    @classmethod
    def concat(cls, parts: Iterable[IrregularSeries]) -> IrregularSeries:
        """The series of all parts, in this order; channels and static features must agree."""
        parts = list(parts)
        if not parts:
            raise ValueError("parts is empty; concat needs at least one IrregularSeries.")
        head = parts[0]
        for position, part in enumerate(parts):
            if not isinstance(part, IrregularSeries):
                raise TypeError(f"parts[{position}] is a {type(part).__name__}; expected IrregularSeries.")
            check_joinable(position, part, head)
        return dataclasses.replace(
            head,
            times=torch.cat([part.times for part in parts]),
            values=torch.cat([part.values for part in parts]),
            offsets=ragged.offsets_of(torch.cat([part.lengths for part in parts])),
            static=torch.cat([part.static for part in parts]),
            ids=joined_ids([part.ids for part in parts]),
            format=dataclasses.replace(head.format, in_order=len(parts) == 1 or head.format.backend is None),
        )

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def shape(self) -> tuple[int]:
        """(number of series,): scikit-learn's splitters ask for it."""
        return (len(self),)

    @property
    def lengths(self) -> Int[Tensor, " series"]:
        """Number of rows of each series."""
        return ragged.lengths(self.offsets)

    @property
    def observed(self) -> Bool[Tensor, "rows channels"]:
        """Whether each channel was observed at each row."""
        return ~self.values.isnan()

    @property
    def channels(self) -> int:
        """Number of channels, including added ones."""
        return self.values.shape[1]

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the values."""
        return self.values.dtype

    @property
    def device(self) -> torch.device:
        """Device of the tensors."""
        return self.values.device

    @property
    def _data(self) -> dict[str, int]:
        """Names and columns of the channels that `with_channels` did not add."""
        return {name: k for k, name in enumerate(self.channel_names) if self.roles[k] == "data"}

    def __getitem__(self, index: ragged.Index | tuple[ragged.Index, EllipsisType]) -> IrregularSeries:
        if isinstance(index, tuple):
            if len(index) != 2 or index[1] is not Ellipsis:
                raise IndexError("series have one axis: use series[index]; channels are columns of series.values.")
            index = index[0]
        chosen = ragged.positions(index, len(self))
        if isinstance(chosen, slice) or self.format.backend is None or bool((chosen.diff() > 0).all()):
            return self.at(chosen)
        return dataclasses.replace(self.at(chosen), format=dataclasses.replace(self.format, in_order=False))

    def at(self, chosen: slice | Int[Tensor, " chosen"]) -> IrregularSeries:
        """The series at these positions, like indexing but without checks."""
        rows, offsets = ragged.select(self.offsets, chosen)
        return dataclasses.replace(
            self,
            times=ragged.take(self.times, rows),
            values=ragged.take(self.values, rows),
            offsets=offsets,
            static=ragged.take(self.static, chosen if isinstance(chosen, slice) else chosen.to(self.device)),
            ids=self.ids[chosen if isinstance(chosen, slice) else chosen.numpy()],
        )

    def __iter__(self) -> Iterator[IrregularSeries]:
        return (self[i] for i in range(len(self)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, IrregularSeries):
            return NotImplemented
        if any(getattr(self, name) != getattr(other, name) for name in ALIKE):
            return False
        return np.array_equal(self.ids, other.ids) and all(
            a.shape == b.shape and bool(((a == b) | (a.isnan() & b.isnan())).all())
            for a, b in ((getattr(self, name), getattr(other, name)) for name in TENSORS)
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return described(self)

    def _repr_html_(self) -> str:
        from .display import as_html  # that module imports figures, which few need

        return as_html(self)

    def plot(self, id: Any, *, channels: Collection[str] | str | None = None, axes: Any = None) -> list[Any]:
        """Plot the observations of one series: a panel per channel, on these axes of matplotlib or on new ones."""
        from .display import plot_series

        return plot_series(self, id, channels, axes)

    def __array__(self, *_: Any, **__: Any) -> NDArray[Any]:
        raise TypeError(
            "an IrregularSeries is no array, so that functions for arrays such as permutation_importance and "
            "BaggingClassifier cannot take it: use estimator.explain(series).importances(), and members=5 for an "
            "ensemble; series.to_padded() gives arrays."
        )

    def with_channels(self, *, time: bool = True, counts: Counts | None = None, start: bool = False) -> IrregularSeries:
        r"""The series with channels added, in the order time, counts, start, data.

        Parameters
        ----------
        time
            The time $t_i$. Without it a CDE cannot see how fast its path runs (the paper's sections 3 and 6.1).
        counts
            Observational intensity (sections 3.5 and 3.6) as cumulative counts: `"shared"` counts the rows at which
            anything was observed, `"per_channel"` the observations of each channel.
        start
            The channels $t_i x_0$ of section 6.1, which make a CDE sensitive to translation without an initial network.
            $x_0$ is the first row, with 0 for what was not observed.

        Notes
        -----
        Time is counted from the start of each series. After a `SeriesScaler` its unit is the mean gap between rows (or
        several, where a series would have more than 200 on average). Counts are divided by their standard deviation
        over the training rows, or by 1 if that is larger, so that one observation never moves X by more than 1. The
        unit of the table (hours, seconds) then makes no difference. `SeriesScaler(scale="paper")` leaves both raw: unix
        time stamps too, which float32 rounds to minutes.
        """
        if set(self.roles) != {"data"}:
            raise ValueError(f"the series has added channels already: roles are {self.roles}. Call with_channels once.")
        data = self.times, self.values, self.offsets, self.channel_names, self.scales
        added = added_channels(*data, time=time, counts=counts, start=start)
        return dataclasses.replace(
            self,
            values=torch.cat([*added.columns, self.values], dim=1),
            channel_names=(*added.names, *self.channel_names),
            roles=(*added.roles, *self.roles),
        )

    def until(self, t: Any) -> IrregularSeries:
        """What was known at time t: the rows up to t, then a row at t at which nothing was observed.

        A row exactly at t is kept, and none is added then. `t` is one time for all series or one per series (an array,
        or by id: a mapping, or a pandas Series with the ids as its index), in the unit of `times`, or a datetime or
        duration if the table had these. Raises `ValueError`, with the ids, if t lies before the first row of a series.
        Call it before `with_channels`.
        """
        from .until import truncated  # that module imports this one

        return truncated(self, t)

    def to(self, target: torch.device | torch.dtype | str) -> IrregularSeries:
        """The series on another device, or with another dtype of the values; times stay float64."""
        if isinstance(target, torch.dtype):
            check_dtype(target)
            return dataclasses.replace(self, values=self.values.to(target), static=self.static.to(target))
        moved = {name: getattr(self, name).to(target) for name in TENSORS}
        return dataclasses.replace(self, **moved)

    def to_long(self, backend: Literal["pandas", "polars", "pyarrow"] | None = None) -> Any:
        """A long table with id, time, channels and static columns, by default in the library that the series came from.

        `from_long(table, like=series)` gives the series back. Channels added by `with_channels` are left out.
        """
        if self.format.kind != "number" and self.scales != ChannelScales():
            raise ValueError(
                f"the times are scaled, so that to_long cannot write them as {self.format.kind}s; call "
                "scaler.inverse_transform(series) first."
            )
        rows = Rows(self.times, self.values, self.offsets)
        return write_series(rows, self.static, self.ids, channels=self._data, format=self.format, backend=backend)

    def to_padded(self) -> Padded:
        """Values (series, steps, channels) and times (series, steps), padded with NaN, and the lengths."""
        return pad(Rows(self.times, self.values, self.offsets))
