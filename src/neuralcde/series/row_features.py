"""Row features: what is known about each channel at each row, from the rows up to it alone."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from .._native import kernels
from .._native.once import once_differentiable
from .._native.transforms import transformed
from ..contracts.errors import Argument, ArgumentError
from . import ragged
from .channels import cumulative_counts, time_since_start

FAMILIES = ("last", "mean", "deviation", "minimum", "maximum", "observed", "seen", "count", "elapsed")
INTENSITY_FAMILIES = ("observed", "seen", "count", "elapsed")
"""The families that tell when something was measured."""


def row_features(
    times: Float[Tensor, " rows"],
    values: Float[Tensor, "rows channels"],
    offsets: Int[Tensor, " bounds"],
    families: Sequence[str],
) -> Float[Tensor, "rows features"]:
    r"""Features of every row that depend on this row and on earlier rows of the same series only.

    Each family has one feature per channel. At a row, over the $n$ observations $x_1, \dots, x_n$ of the channel up to
    and including this row:

    - `last`: $x_n$; `mean`: their mean $m_n$; `minimum` and `maximum`: their extremes. 0 if $n = 0$.
    - `deviation`: the population standard deviation; 0 if $n < 2$. By Welford's update
      $s_n = s_{n-1} + (x_n - m_{n-1}) (x_n - m_n)$, which is accurate where the mean is large.
    - `observed`: 1 if the channel is observed at this row. `seen`: 1 if $n > 0$. `count`: $\log(1 + n)$.
    - `elapsed`: $\log(1 + \Delta)$, with $\Delta$ the time since the last observation of the channel, or since the
      first row of the series if $n = 0$.

    Parameters
    ----------
    times
        Increasing within each series.
    values
        NaN where a channel is not observed.
    offsets
        The rows of series i are `offsets[i]` to `offsets[i + 1] - 1`.
    families
        Names from `FAMILIES`, each at most once.

    Returns
    -------
    Tensor
        Family by family in the order given, with the channels in order within a family; dtype of the values.

    Raises
    ------
    ArgumentError
        If a family is unknown or named twice.

    Notes
    -----
    Computed in float64. Differentiable in the values, except for `INTENSITY_FAMILIES`. Where several rows share an
    extreme, the first of them receives the gradient. A deviation of 0 has the gradient 0.

    Examples
    --------
    >>> import torch
    >>> times, offsets = torch.tensor([0.0, 1.0, 3.0], dtype=torch.float64), torch.tensor([0, 3])
    >>> values = torch.tensor([[2.0], [float("nan")], [4.0]])
    >>> row_features(times, values, offsets, ["last", "mean", "observed"]).tolist()
    [[2.0, 2.0, 1.0], [2.0, 2.0, 0.0], [4.0, 3.0, 1.0]]
    """
    check_families(families)
    if kernels is not None and values.device.type == "cpu" and not transformed():
        numbers = [FAMILIES.index(name) for name in families]
        return _Native.apply(times, values, offsets, numbers)  # type: ignore[no-untyped-call, no-any-return]
    return in_torch(times, values, offsets, families)


class _Shared:
    """The row features of some values, of all families that were asked for so far."""

    def __init__(self, values: Tensor):
        self.values = values
        self.channels = slice(0)
        self.families: tuple[str, ...] = ()
        self.features: Tensor | None = None

    def have(self, channels: slice, families: Sequence[str]) -> bool:
        """Whether the features of these families are known."""
        return self.features is not None and self.channels == channels and set(families) <= set(self.families)


_SHARED: ContextVar[_Shared | None] = ContextVar("shared row features", default=None)


@contextlib.contextmanager
def features_shared(values: Float[Tensor, "rows channels"]) -> Iterator[None]:
    """A context in which `shared_row_features` of this very tensor are computed once, whoever asks for them.

    The parts of a model, and the members of an ensemble, read the same features of a batch.
    """
    known = _SHARED.get()
    if (known is not None and known.values is values) or values.requires_grad:
        yield
        return
    token = _SHARED.set(_Shared(values))
    try:
        yield
    finally:
        _SHARED.reset(token)


def shared_row_features(
    times: Float[Tensor, " rows"],
    values: Float[Tensor, "rows all"],
    channels: slice,
    offsets: Int[Tensor, " bounds"],
    families: Sequence[str],
    rows: Int[Tensor, "*cases"] | None = None,
) -> Float[Tensor, "*cases features"]:
    """`row_features` of some channels, at all rows or at some, without computing again what is known in the context."""
    shared = _SHARED.get()
    if shared is None or shared.values is not values:
        shared = _Shared(values)
    if not shared.have(channels, families):
        shared.features = row_features(times, values[:, channels], offsets, families)
        shared.channels, shared.families = channels, tuple(families)
    assert shared.features is not None
    found = shared.features if rows is None else shared.features[rows]
    if tuple(families) == shared.families:
        return found
    width = channels.stop - channels.start
    starts = (shared.families.index(name) * width for name in families)
    return torch.cat([found[..., start : start + width] for start in starts], dim=-1)


def check_families(families: Sequence[str], *, argument: str = "families") -> None:
    """Raise an error, which names the argument, if a family is unknown or named twice."""
    known = ", ".join(FAMILIES)
    if isinstance(families, str):
        raise ArgumentError(Argument(argument), f" must be a list of names, got {families!r}; known: {known}.")
    unknown = [name for name in families if name not in FAMILIES]
    if unknown:
        raise ArgumentError(Argument(argument), f" has the unknown name {unknown[0]!r}; known: {known}.")
    twice = [name for place, name in enumerate(families) if name in families[:place]]
    if twice:
        raise ArgumentError(Argument(argument), f" has {twice[0]!r} twice; name each at most once. Known: {known}.")


def in_torch(
    times: Float[Tensor, " rows"],
    values: Float[Tensor, "rows channels"],
    offsets: Int[Tensor, " bounds"],
    families: Sequence[str],
) -> Float[Tensor, "rows features"]:
    """The same in plain torch: the specification of the kernel, and the fallback where the kernel cannot run."""
    observed = ~values.isnan()
    # Rows of the observations that a feature is read from: the last one, or the one with the running extreme.
    last = ragged.last_observed_row(observed, offsets)
    known = torch.where(observed, values, 0.0).double()

    def read(row: Tensor) -> Tensor:
        return torch.where(row >= 0, known.gather(0, row.clamp(min=0)), 0.0)

    def elapsed() -> Tensor:
        since = times[:, None] - times[last.clamp(min=0)]
        return torch.where(last >= 0, since, time_since_start(times, offsets)[:, None]).log1p()

    scan = _Scan(known, observed, offsets, families)
    makers = {
        "last": lambda: read(last),
        "mean": lambda: scan.mean,
        "deviation": lambda: scan.deviation,
        "minimum": lambda: read(scan.lowest_row),
        "maximum": lambda: read(scan.highest_row),
        "observed": lambda: observed,
        "seen": lambda: last >= 0,
        "count": lambda: cumulative_counts(observed, offsets).double().log1p(),
        "elapsed": elapsed,
    }
    columns = [makers[name]().to(values.dtype) for name in families]
    return torch.cat(columns, 1) if columns else values.new_empty(len(values), 0)


class _Native(torch.autograd.Function):
    """The native kernel, differentiable once in the values."""

    @staticmethod
    def forward(ctx: Any, times: Tensor, values: Tensor, offsets: Tensor, families: list[int]) -> Tensor:
        assert kernels is not None
        ctx.save_for_backward(times, values, offsets)
        ctx.families = families
        times, values, offsets = times.detach().contiguous(), values.detach().contiguous(), offsets.contiguous()
        features = values.new_empty(len(values), len(families) * values.shape[1])
        kernels.row_features(times, values, offsets, families, features, torch.get_num_threads())
        return features

    @staticmethod
    @once_differentiable(
        "the native kernel of row features cannot be differentiated twice; set NEURALCDE_ISA=none to compute them in "
        "plain torch, which can."
    )
    def backward(ctx: Any, saved: tuple[Tensor, ...], gradient: Tensor) -> tuple[None, Tensor, None, None]:
        assert kernels is not None
        times, values, offsets = (part.detach().contiguous() for part in saved)
        to_values, threads = torch.empty_like(values), torch.get_num_threads()
        kernels.row_features_backward(times, values, offsets, ctx.families, gradient.contiguous(), to_values, threads)
        return None, to_values, None, None


class _Scan:
    """Running statistics of each channel, in a loop over the rows of a series; step k works on the k-th row of each."""

    def __init__(self, known: Tensor, observed: Tensor, offsets: Tensor, families: Sequence[str]):
        self.mean = self.deviation = torch.zeros_like(known)
        self.lowest_row = self.highest_row = torch.full(known.shape, -1, device=known.device)
        if not len(known) or not {"mean", "deviation", "minimum", "maximum"} & set(families):
            return
        steps = int(ragged.lengths(offsets).max())
        shape = (len(offsets) - 1, known.shape[1])
        count, mean, squares = (known.new_zeros(shape) for _ in range(3))
        low, high = known.new_full(shape, torch.inf), known.new_full(shape, -torch.inf)
        low_row = torch.full(shape, -1, device=known.device)
        high_row, results = low_row, []
        for step in range(steps):
            # A series that has ended stays at its last row, where nothing counts as observed; it is not read again.
            row = torch.minimum(offsets[:-1] + step, offsets[1:] - 1)
            going = (offsets[:-1] + step < offsets[1:])[:, None]
            here, x = observed[row] & going, known[row]
            count = count + here
            new_mean = mean + (x - mean) / count.clamp(min=1)
            squares = torch.where(here, squares + (x - mean) * (x - new_mean), squares)
            mean = torch.where(here, new_mean, mean)
            lower, higher = here & (x.detach() < low), here & (x.detach() > high)
            low, high = torch.where(lower, x.detach(), low), torch.where(higher, x.detach(), high)
            low_row, high_row = torch.where(lower, row[:, None], low_row), torch.where(higher, row[:, None], high_row)
            # The root of 0 has an infinite derivative; the inner `where` keeps it out of the graph.
            positive = squares > 0
            variance = torch.where(positive, squares / count.clamp(min=1), 1.0)
            results.append((mean, torch.where(positive, variance.sqrt(), 0.0), low_row, high_row))
        place, series = ragged.places_in_series(offsets), ragged.series_of_rows(offsets)
        self.mean, self.deviation, self.lowest_row, self.highest_row = (
            torch.stack(part)[place, series] for part in zip(*results, strict=True)
        )
