"""From a user's series to paths: scaling, time and count channels, missing static features, the interpolation scheme."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from ..paths import ControlPath, hermite, linear, natural_cubic, rectilinear
from ..series import IrregularSeries, SeriesScaler
from ..series.table_format import StaticColumn, TableFormat

Scheme = Literal["linear", "hermite", "natural_cubic", "rectilinear"]
SCHEMES = ("linear", "hermite", "natural_cubic", "rectilinear")


@dataclasses.dataclass(frozen=True, eq=False)
class Preparation:
    """Everything that happens to series before a model sees them, learnt from the training data.

    Parameters
    ----------
    scaler
        Fitted.
    intensity
        Whether a count for every channel is added (section 4.2).
    scheme
        How the path runs between observations; "linear" and "hermite" over forward-filled values.
    flagged
        Static features that get a companion which says whether they were observed.
    format
        How the table of the training series looked.
    """

    scaler: SeriesScaler
    intensity: bool
    scheme: Scheme
    flagged: tuple[int, ...]
    format: TableFormat

    @classmethod
    def fit(cls, series: IrregularSeries, *, intensity: bool, scheme: Scheme) -> Preparation:
        """Learn from training series."""
        if scheme not in SCHEMES:
            raise ValueError(f"path={scheme!r} is not one of {list(SCHEMES)}.")
        missing = series.static.isnan().any(0)
        flagged = tuple(missing.nonzero()[:, 0].tolist())
        return cls(SeriesScaler().fit(series), intensity, scheme, flagged, series.format)

    @property
    def static_features(self) -> int:
        """Static features that a model sees."""
        return len(self.scaler.static_names_in_) + len(self.flagged)

    def series(self, series: IrregularSeries) -> IrregularSeries:
        """Scaled, with the channels that were added."""
        scaled = self.scaler.transform(series)
        if self.flagged:
            flags = (~scaled.static[:, list(self.flagged)].isnan()).to(scaled.static)
            names = tuple(f"{scaled.static_names[k]} observed" for k in self.flagged)
            static = torch.cat([scaled.static.nan_to_num(0.0), flags], dim=1)
            scaled = dataclasses.replace(scaled, static=static, static_names=(*scaled.static_names, *names))
        return scaled.with_channels(counts="per_channel" if self.intensity else None)

    def path(self, series: IrregularSeries) -> ControlPath:
        """The path of prepared series."""
        if self.scheme == "linear":
            return linear(series, fill="forward")
        if self.scheme == "hermite":
            return hermite(series, fill="forward")
        return (natural_cubic if self.scheme == "natural_cubic" else rectilinear)(series)

    def times(self, times: Any) -> Tensor:
        """Times of the user's clock (numbers, datetimes or durations, as in the table) on the models' clock."""
        asked = np.asarray(times)
        if asked.dtype.kind in "mMO" and self.format.kind != "number":
            kind = "datetime64[us]" if self.format.kind == "datetime" else "timedelta64[us]"
            asked = asked.astype(kind).astype(np.int64) / self.format.microseconds
        return torch.as_tensor(np.asarray(asked, dtype=np.float64)) / self.scaler.time_scale_

    def to_state(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return {
            "scaler": self.scaler.to_state(),
            "intensity": self.intensity,
            "scheme": self.scheme,
            "flagged": list(self.flagged),
            "format": dataclasses.asdict(self.format),
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Preparation:
        """What `to_state` described."""
        table = dict(state["format"])
        table["static"] = tuple(
            StaticColumn(column["name"], None if column["categories"] is None else tuple(column["categories"]))
            for column in table["static"]
        )
        return cls(
            SeriesScaler.from_state(state["scaler"]),
            state["intensity"],
            state["scheme"],
            tuple(state["flagged"]),
            TableFormat(**table),
        )

    def template(self) -> IrregularSeries:
        """A series of no rows that looks like the training series: `IrregularSeries.from_long(frame, like=...)`."""
        names, static = self.scaler.channel_names_in_, self.scaler.static_names_in_
        return IrregularSeries(
            times=torch.zeros(0, dtype=torch.float64),
            values=torch.zeros(0, len(names)),
            offsets=torch.zeros(1, dtype=torch.int64),
            static=torch.zeros(0, len(static)),
            ids=np.zeros(0, dtype=object),
            channel_names=names,
            static_names=static,
            roles=tuple("data" for _ in names),
            format=self.format,
        )
