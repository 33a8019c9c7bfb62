"""Building control paths and reading tables, compared with torchcde, scipy and a plain sort."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import polars as pl
import scipy.interpolate
import torch
import torchcde

import neuralcde as nc

from .data import SEPSIS, read_sepsis
from .measure import medians, once, save, show

STEPS, CHANNELS, MISSING = 72, 34, 0.9


def main(chosen: list[str]) -> None:
    tables = {"missing": missing_values, "complete": complete_data, "sepsis": whole_sepsis, "table": long_table}
    for name in chosen or tables:
        save("paths", {name: tables[name]()})


def missing_values() -> list[dict[str, object]]:
    """72 x 34 with 90 % missing values, for as many series as torchcde's natural spline can do in about 10 seconds."""
    generator = torch.Generator().manual_seed(0)

    def block(count: int) -> torch.Tensor:
        values = torch.randn(count, STEPS, CHANNELS, generator=generator)
        values[torch.rand(values.shape, generator=generator) < MISSING] = torch.nan
        values[:, [0, -1], 0] = 0.0  # the first and last row are never empty, so every series keeps its length
        return values

    trial = block(4)
    count = max(8, int(10 / (once(lambda: torchcde.natural_cubic_coeffs(trial)) / 4)))
    few, many = block(count), block(20_000)
    names = [f"c{i}" for i in range(CHANNELS)]
    few_series, many_series = (nc.IrregularSeries.from_padded(x, channels=names) for x in (few, many))
    peers: dict[str, tuple[Callable[..., nc.ControlPath], dict[str, Callable[[], object]]]] = {
        "natural_cubic": (
            nc.natural_cubic,
            {
                "torchcde": lambda: torchcde.natural_cubic_coeffs(few),
                "scipy": lambda: scipy_loop(
                    few.numpy(), lambda t, x: scipy.interpolate.CubicSpline(t, x, bc_type="natural")
                ),
            },
        ),
        "hermite": (
            nc.hermite,
            {"torchcde": lambda: torchcde.hermite_cubic_coefficients_with_backward_differences(few)},
        ),
        "linear": (nc.linear, {"torchcde": lambda: torchcde.linear_interpolation_coeffs(few)}),
    }
    rows: list[dict[str, object]] = []
    for scheme, (ours, others) in peers.items():
        seconds = medians({"few": lambda ours=ours: ours(few_series), "many": lambda ours=ours: ours(many_series)})
        for peer, run in others.items():
            theirs = once(run)
            rows.append(
                {
                    "scheme": scheme,
                    "peer": peer,
                    "series": count,
                    "peer ms/series": 1e3 * theirs / count,
                    "ours ms/series": 1e3 * seconds["few"] / count,
                    "ratio": theirs / seconds["few"],
                    "ours ms/series, 20,000 series": 1e3 * seconds["many"] / len(many),
                    "ratio there": theirs / count / (seconds["many"] / len(many)),
                }
            )
    show(f"Paths, {STEPS} x {CHANNELS}, {MISSING:.0%} missing", rows)
    return rows


def complete_data() -> list[dict[str, object]]:
    values = torch.randn(2858, 182, 4, generator=torch.Generator().manual_seed(0))
    series = nc.IrregularSeries.from_padded(values)
    seconds = medians(
        {"ours": lambda: nc.natural_cubic(series), "torchcde": lambda: torchcde.natural_cubic_coeffs(values)}, repeats=9
    )
    rows: list[dict[str, object]] = [
        {
            "scheme": "natural_cubic",
            "torchcde ms": 1e3 * seconds["torchcde"],
            "ours ms": 1e3 * seconds["ours"],
            "ratio": seconds["torchcde"] / seconds["ours"],
        }
    ]
    show("Paths, 2858 x 182 x 4, complete", rows)
    return rows


def whole_sepsis() -> list[dict[str, object]]:
    found = read_sepsis()
    if found is None:
        print(f"\n{SEPSIS} not found: set NEURALCDE_DATA to the folder that holds it. Skipped.")
        return []
    series = found.series
    schemes: dict[str, Callable[[], nc.ControlPath]] = {
        "natural_cubic": lambda: nc.natural_cubic(series),
        "hermite": lambda: nc.hermite(series),
        "linear": lambda: nc.linear(series),
        'linear, fill="forward"': lambda: nc.linear(series, fill="forward"),
        "rectilinear": lambda: nc.rectilinear(series),
        "smoothing": lambda: nc.smoothing(series, penalty=1.0),
    }
    seconds = medians(schemes, repeats=3)
    rows: list[dict[str, object]] = [{"scheme": name, "ours s": value} for name, value in seconds.items()]
    show(f"Paths, all of sepsis 2019: {series!r}", rows)
    return rows


def long_table() -> list[dict[str, object]]:
    """Reading a million rows of 10,000 series in random order, compared with only sorting them."""
    generator, count = np.random.default_rng(0), 1_000_000
    columns = {f"x{i}": generator.normal(size=count) for i in range(5)}
    table = pd.DataFrame({"id": generator.integers(0, 10_000, count), "time": generator.random(count), **columns})
    frames = {"pandas": table, "polars": pl.from_pandas(table)}
    rows: list[dict[str, object]] = []
    for name, frame in frames.items():
        sort = (
            (lambda: table.sort_values(["id", "time"]))
            if name == "pandas"
            else (lambda: frames["polars"].sort("id", "time"))
        )
        seconds = medians(
            {"read": lambda frame=frame: nc.IrregularSeries.from_long(frame, id="id", time="time"), "sort": sort},
            repeats=5,
        )
        rows.append(
            {
                "frame": name,
                "from_long s": seconds["read"],
                "the frame's own sort s": seconds["sort"],
                "ratio": seconds["read"] / seconds["sort"],
            }
        )
    show("Reading 1,000,000 rows of 10,000 series, 5 channels, rows in random order", rows)
    return rows


def scipy_loop(values: np.ndarray, spline: Callable[[np.ndarray, np.ndarray], object]) -> None:
    """One spline per series and channel, over that channel's own observations."""
    grid = np.arange(values.shape[1], dtype=float)
    for series in values:
        for channel in series.T:
            seen = ~np.isnan(channel)
            if seen.sum() >= 2:
                spline(grid[seen], channel[seen])
