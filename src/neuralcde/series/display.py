"""How series show themselves in a notebook: counts and a small picture, and plots of one series."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from markupsafe import Markup

from ..contracts import ArgumentError
from ..figures import DOTS, LINE, number, panels_of, percent, short, sparkline
from .channels import ChannelScales
from .clock import Clock, clock_of
from .irregular_series import IrregularSeries

CHANNELS = 6  # most channels in the picture
POINTS = 200  # most observations of a channel in the picture


def position_of(series: IrregularSeries, id: Any) -> int:
    """The position of the series with this id.

    Raises
    ------
    ArgumentError
        If there is none.
    """
    ids: list[Any] = series.ids.tolist()
    if id in ids:
        return ids.index(id)
    raise ArgumentError(
        f"id: no series has the id {id!r}; the ids are {', '.join(map(repr, ids[:5]))}{', ...' * (len(ids) > 5)}.",
        argument="id",
    )


def as_html(series: IrregularSeries) -> str:
    """Counts of the series, and the observations of the first one."""
    seen = series.observed
    facts = [
        ("series", number(len(series))),
        ("rows", number(len(series.times))),
        ("channels", number(series.channels)),
        ("static features", number(series.static.shape[1])),
    ]
    if len(series):
        lengths = series.lengths
        facts.insert(2, ("rows per series", f"{int(lengths.min()):,} to {int(lengths.max()):,}"))
        facts.append(("observed", percent(float(seen.double().mean())) if seen.numel() else "-"))
    cells = Markup("").join(Markup("<tr><th>{}</th><td>{}</td></tr>").format(*fact) for fact in facts)
    lines = Markup("")
    if len(series):
        first = series.at(slice(0, 1))
        shares = Markup("").join(_channel_line(series, first, k) for k in range(min(series.channels, CHANNELS)))
        more = series.channels - CHANNELS
        rest = Markup("<tr><td>{} more</td></tr>").format(more) if more > 0 else ""
        head = Markup("<tr><th>channel</th><th>observed</th><th>series {}</th></tr>").format(short(first.ids[0], 30))
        lines = Markup("<table>{}{}{}</table>").format(head, shares, rest)
    return str(
        Markup(
            '<div><strong>IrregularSeries</strong><div style="display:flex;gap:2em"><table>{}</table>{}</div></div>'
        ).format(cells, lines)
    )


def _channel_line(series: IrregularSeries, first: IrregularSeries, k: int) -> Markup:
    """One channel: its name, how often it was observed, and a picture of the first series."""
    known = first.values[:, k].isfinite()
    step = max(1, int(known.sum()) // POINTS)
    pairs = list(
        zip(first.times[known].tolist()[::step], first.values[known, k].double().tolist()[::step], strict=True)
    )
    share = percent(float(series.observed[:, k].double().mean()))
    return Markup("<tr><td>{}</td><td>{}</td><td>{}</td></tr>").format(
        short(series.channel_names[k], 30), share, sparkline(pairs) if pairs else "not observed"
    )


def clock_of_series(one: IrregularSeries) -> Clock:
    """The time axis for a plot of one series; the time of scaled series has no unit."""
    if one.scales != ChannelScales():
        return Clock(0.0, 1.0, "time", "")
    return clock_of(one.format, float(one.times[0]), float(one.times[-1]))


def plot_series(series: IrregularSeries, id: Any, channels: Collection[str] | str | None, axes: Any) -> list[Any]:
    """`series.plot(id)`."""
    one = series.at(slice(position_of(series, id), position_of(series, id) + 1))
    channels = [channels] if isinstance(channels, str) else channels
    names = list(series.channel_names) if channels is None else list(channels)
    unknown = [name for name in names if name not in series.channel_names]
    if unknown:
        raise ArgumentError(
            f"channels: there is no channel {unknown[0]!r}; the channels are {list(series.channel_names)}.",
            argument="channels",
        )
    panels = panels_of([short(name, 60) for name in names], axes)
    clock = clock_of_series(one)
    times = clock.on_axis(one.times.detach().cpu().numpy())
    for panel, name in zip(panels, names, strict=True):
        values = one.values[:, series.channel_names.index(name)].detach().cpu().numpy()
        known = values == values
        panel.plot(times[known], values[known], color=LINE, linewidth=1.0)
        panel.plot(times[known], values[known], "o", color=DOTS, markersize=3.5)
    panels[-1].set_xlabel(clock.label)
    return panels
