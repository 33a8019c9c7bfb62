"""Shared test data: random ragged series with missing values, all path schemes, and times inside their pieces."""

import numpy as np
import torch

import neuralcde as nc
from neuralcde.paths import PathScheme
from registered import build, cases

NAN = float("nan")

# Name -> case -> options. Every registered scheme is tested; one needs an entry here only if it cannot be made with its
# defaults, or is to be tested with several options.
SCHEME_OPTIONS = {
    "hermite": {"hermite": {"fill": "interpolate"}, "hermite-forward": {"fill": "forward"}},
    "linear": {"linear": {"fill": "interpolate"}, "linear-forward": {"fill": "forward"}},
    "smoothing": {"smoothing": {"penalty": 0.3}},
}
SCHEME_OBJECTS = {case: build(recipe) for case, recipe in cases(PathScheme.registry, SCHEME_OPTIONS).items()}
SCHEMES = {case: scheme.build for case, scheme in SCHEME_OBJECTS.items()}


def even_gaps(rng, count):
    """Gaps between 0.5 and 1.5."""
    return rng.uniform(0.5, 1.5, count)


def wild_gaps(rng, count):
    """Gaps over three orders of magnitude."""
    return 10 ** rng.uniform(-2, 1, count)


def random_series(
    seed, *, count=6, rows=(1, 12), channels=3, missing=0.4, gaps=even_gaps, start=0.0, dtype=torch.float64
):
    """`count` series of `rows[0]` to `rows[1]` rows, with a random share of missing values per channel.

    The shares are drawn below 2 x `missing`, so that some channels are complete and some are never observed.
    """
    rng = np.random.default_rng(seed)
    pairs = []
    for _ in range(count):
        n = rng.integers(rows[0], rows[1] + 1)
        times = start + np.concatenate([[0.0], gaps(rng, n - 1).cumsum()])
        values = rng.standard_normal((n, channels))
        share = rng.uniform(0, 2 * missing, channels) if missing else np.zeros(channels)
        values[rng.random((n, channels)) < share] = np.nan
        pairs.append((times, values))
    return nc.IrregularSeries.from_list(pairs, ids=[f"s{i}" for i in range(count)], dtype=dtype)


def in_every_piece(series, places=(0.1, 0.5, 0.9)):
    """Times (series, k) at these fractions of every gap, and the lengths of the gaps; padded with the start and 0."""
    width = max(int(series.lengths.max()) - 1, 1) * len(places)
    times, durations = np.empty((len(series), width)), np.zeros((len(series), width))
    for i, one in enumerate(series):
        knots = one.times.detach().numpy()
        gap = np.diff(knots)
        asked = (knots[:-1, None] + gap[:, None] * np.array(places)).ravel()
        times[i] = knots[0]
        times[i, : len(asked)] = asked
        durations[i, : len(asked)] = np.repeat(gap, len(places))
    return torch.from_numpy(times), torch.from_numpy(durations)


def at_knots(series):
    """Each series' own knots (series, k), padded with its last one."""
    padded = series.to_padded().times
    return torch.where(padded.isnan(), series.times[series.offsets[1:] - 1][:, None], padded)


def rows_as_block(series):
    """The values (series, k, channels) that belong to `at_knots`, NaN where not observed or padded."""
    return series.to_padded().values


def between(path, low, high):
    """The times at two fractions of every interval."""
    start, end = path.interval.unbind(1)
    return start + low * (end - start), torch.where(torch.tensor(high == 1.0), end, start + high * (end - start))
