"""An ICU-like long table out of a seed: irregular, partly observed, with outcomes that depend on when things happen."""

from __future__ import annotations

import numpy as np
import polars
from numpy.typing import NDArray

Array = NDArray[np.float64]
VITALS = {"pulse": (85.0, 9.0), "pressure": (78.0, 8.0), "oxygen": (96.0, 1.6), "temperature": (37.0, 0.4)}
LABS = {"lactate": (1.6, 0.5), "creatinine": (1.1, 0.3)}


def icu_table(stays: int, seed: int, *, first: int = 0) -> polars.DataFrame:
    """A row for each stay and hour: vitals about hourly, laboratory values now and then, age, and the outcome.

    In every stay the pulse once rises and the pressure once falls, for some hours. Whether the pressure follows the pulse or the
    pulse the pressure, and after how long, decides most of the outcome: the same rows in another order mean something else. The
    rest is lactate, age, and how often the laboratory was asked (more often for those who fare badly).
    """
    rng = np.random.default_rng(seed)
    tables = []
    for number in range(first, first + stays):
        hours = rng.uniform(18, 48)
        pulse_up, pressure_down = rng.uniform(0.15, 0.75, 2) * hours
        age, level = rng.normal(62, 14), rng.normal()
        delay = np.tanh((pressure_down - pulse_up) / 4)  # positive: the pressure gives in after the pulse
        asked = rng.gamma(2.0, 0.5)
        odds = 4.5 * delay + 0.8 * level + 0.9 * (asked - 1) + 0.03 * (age - 62) - 1.2
        died = rng.random() < 1 / (1 + np.exp(-odds))

        vitals = np.cumsum(rng.exponential(0.9, int(3 * hours)))
        labs = np.cumsum(rng.exponential(7.0 / (0.4 + asked), int(3 * hours)))
        vitals, labs = vitals[vitals < hours].round(2), labs[labs < hours].round(2)
        times = np.unique(np.concatenate([[0.0], vitals, labs]))
        columns = {}
        for name, (mean, spread) in (VITALS | LABS).items():
            drift = np.interp(times, np.linspace(0, hours, 8), rng.normal(0, 0.4, 8))
            x = drift + 0.3 * rng.normal(size=len(times))
            if name == "pulse":
                x += 3.0 * _episode(times, pulse_up)
            elif name == "pressure":
                x -= 3.0 * _episode(times, pressure_down)
            elif name == "lactate":
                x += 0.8 * level
            seen = np.isin(times, labs if name in LABS else vitals) & (rng.random(len(times)) < 0.75)
            columns[name] = np.where(seen, (mean + spread * x).round(2), np.nan)
        tables.append(
            polars.DataFrame(
                {
                    "stay": [f"stay {number:04d}"] * len(times),
                    "hour": times,
                    **columns,
                    "age": np.full(len(times), round(age)),
                    "outcome": ["died" if died else "survived"] * len(times),
                }
            )
        )
    return polars.concat(tables).fill_nan(None)


def _episode(times: Array, start: float) -> Array:
    """Up within an hour, back within four."""
    since = times - start
    episode: Array = np.where(since < 0, np.exp(since / 0.7), np.exp(-since / 3.0))
    return episode
