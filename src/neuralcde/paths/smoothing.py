"""Penalised cubic splines for noisy data."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from .._native import kernels
from .._native.transforms import transformed
from ..contracts import Number, Option
from ..series import IrregularSeries
from .control_path import Causality, ControlPath
from .natural_cubic import natural_cubic
from .pieces import blocks, check_series
from .scheme import PathScheme
from .sweeps import by_row, by_step, neighbours


def smoothing(series: IrregularSeries, *, penalty: float) -> ControlPath:
    r"""Smoothing spline: minimises squared error at each channel's observations plus a roughness penalty.

    $$X = \arg\min_g \sum_j (x_j - g(t_j))^2 + \text{penalty} \int g''(t)^2 \, \mathrm{d}t$$

    The minimiser is the natural cubic spline through the smoothed values $(I + \text{penalty}\, K)^{-1} x$, where K is
    the roughness matrix: $\int g''(t)^2 \, \mathrm{d}t = g^T K g$ for the natural cubic spline with values g.
    Reinsch's pentadiagonal solve (1967) computes them. The paper's appendix A allows approximation in place of
    interpolation where data are noisy. The time, count and start channels are exact and are not smoothed.

    Parameters
    ----------
    series
        The observations, usually with a time channel: `series.with_channels()`.
    penalty
        Weight of the roughness, at least 0, in units of time cubed. 0 gives `natural_cubic`; as the penalty grows, X
        tends to the least-squares line. After a `SeriesScaler` (mean gap one), 1 is light and 100 strong smoothing.

    Returns
    -------
    ControlPath
        With pieces of degree 3. Its `series` holds the original observations, not the smoothed values.

    Notes
    -----
    Not causal: X(t) depends on observations after t. Differentiable in the values, not in the times. The map from
    observations to smoothed values is linear and symmetric, so its backward pass is the same solve.
    Cost: O(rows x channels) time.

    Examples
    --------
    >>> import neuralcde as nc
    >>> series = nc.IrregularSeries.from_list([([0.0, 1.0, 2.0, 3.0], [[0.0], [1.0], [0.0], [1.0]])])
    >>> [round(x, 3) for x in nc.smoothing(series, penalty=1e9).evaluate(series.times).flatten().tolist()]
    [0.2, 0.4, 0.6, 0.8]
    """
    check_series(series)
    _check_penalty(penalty)
    if series.times.requires_grad:
        raise ValueError("smoothing is not differentiable in the times; detach them: times.detach().")
    if transformed():
        smoothed = torch.where(_added(series), series.values, in_torch(series, float(penalty)))
    else:
        smoothed = _Smooth.apply(series.values, series, float(penalty))  # type: ignore[no-untyped-call]
    path = natural_cubic(dataclasses.replace(series, values=smoothed))
    return dataclasses.replace(path, series=series, scheme="smoothing", causality=Smoothing.causality)


class _Smooth(torch.autograd.Function):
    """`smooth`, differentiable in the values any number of times."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, series: IrregularSeries, penalty: float) -> Tensor:
        ctx.series, ctx.penalty = dataclasses.replace(series, values=values.detach()), penalty
        return smooth(ctx.series, penalty)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        observed = ctx.series.observed
        # The smoothing matrix is symmetric, so the vector-Jacobian product is the same smoothing, applied to the
        # gradient. Calling _Smooth again makes this backward differentiable in turn.
        masked = torch.where(observed, gradient, torch.nan)
        smoothed = _Smooth.apply(masked, ctx.series, ctx.penalty)  # type: ignore[no-untyped-call]
        return torch.where(observed, smoothed, 0.0), None, None


def smooth(series: IrregularSeries, penalty: float) -> Float[Tensor, "rows channels"]:
    """Smoothed values at the observations, NaN where missing; channels that are not data are copied unchanged."""
    values, offsets = series.values.contiguous(), series.offsets.contiguous()
    smoothed = torch.empty_like(values)
    if kernels is not None and series.device.type == "cpu":
        times = series.times.detach().contiguous()
        kernels.smooth(times, values, offsets, penalty, smoothed, torch.get_num_threads())
    else:
        for part in blocks(series):
            smoothed[int(offsets[part.start]) : int(offsets[part.stop])] = in_torch(series[part], penalty)
    added = _added(series)
    smoothed[:, added] = values[:, added]
    return smoothed


def _added(series: IrregularSeries) -> Bool[Tensor, "channels"]:
    """Mask of the channels that are not data: time, counts, start."""
    return torch.tensor([role != "data" for role in series.roles], device=series.device)


def in_torch(series: IrregularSeries, penalty: float) -> Float[Tensor, "rows channels"]:
    r"""The smoothed values in plain torch: the reference implementation of the kernel, and its fallback.

    The second derivatives $\gamma$ at the inner observations solve $(R + \text{penalty}\, Q^T Q) \gamma = Q^T x$.
    With $q_j = 1 / (t_{j+1} - t_j)$, R is tridiagonal with diagonal $(1/q_{j-1} + 1/q_j)/3$ and off-diagonal
    $1/(6 q_j)$, and column j of Q is $(q_{j-1}, -q_{j-1} - q_j, q_j)$. The smoothed values are
    $x - \text{penalty}\, Q \gamma$.
    """
    # The three bands of the pentadiagonal matrix and the right-hand side `pull` = Q'x, for every row and channel. An
    # observation is inner if its channel has one before and one after it; only those have an equation.
    before, after = neighbours(series)
    known = torch.where(series.observed, series.values, 0.0).double()
    q0, q1 = before.q, after.q
    inner = (q0 > 0) & (q1 > 0)
    q0, q1 = torch.where(inner, q0, 1.0), torch.where(inner, q1, 1.0)
    next_inner = inner & inner.gather(0, after.row)
    q2 = after.q.gather(0, after.row)
    beyond = next_inner & next_inner.gather(0, after.row)
    pull = (known.gather(0, after.row) - known) * q1 - (known - known.gather(0, before.row)) * q0
    diagonal = (1 / q0 + 1 / q1) / 3 + penalty * (q0**2 + (q0 + q1) ** 2 + q1**2)
    one_off = torch.where(next_inner, 1 / (6 * q1) - penalty * q1 * (q0 + 2 * q1 + q2), 0.0)
    two_off = torch.where(beyond, penalty * q1 * q2, 0.0)
    here, pull, diagonal, one_off, two_off = (
        by_step(part, series.offsets) for part in (inner, pull, diagonal, one_off, two_off)
    )

    # Factorisation L D L' with forward substitution. The recurrence reaches back two inner observations of the
    # channel. For these two, `last` and `older` hold (d, l1, l2, b): the entry of D, the two entries of L below its
    # diagonal in that column, and the forward-substituted right-hand side. Rows without an inner observation (`here`
    # is false) leave both unchanged, so that series and channels with different missing values run in one loop.
    zero = torch.zeros_like(pull[0]) if len(pull) else pull
    last: tuple[Tensor, ...] = (zero,) * 4
    older = last
    swept = []
    for step in range(len(pull)):
        (d, l1, l2, b), (older_d, _, older_l2, older_b) = last, older
        new_d = diagonal[step] - l1**2 * d - older_l2**2 * older_d
        new_l1 = (one_off[step] - l1 * l2 * d) / torch.where(here[step], new_d, 1.0)
        new_l2 = two_off[step] / torch.where(here[step], new_d, 1.0)
        new_b = pull[step] - l1 * b - older_l2 * older_b
        new = (new_d, new_l1, new_l2, new_b)
        older = tuple(torch.where(here[step], a, o) for a, o in zip(last, older, strict=True))
        last = tuple(torch.where(here[step], n, a) for n, a in zip(new, last, strict=True))
        swept.append(last)
    # Back substitution: `gamma` and `later` are the solutions at the next inner observation and at the one after it.
    gamma, later, gammas = zero, zero, []
    for step in range(len(pull) - 1, -1, -1):
        d, l1, l2, b = swept[step]
        new_gamma = b / torch.where(here[step], d, 1.0) - l1 * gamma - l2 * later
        gammas.append(torch.where(here[step], new_gamma, 0.0))
        gamma, later = torch.where(here[step], new_gamma, gamma), torch.where(here[step], gamma, later)
    if not gammas:
        return series.values
    # Q gamma: every observation collects from its own column and from those of its neighbours.
    second = by_row(gammas[::-1], series.offsets)
    roughness = -(q0 + q1) * second
    for neighbour in (before, after):
        roughness = roughness + torch.where(neighbour.q > 0, neighbour.q * second.gather(0, neighbour.row), 0.0)
    return torch.where(series.observed, known - penalty * roughness, torch.nan).to(series.dtype)


def _check_penalty(penalty: float) -> None:
    Option(Number(low=0.0), 1.0, "").check("penalty", penalty)


@dataclass
class Smoothing(PathScheme, name="smoothing"):
    """`nc.smoothing` as a path scheme. Not causal.

    Parameters
    ----------
    penalty
        As in `nc.smoothing`. Estimators scale the series first, so that 1 is light and 100 strong smoothing.
    """

    penalty: float = 1.0
    causality: ClassVar[Causality] = "none"

    def __post_init__(self) -> None:
        _check_penalty(self.penalty)

    def build(self, series: IrregularSeries) -> ControlPath:
        """The paths of a batch of series."""
        return smoothing(series, penalty=self.penalty)
