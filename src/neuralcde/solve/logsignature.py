"""Log-signatures, of whole paths and over windows of them."""

from __future__ import annotations

import dataclasses
import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..contracts import check_sizes
from ..paths import ControlPath
from ..paths.restriction import parts
from ..series import IrregularSeries, ragged
from ..series.channels import Role
from .signature import signature
from .tensor_logarithm import logarithm, lyndon_words, place_of_word


def logsignature(path: ControlPath, depth: int) -> Float[Tensor, "series words"]:
    r"""The log-signature of every path up to `depth`: the signature without its redundancy.

    $$\log S = \sum_{k \ge 1} \frac{(-1)^{k+1}}{k} (S - 1)^{\otimes k}$$

    for the signature S (`nc.signature`). Products of words of S are sums of longer words, so S has many more numbers
    than it has degrees of freedom. Its logarithm is a Lie series, and has as many coordinates as there are Lyndon
    words. Words of length 1 are the increment of the path, those of length 2 its Levy areas,
    $\frac12 \int (X^i - X^i_0)\, \mathrm{d}X^j - (X^j - X^j_0)\, \mathrm{d}X^i$ for i < j.

    Parameters
    ----------
    path
        A batch of paths, with c channels.
    depth
        N, the length of the longest words, at least 1.

    Returns
    -------
    Tensor
        Shape (series, number of Lyndon words). Entry w is the coefficient of the Lyndon word w in log S, taken as a
        tensor; words by length, then in lexicographic order. This is Signatory's `mode="words"`. The coefficients in
        the Lyndon basis of brackets are a triangular linear map of these, and equal to them up to depth 2.
        Differentiable (once) in the coefficients of the path, and so in the data.

    Raises
    ------
    ValueError
        For a depth below 1, and for more than a million words of the signature.

    Notes
    -----
    Exact on every piece, up to rounding, and computed in float64. Cost: that of the signature, and depth / 2 products
    of signatures per series.

    Examples
    --------
    >>> import neuralcde as nc
    >>> corner = nc.IrregularSeries.from_list([([0.0, 1.0, 2.0], [[0.0, 0.0], [3.0, 0.0], [3.0, 2.0]])])
    >>> [round(word, 4) for word in nc.logsignature(nc.linear(corner), depth=2)[0].tolist()]  # 1, 2, 12
    [3.0, 2.0, 3.0]
    """
    words = signature(_in_float64(path), depth)
    chosen = [place_of_word(word, path.channels) for word in lyndon_words(path.channels, depth)]
    return logarithm(words, path.channels, depth)[:, chosen].to(path.dtype)


def logsignature_windows(
    path: ControlPath, depth: int, *, duration: float | None = None, rows: int | None = None
) -> ControlPath:
    r"""A linear path whose increment over each window is the log-signature of the given path there.

    A CDE driven by it, $\mathrm{d}z = f(z)\, \mathrm{d}L$ with one step per window, is a neural rough differential
    equation (Morrill, Salvi, Kidger and Foster 2021): the log-ODE method with a learnt field. It takes long steps over
    long series, and still sees what the path does within them.

    Parameters
    ----------
    path
        A batch of paths, with c channels.
    depth
        Length of the longest words; with 1, the path is that through the ends of the windows.
    duration
        Duration of a window, in the unit of time of the path. Windows begin at the first row of a series; the last one
        may be shorter. They need not end at rows.
    rows
        Instead of `duration`: number of gaps between rows in a window.

    Returns
    -------
    ControlPath
        One channel for each word of `logsignature`; those of length 1 come first, and start at X(t0), the others at 0.
        Its series has a row at every end of a window, the times and static features of the given one, and channels
        named like the words ("time", "pulse", "time,pulse"). Differentiable as `logsignature` is.

    Raises
    ------
    ValueError
        Unless either a positive duration or a number of rows is given.

    Notes
    -----
    At its rows it depends on observations up to then only (causality `"knots"`), if the given path does so at the ends
    of windows. Its columns have different units: a word of length k scales with the k-th power of the path.

    Examples
    --------
    >>> import neuralcde as nc
    >>> times = [0.0, 1.0, 2.0, 3.0, 4.0]
    >>> square = [[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0], [0.0, 0.0]]
    >>> path = nc.linear(nc.IrregularSeries.from_list([(times, square)]))
    >>> nc.logsignature_windows(path, depth=2, rows=2).at_rows().tolist()  # half of the square is above its diagonal
    [[0.0, 0.0, 0.0], [1.0, 1.0, 0.5], [0.0, 0.0, 1.0]]
    """
    exact = _in_float64(path)
    if (duration is None) == (rows is None):
        raise ValueError(f"give either duration= or rows=, got duration={duration!r} and rows={rows!r}.")
    if duration is not None:
        if not (duration > 0 and math.isfinite(duration)):
            raise ValueError(f"duration must be positive and finite, got {duration!r}.")
        times, offsets = _ends_in_time(path, duration)
    else:
        assert rows is not None
        check_sizes(rows=rows)
        times, offsets = _ends_of_rows(path, rows)
    # Every end of a window but the last one begins one. A series of one row has one window, which is that row.
    alone = ragged.lengths(offsets) == 1
    last = torch.zeros(len(times), dtype=torch.bool, device=path.device)
    last[offsets[1:] - 1] = ~alone
    begin = (~last).nonzero()[:, 0]
    owner = ragged.series_of(offsets, begin)
    windows = parts(exact, owner, times[begin], times[begin + (~alone[owner]).long()])
    found = logsignature(windows, depth)
    start = torch.nn.functional.pad(exact.coefficients[path.piece_offsets[:-1], 0], (0, found.shape[1] - path.channels))
    values = _sums(start, found, offsets, begin)
    coefficients = torch.stack([values[begin], found], dim=1).to(path.dtype)
    at_rows = rows is not None
    causal = path.causality == "everywhere" or (at_rows and path.causality == "knots")
    return ControlPath(
        _series(path, depth, times, values.to(path.dtype), offsets),
        coefficients,
        1,
        "logsignature",
        "knots" if causal else "none",
    )


def _in_float64(path: ControlPath) -> ControlPath:
    if not isinstance(path, ControlPath):
        raise TypeError(
            f"path must be a ControlPath, got {type(path).__name__}; build one with e.g. nc.linear(series)."
        )
    return dataclasses.replace(path, coefficients=path.coefficients.double())


def _ends_of_rows(path: ControlPath, count: int) -> tuple[Float[Tensor, "ends"], Int[Tensor, "bounds"]]:
    """The times of every `count`-th row of each series and of its last row, with the offsets of the series."""
    offsets = path.series.offsets
    kept = ragged.places_in_series(offsets) % count == 0
    kept[offsets[1:] - 1] = True
    return path.knots[kept], torch.nn.functional.pad(kept.cumsum(0), (1, 0))[offsets]


def _ends_in_time(path: ControlPath, duration: float) -> tuple[Float[Tensor, "ends"], Int[Tensor, "bounds"]]:
    """The times every `duration` from the first row of each series, and that of its last row, with the offsets."""
    first, last = path.interval.unbind(1)
    # The small term makes a series of duration 0.3 have 3 windows of 0.1, and not 4 because of rounding.
    counts = ((last - first).detach() / duration - 1e-9).ceil().clamp(min=0).long()
    offsets = ragged.offsets_of(counts + 1)
    of_end, place = ragged.series_of_rows(offsets), ragged.places_in_series(offsets)
    return torch.where(place == counts[of_end], last[of_end], first[of_end] + place.double() * duration), offsets


def _sums(
    start: Float[Tensor, "series words"],
    increments: Float[Tensor, "windows words"],
    offsets: Int[Tensor, "bounds"],
    begin: Int[Tensor, "windows"],
) -> Float[Tensor, "ends words"]:
    """The values at the ends of windows: `start`, and the sums of the increments from there, series by series."""
    of_end, place = ragged.series_of_rows(offsets), ragged.places_in_series(offsets)
    longest = int(ragged.lengths(offsets).max()) if len(start) else 1
    # Padded, because a sum over all series at once would make one depend on the rounding of others.
    block = increments.new_zeros(len(start), longest + 1, increments.shape[1])
    block = block.index_put((of_end[begin], place[begin] + 1), increments)
    return start[of_end] + block.cumsum(1)[of_end, place]


def _series(
    path: ControlPath,
    depth: int,
    times: Float[Tensor, "ends"],
    values: Float[Tensor, "ends words"],
    offsets: Int[Tensor, "bounds"],
) -> IrregularSeries:
    """The series of the ends of windows."""
    given = path.series
    letters, roles = given.channel_names, list(given.roles)
    data: list[Role] = ["data"]
    if len(letters) != path.channels:  # a path through encoded rows
        letters, roles = tuple(f"x{k}" for k in range(path.channels)), data * path.channels
    names = [",".join(letters[letter] for letter in word) for word in lyndon_words(path.channels, depth)]
    return dataclasses.replace(
        given,
        times=times,
        values=values,
        offsets=offsets,
        channel_names=tuple(names),
        roles=(*roles, *data * (len(names) - path.channels)),
    )
