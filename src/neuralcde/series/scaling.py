"""Scaling of values, static features and times, fitted on training data."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from ..contracts import warn_user
from .channels import ChannelScales, cumulative_counts, time_since_start
from .far_values import FarValues, UsualRange, far_values, usual_range
from .irregular_series import IrregularSeries
from .quantile_scale import KNOTS, QuantileScale, transform_columns

SCALES = ("standard", "robust", "paper")
TENSORS = ("mean_", "scale_", "static_mean_", "static_scale_")
QUANTILES = ("quantiles_", "static_quantiles_")
RANGES = ("usual_", "static_usual_")
NAMES = ("channel_names_in_", "static_names_in_")
LONGEST = 200  # largest mean length of a series in units of the time channel
FEW_VALUES = 2**14  # up to so many, all columns are scaled at once; beyond, one by one without the missing values
MOST_KNOTS = 2**18  # of all channels together, so that a saved model stays small
FITTED = (*TENSORS, *QUANTILES, *RANGES, *NAMES, "time_scale_", "channel_scales_")


class SeriesScaler(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    r"""Scale series with statistics of the training data: $x' = (x - \mu) / \sigma$, or through training quantiles.

    Statistics are taken over the observed values of all training series together. They are never taken per series,
    which would remove the level of a series, and never over padding. Channels that never vary are only centred;
    channels that were never observed are left as they are.

    Parameters
    ----------
    scale : {"standard", "robust", "paper"}, default="standard"
        `"standard"`: $x' = (x - \mu) / \sigma$ for every channel and every static feature. Times are divided by the
        mean gap between rows, so that a flow in time integrates over gaps near one, whatever the unit. The time channel
        that `with_channels` adds counts these gaps (in larger units where a series would have more than 200 on
        average). Counts of observations get about unit variance.
        `"robust"`: each goes through its training quantiles to about a standard normal distribution (`QuantileScale`).
        The map is strictly increasing and bounded: beyond the training range it continues by at most 0.5, so that a
        value however wrong cannot dominate. Times and added channels are scaled as with `"standard"`.
        `"paper"`: values are divided by $\sigma + 10^{-5}$; times and added channels stay raw, as in the paper's code.

    Attributes
    ----------
    mean_, scale_ : (channels,) float64 tensors; channels that are indicators of categories keep 0 and 1
    static_mean_, static_scale_ : (features,) float64 tensors; indicators of categories keep 0 and 1
    quantiles_, static_quantiles_ : tuples of QuantileScale or None, per channel and static feature
        None unless `scale="robust"`, and for those that do not vary or are indicators; these are scaled by mean_ and
        scale_.
    usual_, static_usual_ : tuples of UsualRange or None, per channel and static feature
        Limits beyond which `far_values` takes a value as far outside; None for indicators, and with `scale="paper"`.
    time_scale_ : float
    channel_scales_ : ChannelScales
    channel_names_in_, static_names_in_ : tuples of str

    Examples
    --------
    >>> import neuralcde as nc
    >>> series = nc.IrregularSeries.from_list([([0, 10, 20], [[1.0], [2.0], [3.0]])])
    >>> scaler = nc.SeriesScaler().fit(series)
    >>> scaler.transform(series).times.tolist()
    [0.0, 1.0, 2.0]
    >>> scaler.inverse_transform(scaler.transform(series)) == series
    True
    """

    def __init__(self, scale: Literal["standard", "robust", "paper"] = "standard"):
        self.scale = scale

    def fit(self, series: IrregularSeries, y: Any = None) -> SeriesScaler:
        """Learn the statistics of these (training) series."""
        if self.scale not in SCALES:
            raise ValueError(f'scale must be "standard", "robust" or "paper", got {self.scale!r}.')
        _check_series(series)
        if len(series) == 0:
            raise ValueError("the scaler cannot be fitted on no series; expected at least one.")
        of_channels = [name in series.format.indicator_channels for name in series.channel_names]
        of_static = [c.categories is not None for c in series.format.static for _ in c.feature_names]
        of_static = of_static or [False] * len(series.static_names)
        learnt, coarse = _columns(series.values, series.channel_names, of_channels, scale=self.scale)
        self.mean_, self.scale_, self.quantiles_, self.usual_ = learnt
        learnt, coarse_static = _columns(series.static, series.static_names, of_static, scale=self.scale)
        self.static_mean_, self.static_scale_, self.static_quantiles_, self.static_usual_ = learnt
        if coarse or coarse_static:
            warn_user(
                f"{coarse + coarse_static} vary so little relative to their size that float32 keeps at most two digits "
                "of the variation; build the series with dtype=torch.float64, or subtract a constant first."
            )
        self.channel_names_in_, self.static_names_in_ = series.channel_names, series.static_names
        if self.scale == "paper":
            self.time_scale_, self.channel_scales_ = 1.0, ChannelScales(from_start=False)
            return self
        clock = time_since_start(series.times.detach(), series.offsets)
        gaps = int((series.lengths - 1).sum())
        ends = clock[series.offsets[1:] - 1]
        self.time_scale_ = float(ends.sum()) / gaps if gaps else 1.0
        observed = series.observed.T.contiguous()
        counts = (cumulative_counts(column[:, None], series.offsets).double() for column in observed)  # one at a time
        shared = cumulative_counts(observed.any(0)[:, None], series.offsets)
        self.channel_scales_ = ChannelScales(
            # A very long time channel would drive the state away. Times are in mean gaps when channels are added.
            time=max(1.0, gaps / len(series) / LONGEST),
            count=max(1.0, float(shared.double().std(correction=0))),
            counts=tuple(max(1.0, float(count.std(correction=0))) for count in counts),
        )
        return self

    def transform(self, series: IrregularSeries) -> IrregularSeries:
        """Scaled series; times are in units of `time_scale_`."""
        self._check(series)
        return dataclasses.replace(
            series,
            values=_scaled(series.values, self.mean_, self.scale_, self.quantiles_),
            static=_scaled(series.static, self.static_mean_, self.static_scale_, self.static_quantiles_),
            times=series.times / self.time_scale_,
            scales=self.channel_scales_,
        )

    def inverse_transform(self, series: IrregularSeries) -> IrregularSeries:
        """Series in their original units.

        With `scale="robust"`, values inside the training range are those given to `transform`, up to rounding. Beyond
        it the digits of a value get lost in the bounded tail: one that was transformed to the bound itself becomes a
        finite value far outside the range.
        """
        self._check(series)
        return dataclasses.replace(
            series,
            values=self.inverse_values(series.values),
            static=_unscaled(series.static, self.static_mean_, self.static_scale_, self.static_quantiles_),
            times=series.times * self.time_scale_,
            scales=ChannelScales(),
        )

    def inverse_values(self, values: Float[Tensor, "rows channels"]) -> Float[Tensor, "rows channels"]:
        """Scaled values of the data channels, at any times, in the original units."""
        return _unscaled(values, self.mean_, self.scale_, self.quantiles_)

    def far_values(self, series: IrregularSeries) -> FarValues:
        """The values of (unscaled) series that are far outside the range of the training series."""
        self._check(series)
        return far_values(series, self.usual_, self.static_usual_)

    def to_state(self) -> dict[str, Any]:
        """The fitted attributes as lists and numbers, for JSON."""
        check_is_fitted(self)
        plain = {
            name: value.tolist() if isinstance(value, Tensor) else value
            for name, value in ((name, getattr(self, name)) for name in FITTED)
        }
        for name in QUANTILES:
            plain[name] = [
                None if one is None else {"knots": one.knots.tolist(), "scores": one.scores.tolist()}
                for one in getattr(self, name)
            ]
        for name in RANGES:
            plain[name] = [None if one is None else list(one) for one in getattr(self, name)]
        return {"scale": self.scale} | plain | {"channel_scales_": dataclasses.asdict(self.channel_scales_)}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> SeriesScaler:
        """The scaler with this state, the inverse of `to_state`."""
        missing = [name for name in ("scale", *FITTED) if name not in state]
        if missing:
            raise ValueError(f"this is not the state of a SeriesScaler: it lacks {missing}.")
        scaler = cls(scale=state["scale"])
        for name in TENSORS:
            setattr(scaler, name, torch.tensor(state[name], dtype=torch.float64))
        for name in QUANTILES:
            maps = ({k: torch.tensor(v, dtype=torch.float64) for k, v in (one or {}).items()} for one in state[name])
            setattr(scaler, name, tuple(QuantileScale(one["knots"], one["scores"]) if one else None for one in maps))
        for name in RANGES:
            setattr(scaler, name, tuple(None if one is None else UsualRange(*one) for one in state[name]))
        for name in NAMES:
            setattr(scaler, name, tuple(state[name]))
        scaler.time_scale_ = float(state["time_scale_"])
        scales = dict(state["channel_scales_"])
        scales["counts"] = None if scales["counts"] is None else tuple(scales["counts"])
        scaler.channel_scales_ = ChannelScales(**scales)
        return scaler

    def _check(self, series: IrregularSeries) -> None:
        check_is_fitted(self)
        _check_series(series)
        for what, fitted, given in (
            ("channels", self.channel_names_in_, series.channel_names),
            ("static features", self.static_names_in_, series.static_names),
        ):
            if given != fitted:
                raise ValueError(
                    f"the scaler was fitted on {what} {list(fitted)}, got {list(given)}. Read the new data like the "
                    "training data: IrregularSeries.from_long(frame, like=training)."
                )


def _check_series(series: Any) -> None:
    if not isinstance(series, IrregularSeries):
        raise TypeError(
            f"series must be an IrregularSeries, got {type(series).__name__}; build one with "
            "IrregularSeries.from_long, from_list or from_padded."
        )
    if set(series.roles) - {"data"}:
        raise ValueError("scale first, then add channels: series = scaler.transform(series).with_channels(...).")


Learnt = tuple[Tensor, Tensor, tuple[QuantileScale | None, ...], tuple[UsualRange | None, ...]]


def _columns(
    values: Float[Tensor, "rows channels"], names: tuple[str, ...], indicators: Sequence[bool], *, scale: str
) -> tuple[Learnt, list[str]]:
    """Mean, deviation, map through quantiles and usual range of each column; names of those with too few digits.

    The deviation is 1 where a column does not vary. Indicators of categories keep mean 0 and deviation 1.
    """
    values = values.detach()
    mean, deviation = (
        torch.zeros(values.shape[1], dtype=torch.float64),
        torch.ones(values.shape[1], dtype=torch.float64),
    )
    quantiles: list[QuantileScale | None] = [None] * values.shape[1]
    usual: list[UsualRange | None] = [None] * values.shape[1]
    coarse: list[str] = []
    most = min(KNOTS, MOST_KNOTS // max(1, values.shape[1]))
    columns = values.T.contiguous()  # a column with gaps in memory takes as long to read as all of them
    for channel, name in enumerate(names):  # one at a time: a float64 copy of all might not fit
        column = columns[channel]
        column = column[~column.isnan()]
        if indicators[channel] or not len(column):
            continue
        numbers = column.double().cpu()
        mean[channel] = numbers.mean()
        spread = numbers.std(correction=0)
        if not spread.isfinite():
            raise ValueError(
                f"{name!r} holds {numbers.abs().max().item():g}, which is too large to be squared; write NaN for what "
                "was not observed, or change the unit."
            )
        spacing = torch.finfo(values.dtype).eps * numbers.abs().max()
        if values.dtype == torch.float32 and bool((numbers != numbers[0]).any()) and spread <= 100 * spacing:
            coarse.append(name)
        if spread <= 4 * spacing:
            continue  # constant up to rounding
        deviation[channel] = spread + 1e-5 if scale == "paper" else spread
        if scale != "paper":
            ordered = torch.from_numpy(np.sort(numbers.numpy()))  # much faster than torch's sort
            quantiles[channel] = QuantileScale.fit(ordered, most=most) if scale == "robust" else None
            usual[channel] = usual_range(ordered)
    return (mean, deviation, tuple(quantiles), tuple(usual)), coarse


def _scaled(
    values: Float[Tensor, "rows columns"], mean: Tensor, deviation: Tensor, maps: Sequence[QuantileScale | None]
) -> Float[Tensor, "rows columns"]:
    plain = (values - mean.to(values)) / deviation.to(values)
    known = {k: m for k, m in enumerate(maps) if m is not None}
    if not known or values.numel() > FEW_VALUES:
        return _mapped(values, plain, [m.transform if m else None for m in maps])
    places = torch.tensor(list(known), device=values.device)
    return plain.index_copy(1, places, transform_columns(values[:, places], list(known.values())))


def _unscaled(
    values: Float[Tensor, "rows columns"], mean: Tensor, deviation: Tensor, maps: Sequence[QuantileScale | None]
) -> Float[Tensor, "rows columns"]:
    return _mapped(values, values * deviation.to(values) + mean.to(values), [m.inverse if m else None for m in maps])


def _mapped(
    values: Float[Tensor, "rows columns"],
    others: Float[Tensor, "rows columns"],
    maps: Sequence[Callable[[Tensor], Tensor] | None],
) -> Float[Tensor, "rows columns"]:
    """The observed values through the map of their column; `others` where a column has none."""
    if not any(maps):
        return others
    given = values.T.contiguous()  # a column with gaps in memory takes as long to read as all of them
    columns = list(others.unbind(1))
    for k, change in enumerate(maps):
        if change is not None:
            observed = ~given[k].isnan()
            columns[k] = given[k].masked_scatter(observed, change(given[k][observed]))
    return torch.stack(columns).T.contiguous()
