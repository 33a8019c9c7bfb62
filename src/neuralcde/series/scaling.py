"""Scaling of values, static features and times, fitted on training data."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any, Literal

import torch
from jaxtyping import Float
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from .channels import ChannelScales, cumulative_counts, time_since_start
from .irregular_series import IrregularSeries

TENSORS = ("mean_", "scale_", "static_mean_", "static_scale_")
NAMES = ("channel_names_in_", "static_names_in_")
LONGEST = 200  # largest mean length of a series in units of the time channel
FITTED = (*TENSORS, *NAMES, "time_scale_", "channel_scales_")


class SeriesScaler(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    r"""Scale series with statistics of the training data: $x' = (x - \mu) / \sigma$ for every channel.

    Statistics are taken over the observed values of all training series together. They are never taken per series,
    which would remove the level of a series, and never over padding. Channels that never vary are only centred;
    channels that were never observed are left as they are.

    Parameters
    ----------
    scale : {"standard", "paper"}, default="standard"
        `"standard"`: times are divided by the mean gap between rows, so that a flow in time integrates over gaps near
        one, whatever the unit. The time channel that `with_channels` adds counts these gaps (in larger units where a
        series would have more than 200 on average). Counts of observations get about unit variance.
        `"paper"`: values are divided by $\sigma + 10^{-5}$; times and added channels stay raw, as in the paper's code.

    Attributes
    ----------
    mean_, scale_ : (channels,) float64 tensors; channels that are indicators of categories keep 0 and 1
    static_mean_, static_scale_ : (features,) float64 tensors; indicators of categories keep 0 and 1
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

    def __init__(self, scale: Literal["standard", "paper"] = "standard"):
        self.scale = scale

    def fit(self, series: IrregularSeries, y: Any = None) -> SeriesScaler:
        """Learn the statistics of these (training) series."""
        if self.scale not in ("standard", "paper"):
            raise ValueError(f'scale must be "standard" or "paper", got {self.scale!r}.')
        _check_series(series)
        if len(series) == 0:
            raise ValueError("the scaler cannot be fitted on no series; expected at least one.")
        paper = self.scale == "paper"
        margin = 1e-5 if paper else 0.0
        self.mean_, self.scale_ = _moments(series.values, series.channel_names, margin=margin)
        self.static_mean_, self.static_scale_ = _moments(series.static, series.static_names, margin=margin)
        indicators = [c.categories is not None for c in series.format.static for _ in c.feature_names]
        if indicators:
            self.static_mean_[torch.tensor(indicators)] = 0.0
            self.static_scale_[torch.tensor(indicators)] = 1.0
        for channel, name in enumerate(series.channel_names):
            if name in series.format.indicator_channels:
                self.mean_[channel], self.scale_[channel] = 0.0, 1.0
        self.channel_names_in_, self.static_names_in_ = series.channel_names, series.static_names
        if paper:
            self.time_scale_, self.channel_scales_ = 1.0, ChannelScales(from_start=False)
            return self
        clock = time_since_start(series.times.detach(), series.offsets)
        gaps = int((series.lengths - 1).sum())
        ends = clock[series.offsets[1:] - 1]
        self.time_scale_ = float(ends.sum()) / gaps if gaps else 1.0
        counts = cumulative_counts(series.observed, series.offsets)
        shared = cumulative_counts(series.observed.any(1, keepdim=True), series.offsets)
        self.channel_scales_ = ChannelScales(
            # A very long time channel would drive the state away. Times are in mean gaps when channels are added.
            time=max(1.0, gaps / len(series) / LONGEST),
            count=max(1.0, float(shared.double().std(correction=0))),
            counts=tuple(max(1.0, float(column.double().std(correction=0))) for column in counts.T),
        )
        return self

    def transform(self, series: IrregularSeries) -> IrregularSeries:
        """Scaled series; times are in units of `time_scale_`."""
        self._check(series)
        return dataclasses.replace(
            series,
            values=(series.values - self.mean_.to(series.values)) / self.scale_.to(series.values),
            static=(series.static - self.static_mean_.to(series.static)) / self.static_scale_.to(series.static),
            times=series.times / self.time_scale_,
            scales=self.channel_scales_,
        )

    def inverse_transform(self, series: IrregularSeries) -> IrregularSeries:
        """Series in their original units."""
        self._check(series)
        return dataclasses.replace(
            series,
            values=series.values * self.scale_.to(series.values) + self.mean_.to(series.values),
            static=series.static * self.static_scale_.to(series.static) + self.static_mean_.to(series.static),
            times=series.times * self.time_scale_,
            scales=ChannelScales(),
        )

    def to_state(self) -> dict[str, Any]:
        """The fitted attributes as lists and numbers, for JSON."""
        check_is_fitted(self)
        plain = {
            name: value.tolist() if isinstance(value, Tensor) else value
            for name, value in ((name, getattr(self, name)) for name in FITTED)
        }
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


def _moments(
    values: Float[Tensor, "rows channels"], names: tuple[str, ...], *, margin: float
) -> tuple[Float[Tensor, " channels"], Float[Tensor, " channels"]]:
    """Mean and standard deviation of the observed values, float64; scale 1 where a channel does not vary."""
    values = values.detach()
    mean, scale = torch.zeros(2, values.shape[1], dtype=torch.float64)
    coarse = []
    for channel in range(values.shape[1]):  # one at a time: a float64 copy of all might not fit
        column = values[:, channel]
        column = column[~column.isnan()].double()
        if len(column):
            mean[channel] = column.mean()
            scale[channel] = column.std(correction=0)
            if not scale[channel].isfinite():
                raise ValueError(
                    f"{names[channel]!r} holds {column.abs().max().item():g}, which is too large to be squared; write "
                    "NaN for what was not observed, or change the unit."
                )
            spacing = torch.finfo(values.dtype).eps * column.abs().max()
            if values.dtype == torch.float32 and bool((column != column[0]).any()) and scale[channel] <= 100 * spacing:
                coarse.append(names[channel])
            if scale[channel] <= 4 * spacing:
                scale[channel] = 0.0  # constant up to rounding
    if coarse:
        warnings.warn(
            f"{coarse} vary so little relative to their size that float32 keeps at most two digits of the variation; "
            "build the series with dtype=torch.float64, or subtract a constant first.",
            UserWarning,
            stacklevel=4,
        )
    return mean, torch.where(scale > 0, scale + margin, 1.0)
