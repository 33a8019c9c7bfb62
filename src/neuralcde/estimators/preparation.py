"""Preprocessing of series into paths: scaling, time and count channels, missing static features, interpolation."""

from __future__ import annotations

import dataclasses
import math
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ..contracts import ArgumentError, warn_user
from ..paths import ControlPath, PathScheme
from ..series import FarValues, FarValueWarning, IrregularSeries, SeriesScaler
from ..series.clock_features import has_common_origin
from ..series.quantile_scale import CLOSEST
from ..series.row_scaling import RowScaling
from ..series.table_format import NANOSECONDS, TableColumn, TableFormat
from .json_shapes import FINITE, POSITIVE, TEXT, TRUTH, WHOLE, Leaf, OrNull, check_shape, one_of

KNOT = Leaf("a number between -1e155 and 1e155", lambda value: FINITE.fits(value) and abs(value) < 1e155)
SCORE = Leaf("a number between -100 and 100", lambda value: FINITE.fits(value) and abs(value) < 100)
MAPS = [OrNull({"knots": [KNOT], "scores": [SCORE]})]
STATE = {
    "scaler": {
        "scale": one_of("standard", "robust", "paper"),
        "mean_": [FINITE],
        "scale_": [POSITIVE],
        "static_mean_": [FINITE],
        "static_scale_": [POSITIVE],
        "quantiles_": MAPS,
        "static_quantiles_": MAPS,
        "usual_": [OrNull([FINITE])],
        "static_usual_": [OrNull([FINITE])],
        "channel_names_in_": [TEXT],
        "static_names_in_": [TEXT],
        "time_scale_": POSITIVE,
        "channel_scales_": {"time": POSITIVE, "count": POSITIVE, "counts": OrNull([POSITIVE]), "from_start": TRUTH},
    },
    "intensity": TRUTH,
    "encoded": TRUTH,
    "common_origin": TRUTH,
    "fitted_on": WHOLE,
    "scheme": {"name": TEXT},
    "flagged": [WHOLE],
    "use": [one_of(0.0, 1.0, None)],
    "static_use": [one_of(0.0, 1.0, None)],
    "dtype": one_of("float32", "float64"),
    "format": {
        "id": TEXT,
        "time": TEXT,
        "kind": one_of("number", "datetime", "duration"),
        "unit": one_of(None, *NANOSECONDS),
        "time_zone": OrNull(TEXT),
        "static": [{"name": TEXT, "categories": OrNull([TEXT])}],
        "backend": one_of(None, "pandas", "polars", "pyarrow", "modin", "cudf"),
        "in_order": TRUTH,
        "text_channels": [{"name": TEXT, "categories": [TEXT]}],
    },
}


@dataclasses.dataclass(frozen=True, eq=False)
class Preparation:
    """The preprocessing between the user's series and the model, fitted on the training data.

    Parameters
    ----------
    scaler
        The fitted scaler.
    intensity
        Whether the model sees when values were observed: by a channel with the count of observations for each channel
        (section 4.2), or by its encoder.
    encoded
        Whether the model has a row encoder, which makes the path. Then no counts are added.
    common_origin
        Whether the times of the training series have a common origin, see `has_common_origin`.
    fitted_on
        Number of series on which each model is trained.
    scheme
        The interpolation scheme of the path.
    flagged
        Static features that were missing in training: each gets an indicator of whether it was observed.
    use, static_use
        Factor per scaled channel and per static feature: 1 normally, 0 if it was constant in the training series, NaN
        if it was never observed there. With 0 or NaN its values are ignored in later series, too, because nothing was
        learnt from them. Observations of a constant channel are still counted if `intensity` is set.
    dtype
        dtype of the training series' values.
    format
        Format of the table of the training series.
    """

    scaler: SeriesScaler
    intensity: bool
    encoded: bool
    common_origin: bool
    fitted_on: int
    scheme: PathScheme
    flagged: tuple[int, ...]
    use: tuple[float, ...]
    static_use: tuple[float, ...]
    dtype: Literal["float32", "float64"]
    format: TableFormat

    @classmethod
    def fit(
        cls,
        series: IrregularSeries,
        fitted_on: int | None = None,
        *,
        intensity: bool,
        encoded: bool,
        scheme: PathScheme,
        scale: Literal["auto", "standard", "robust"] = "auto",
    ) -> Preparation:
        """Fit to training series; scale="auto" is "robust" with an encoder, else "standard".

        `fitted_on` is the number of series on which each model is trained; None for all of them.
        """
        missing = series.static.isnan().any(0)
        flagged = tuple(missing.nonzero()[:, 0].tolist())
        use, static_use = _use(series.values), _use(series.static)
        _warn_of_constants(series.channel_names, use, intensity=intensity)
        dtype: Literal["float32", "float64"] = "float64" if series.dtype == torch.float64 else "float32"
        chosen = ("robust" if encoded else "standard") if scale == "auto" else scale
        scaler = SeriesScaler(chosen).fit(series)
        far = scaler.far_values(series)
        if far.columns:  # a typing error would change mean and deviation, or be the highest quantile
            usual = scaler.usual_, scaler.static_usual_
            scaler.fit(far.removed())
            scaler.usual_, scaler.static_usual_ = usual
        return cls(
            scaler,
            intensity,
            encoded,
            has_common_origin(series),
            len(series) if fitted_on is None else fitted_on,
            scheme,
            flagged,
            use,
            static_use,
            dtype,
            series.format,
        )

    @property
    def channels(self) -> int:
        """Number of channels that the model gets: time, counts (with `intensity` and no encoder), data."""
        return 1 + len(self.scaler.channel_names_in_) * (2 if self.counts else 1)

    @property
    def counts(self) -> bool:
        """Whether channels with the counts of observations are added."""
        return self.intensity and not self.encoded

    @property
    def static_features(self) -> int:
        """Number of static features that a model sees, indicators included."""
        return len(self.scaler.static_names_in_) + len(self.flagged)

    def series(self, series: IrregularSeries) -> IrregularSeries:
        """Scaled series with added channels, in float32."""
        return self.with_channels(self.scaled(series))

    def scaled(self, series: IrregularSeries) -> IrregularSeries:
        """Scaled series in float32; scaling is done in the dtype of the series, each value by itself."""
        if series.format.clock != self.format.clock:
            raise ValueError(
                f"the times of X are {series.format.clock}, but the estimator was fitted on {self.format.clock}; read "
                "the new table like the first one: estimator.read_long(frame)."
            )
        scaled = self.scaler.transform(self.scaler.far_values(series).removed())
        for name, factors in (("values", self.use), ("static", self.static_use)):
            if any(factor != 1 for factor in factors):
                column = getattr(scaled, name)
                scaled = dataclasses.replace(scaled, **{name: column * column.new_tensor(factors)})
        scaled = scaled.to(torch.float32)
        if self.flagged:
            flags = (~scaled.static[:, list(self.flagged)].isnan()).to(scaled.static)
            names = tuple(f"{scaled.static_names[k]} observed" for k in self.flagged)
            static = torch.cat([scaled.static.nan_to_num(0.0), flags], dim=1)
            scaled = dataclasses.replace(scaled, static=static, static_names=(*scaled.static_names, *names))
        return scaled

    def with_channels(self, scaled: IrregularSeries) -> IrregularSeries:
        """Scaled series with the channels that the model gets: time, counts (with `intensity` and no encoder), data."""
        return scaled.with_channels(counts="per_channel" if self.counts else None)

    def row_scaling(self) -> RowScaling:
        """The scaling of single rows of streams."""
        return RowScaling(self.scaler, self.use, getattr(torch, self.dtype))

    def static(self, given: Float[Tensor, "series features"]) -> Float[Tensor, "series prepared"]:
        """Static features as the model gets them, from those of the table."""
        names = self.scaler.static_names_in_
        if given.shape[1] != len(names):
            raise ArgumentError(
                f"static has {given.shape[1]} features; expected {len(names)}: {', '.join(names)}.", argument="static"
            )
        count, dtype = len(given), getattr(torch, self.dtype)
        rows = dataclasses.replace(
            self.template(),
            times=torch.zeros(count, dtype=torch.float64),
            values=torch.full((count, len(self.scaler.channel_names_in_)), torch.nan, dtype=dtype),
            offsets=torch.arange(count + 1),
            static=given.to(dtype),
            ids=np.arange(count),
        )
        return self.series(rows).static

    def warn_of_far_values(self, far: FarValues) -> None:
        """Warn of values far outside the range of the training series, if there are any."""
        if far.columns:
            static = any(column.static for column in far.columns)
            fate = ", those of static features as the nearest usual value" if static else ""
            warn_user(f"{far.described()}; such values are treated as not observed{fate}.", FarValueWarning)

    def path(self, series: IrregularSeries) -> ControlPath:
        """The path of prepared series."""
        return self.scheme.build(series)

    def to_state(self) -> dict[str, Any]:
        """The fitted attributes as JSON can hold them."""
        return {
            "scaler": self.scaler.to_state(),
            "intensity": self.intensity,
            "encoded": self.encoded,
            "common_origin": self.common_origin,
            "fitted_on": self.fitted_on,
            "scheme": self.scheme.to_config(),
            "flagged": list(self.flagged),
            "use": [None if math.isnan(factor) else factor for factor in self.use],
            "static_use": [None if math.isnan(factor) else factor for factor in self.static_use],
            "dtype": self.dtype,
            "format": dataclasses.asdict(self.format),
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Preparation:
        """The inverse of `to_state`; a ValueError if the state is not one that `to_state` gives."""
        _check_state(state)
        table = dict(state["format"])
        for name in ("static", "text_channels"):
            table[name] = tuple(_table_column(column) for column in table[name])
        return cls(
            SeriesScaler.from_state(state["scaler"]),
            state["intensity"],
            state["encoded"],
            state["common_origin"],
            state["fitted_on"],
            PathScheme.from_config(state["scheme"]),
            tuple(state["flagged"]),
            tuple(math.nan if factor is None else factor for factor in state["use"]),
            tuple(math.nan if factor is None else factor for factor in state["static_use"]),
            state["dtype"],
            TableFormat(**table),
        )

    def template(self) -> IrregularSeries:
        """An empty container like the training series, for `IrregularSeries.from_long(frame, like=...)`."""
        names, static = self.scaler.channel_names_in_, self.scaler.static_names_in_
        return IrregularSeries(
            times=torch.zeros(0, dtype=torch.float64),
            values=torch.zeros(0, len(names), dtype=getattr(torch, self.dtype)),
            offsets=torch.zeros(1, dtype=torch.int64),
            static=torch.zeros(0, len(static), dtype=getattr(torch, self.dtype)),
            ids=np.zeros(0, dtype=object),
            channel_names=names,
            static_names=static,
            roles=tuple("data" for _ in names),
            format=self.format,
        )


def _warn_of_constants(names: tuple[str, ...], use: tuple[float, ...], *, intensity: bool) -> None:
    """Warn of channels whose values never vary, and say what the model still sees of them."""
    idle = [name for name, factor in zip(names, use, strict=True) if factor != 1]
    observed = [name for name, factor in zip(names, use, strict=True) if factor == 0]
    if not idle:
        return
    counted = f" How often {observed} were observed is still used (intensity)." if intensity and observed else ""
    warn_user(
        f"the channels {idle} never vary in the training series: nothing can be learnt from their values, which are "
        f"ignored.{counted}"
    )


def _use(values: Tensor) -> tuple[float, ...]:
    """One factor per column: 1, or 0 if it never varies, or NaN if it was never observed."""
    observed = (column[~column.isnan()] for column in values.T.contiguous())
    return tuple(float((column != column[0]).any()) if len(column) else math.nan for column in observed)


def _check_state(state: dict[str, Any]) -> None:
    """Refuse a state with other types, impossible numbers, or lengths that disagree."""
    check_shape(state, STATE)
    scaler, format = state["scaler"], state["format"]
    names, static = scaler["channel_names_in_"], scaler["static_names_in_"]
    lengths = {
        "scaler.mean_": (scaler["mean_"], names),
        "scaler.scale_": (scaler["scale_"], names),
        "scaler.channel_scales_.counts": (scaler["channel_scales_"]["counts"] or names, names),
        "scaler.quantiles_": (scaler["quantiles_"], names),
        "scaler.usual_": (scaler["usual_"], names),
        "use": (state["use"], names),
        "scaler.static_mean_": (scaler["static_mean_"], static),
        "scaler.static_scale_": (scaler["static_scale_"], static),
        "scaler.static_quantiles_": (scaler["static_quantiles_"], static),
        "scaler.static_usual_": (scaler["static_usual_"], static),
        "static_use": (state["static_use"], static),
    }
    for where, (found, wanted) in lengths.items():
        if len(found) != len(wanted):
            raise ValueError(f"{where} has {len(found)} entries for {len(wanted)} names.")
    for where in ("quantiles_", "static_quantiles_"):
        for position, found in enumerate(scaler[where]):
            _check_map(found, f"scaler.{where}[{position}]", robust=scaler["scale"] == "robust")
    for where in ("usual_", "static_usual_"):
        for position, found in enumerate(scaler[where]):
            _check_range(found, f"scaler.{where}[{position}]")
    if not names or len(set(names)) < len(names) or len(set(static)) < len(static):
        raise ValueError("scaler: names of channels and of static features must differ, and there must be a channel.")
    if len(set(state["flagged"])) < len(state["flagged"]) or not all(k < len(static) for k in state["flagged"]):
        raise ValueError(f"flagged: {state['flagged'][:3]} ... do not number the {len(static)} static features.")
    columns = [_table_column(column) for column in format["static"]]
    if columns and [name for column in columns for name in column.feature_names] != static:
        raise ValueError("format.static does not give the features of scaler.static_names_in_.")
    text = [_table_column(column) for column in format["text_channels"]]
    read = TableFormat(text_channels=tuple(text)).channel_columns(names)
    distinct = len({column.name for column in read}) == len(read)
    whole = [name for column in read for name in column.feature_names] == names
    if not (distinct and whole and [column for column in read if column in text] == text):
        raise ValueError("format.text_channels does not give channels of scaler.channel_names_in_.")


def _check_map(found: dict[str, Any] | None, where: str, *, robust: bool) -> None:
    """Refuse a map through quantiles that is not strictly increasing."""
    if found is None:
        return
    knots, scores = found["knots"], found["scores"]
    if not robust:
        raise ValueError(f"{where} is a map through quantiles, but scaler.scale is not 'robust'.")
    if len(knots) != len(scores) or len(knots) < 2:
        raise ValueError(f"{where} has {len(knots)} knots and {len(scores)} scores, expected equally many, at least 2.")
    if any(b - a < CLOSEST for a, b in pairwise(knots)) or any(b - a < 1e-15 for a, b in pairwise(scores)):
        raise ValueError(f"{where}: its knots and its scores must increase strictly.")


def _check_range(found: list[float] | None, where: str) -> None:
    """Refuse a usual range without width, or with limits inside it."""
    if found is None:
        return
    if len(found) != 4 or not found[2] <= found[0] < found[1] <= found[3]:
        raise ValueError(
            f"{where} is {found[:4]}, expected a range low < high and limits lowest <= low, high <= highest."
        )


def _table_column(column: dict[str, Any]) -> TableColumn:
    """A column of the table as JSON holds it."""
    categories = column["categories"]
    return TableColumn(column["name"], None if categories is None else tuple(categories))
