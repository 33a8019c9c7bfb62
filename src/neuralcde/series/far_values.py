"""Values far outside the usual range of their channel: the rule, the search for them, and the warning."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from .irregular_series import IrregularSeries

FEWEST = 25  # values on one side of the median that the rule needs,
LEAST_SHARE = 0.002  # and the fraction of all values that they must be
TAIL = 0.02  # fraction of them that is not taken as usual
LEAST_TAIL = 2  # number of them that is not taken as usual, at least
FACTOR = 10.0
LARGEST = torch.finfo(torch.float64).max
NAMED = 5  # most channels in a warning


class FarValueWarning(UserWarning):
    """Series hold values far outside the usual range of the training series."""


class UsualRange(NamedTuple):
    r"""The usual values of a channel, and the limits beyond which a value is far outside.

    With $m$ the median, $A$ the training values above it and $h$ their 98 % quantile (the 99 % quantile of all), a
    value is far outside if it is above $h + 10 (h - m)$. If at most 1 % of the values are negative, it must also be
    above $h (h / a)^2$, where $a$ is the median of $A$, because such channels are often skewed to the right. The rule
    for low values is the mirror image. A side with fewer than 25 values or 0.2 %, as in a channel that mostly has its
    highest possible value, takes its distance from the other side.

    If both have fewer, all values are usual, and with k of them above the median, a value is far outside if it is above
    $h + 10 \max(1, 25/k) (h - m)$, where $h$ is the highest value. Wrong training values are not found then.

    The rule holds for the tails of 100,000 normal, exponential, log-normal or Poisson values. It is not affected by up
    to 1 % of wrong values on each side.
    """

    low: float
    high: float
    lowest: float
    highest: float


class FarValue(NamedTuple):
    """A value far outside the usual range of its channel.

    `time` is None for a static feature. `usual` is the range of nearly all training values, `limits` the wider one
    beyond which a value is far outside.
    """

    series: Any
    time: float | None
    channel: str
    value: float
    usual: tuple[float, float]
    limits: tuple[float, float]


def usual_range(ordered: Float[Tensor, " values"]) -> UsualRange | None:
    """The usual range of these training values, which are sorted; None if they are all equal."""
    up, down = _side(ordered), _side(-ordered.flip(0))
    if up is None and down is None:
        up, down = _side_of_few(ordered), _side_of_few(-ordered.flip(0))
    if up is None and down is None:
        return None
    middle = float(ordered[(len(ordered) - 1) // 2])
    high, highest = up or (middle, 0.0)
    low, lowest = (-end for end in down) if down is not None else (middle, 0.0)
    if up is None:
        highest = middle + FACTOR * (middle - low)
    if down is None:
        lowest = middle - FACTOR * (high - middle)
    return UsualRange(low, high, lowest, highest)


def _side(ordered: Float[Tensor, " values"]) -> tuple[float, float] | None:
    """The highest usual value, and the limit above it; None if there are too few values above the median."""
    middle = ordered[(len(ordered) - 1) // 2]
    above = ordered[int(torch.searchsorted(ordered, middle, right=True)) :]
    if len(above) < max(FEWEST, LEAST_SHARE * len(ordered)):
        return None
    outside = max(LEAST_TAIL, int(TAIL * len(above)))
    high, typical = float(above[-1 - outside]), float(above[len(above) // 2])
    limit = high + FACTOR * (high - float(middle))
    if float(ordered[min(int(TAIL / 2 * len(ordered)), len(ordered) - 1)]) >= 0:
        limit = max(limit, high * (high / typical) * (high / typical))
    return high, min(limit, LARGEST)


def _side_of_few(ordered: Float[Tensor, " values"]) -> tuple[float, float] | None:
    """The highest value, and the limit above it; None if it is the median."""
    middle, high = float(ordered[(len(ordered) - 1) // 2]), float(ordered[-1])
    if high == middle:
        return None
    above = len(ordered) - int(torch.searchsorted(ordered, middle, right=True))
    return high, min(high + FACTOR * max(1.0, FEWEST / above) * (high - middle), LARGEST)


@dataclass(frozen=True, eq=False)
class FarColumn:
    """The far values of one channel or static feature: their rows (or series), the values, and the usual range."""

    name: str
    static: bool
    rows: Int[Tensor, " values"]
    values: Float[Tensor, " values"]
    usual: UsualRange

    @property
    def excess(self) -> Float[Tensor, " values"]:
        """How far each value is beyond the usual range, in widths of that range."""
        low, high, _, _ = self.usual
        values = self.values.double()
        return torch.maximum(values - high, low - values) / (high - low)


@dataclass(frozen=True, eq=False)
class FarValues:
    """All far values of some series, by channel."""

    series: IrregularSeries
    columns: tuple[FarColumn, ...]

    @property
    def counts(self) -> dict[str, int]:
        """Number of far values per channel and static feature that has any."""
        return {column.name: len(column.rows) for column in self.columns}

    def listed(self, most: int | None = None) -> list[FarValue]:
        """The far values in the order of series, time and channel; with `most`, only the most extreme ones."""
        cases = [(column, k) for column in self.columns for k in range(len(column.rows))]
        if most is not None and len(cases) > most:
            excess = torch.cat([column.excess for column in self.columns])
            cases = [cases[k] for k in excess.argsort(descending=True, stable=True)[:most].tolist()]
        found = [self._value(column, k) for column, k in cases]
        return [value for _, value in sorted(found, key=lambda pair: pair[0])]

    def removed(self) -> IrregularSeries:
        """The series with far values of channels not observed, and those of static features at the nearest usual value.

        A static feature has no earlier value to fall back on.
        """
        if not self.columns:
            return self.series
        values, static = self.series.values.clone(), self.series.static.clone()
        for column in self.columns:
            if column.static:
                usual = column.values.double().clamp(column.usual.low, column.usual.high)
                static[column.rows, self.series.static_names.index(column.name)] = usual.to(static)
            else:
                values[column.rows, self.series.channel_names.index(column.name)] = torch.nan
        return dataclasses.replace(self.series, values=values, static=static)

    def described(self) -> str:
        """Per channel: the number of far values, and the most extreme one."""
        parts = []
        for column in self.columns[:NAMED]:
            _, worst = self._value(column, int(column.excess.argmax()))
            form, count = self.series.format, len(column.rows)
            when = "" if worst.time is None else f" at {form.time}={form.show(worst.time)}"
            parts.append(
                f"{'static feature' if column.static else 'channel'} {column.name!r}: {count} value"
                f"{'s' * (count > 1)} far outside the usual range {worst.usual[0]:.4g} .. {worst.usual[1]:.4g}, "
                f"e.g. {worst.value:g} in series {worst.series!r}{when}"
            )
        if len(self.columns) > NAMED:
            parts.append(f"and {len(self.columns) - NAMED} more channels")
        return "; ".join(parts)

    def _value(self, column: FarColumn, k: int) -> tuple[tuple[int, float, str], FarValue]:
        """One far value, and its place in the order."""
        series, row = self.series, int(column.rows[k])
        position = row if column.static else int(torch.searchsorted(series.offsets, row, right=True)) - 1
        time = None if column.static else float(series.times[row])
        low, high, *limits = column.usual
        name = series.ids[position : position + 1].tolist()[0]  # 7, not np.int64(7)
        value = FarValue(name, time, column.name, float(column.values[k]), (low, high), (limits[0], limits[1]))
        return (position, -torch.inf if time is None else time, column.name), value


def far_values(
    series: IrregularSeries, usual: Sequence[UsualRange | None], static_usual: Sequence[UsualRange | None]
) -> FarValues:
    """The values beyond the limits of their channel or static feature; None for one without limits."""
    columns = []
    for static, names, values, ranges in (
        (True, series.static_names, series.static, static_usual),
        (False, series.channel_names, series.values, usual),
    ):
        values = values.detach().cpu()
        limits = [(known.lowest, known.highest) if known else (-torch.inf, torch.inf) for known in ranges]
        lowest, highest = torch.tensor(limits, dtype=torch.float64).reshape(-1, 2).to(values.dtype).unbind(1)
        outside = (values < lowest) | (values > highest)
        for place in outside.any(0).nonzero()[:, 0].tolist():
            known, rows = ranges[place], outside[:, place].nonzero()[:, 0]
            assert known is not None
            columns.append(FarColumn(names[place], static, rows, values[rows, place], known))
    return FarValues(series, tuple(columns))
