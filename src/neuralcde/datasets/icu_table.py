"""A synthetic long table of intensive care stays with irregular times and missing values."""

from __future__ import annotations

import numpy as np
import polars
from numpy.typing import NDArray

Array = NDArray[np.float64]
VITALS = {"pulse": (85.0, 9.0), "pressure": (78.0, 8.0), "oxygen": (96.0, 1.6), "temperature": (37.0, 0.4)}
LABS = {"lactate": (1.6, 0.5), "creatinine": (1.1, 0.3)}


def icu_table(stays: int, seed: int, *, first: int = 0) -> polars.DataFrame:
    """Generate a long table, one row per stay and time: vital signs, laboratory values, age and the outcome.

    Vital signs are measured about hourly, laboratory values less often. In every stay the pulse rises once and the
    blood pressure falls once, each for some hours. Which of the two comes first, and by how much, decides most of the
    outcome, so the order of the rows matters. The rest depends on lactate, age, and how often laboratory values were
    taken (more often in stays that end badly).

    Parameters
    ----------
    stays
        Number of stays.
    seed
        Seed of the random generator. The same seed gives the same table.
    first
        Number of the first stay, for ids that differ from those of another table.

    Returns
    -------
    polars.DataFrame
        Columns "stay", "hour", the vital signs, the laboratory values (null where not measured), "age" and "outcome"
        ("died" or "survived").

    Examples
    --------
    >>> from neuralcde.datasets import icu_table
    >>> table = icu_table(3, seed=0)
    >>> table["stay"].unique(maintain_order=True).to_list()
    ['stay 0000', 'stay 0001', 'stay 0002']
    """
    rng = np.random.default_rng(seed)
    tables = []
    for number in range(first, first + stays):
        hours = rng.uniform(18, 48)
        pulse_up, pressure_down = rng.uniform(0.15, 0.75, 2) * hours
        age, level = rng.normal(62, 14), rng.normal()
        delay = np.tanh((pressure_down - pulse_up) / 4)  # positive if the pressure falls after the pulse rises
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
    """An episode that rises within about an hour before `start` and decays within a few hours after it."""
    since = times - start
    episode: Array = np.where(since < 0, np.exp(since / 0.7), np.exp(-since / 3.0))
    return episode
