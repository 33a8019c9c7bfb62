"""Piecewise cubics through the observations of each channel with given slopes; shared by natural_cubic and hermite."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from .._native import kernels
from .._native.once import once_differentiable
from .._native.transforms import transformed
from ..series import IrregularSeries
from .pieces import in_blocks, own_gaps, piece_offsets

FindSlopes = Callable[[IrregularSeries], Float[Tensor, "rows channels"]]


def cubic_pieces(
    series: IrregularSeries, kind: Literal["natural", "backward"], find_slopes: FindSlopes
) -> Float[Tensor, "pieces 4 channels"]:
    """The coefficients of every piece.

    Parameters
    ----------
    series
        The observations.
    kind
        Which slopes the native kernel computes.
    find_slopes
        The same slopes in plain torch, for when the kernel cannot run.
    """
    if kernels is not None and series.device.type == "cpu" and not transformed():
        return _Native.apply(series.times, series.values, series.offsets, kind)  # type: ignore[no-untyped-call, no-any-return]
    return in_blocks(series, 4, lambda part: in_torch(part, find_slopes))


def in_torch(series: IrregularSeries, find_slopes: FindSlopes) -> Float[Tensor, "pieces 4 channels"]:
    r"""The same in plain torch: the specification of the kernel, and the fallback where the kernel cannot run.

    Between two observations $(t_0, x_0)$ and $(t_1, x_1)$ of a channel, with slopes $d_0$ and $d_1$ there and with
    $q = 1 / (t_1 - t_0)$, $D = (x_1 - x_0) q$ and $s = t - t_0$,

    $$p(s) = x_0 + d_0 s + (3 D - d_1 - 2 d_0) q s^2 + (d_0 + d_1 - 2 D) q^2 s^3.$$

    On a piece of duration h that starts at s, the coefficient of $u^k$ is $h^k p^{(k)}(s) / k!$.
    """
    gaps = own_gaps(series)
    slopes = find_slopes(series)
    known = torch.where(series.values.isnan(), 0.0, series.values).double()
    x0, x1 = known.gather(0, gaps.before), known.gather(0, gaps.after)
    single = gaps.before == gaps.after  # outside the channel's observations X is constant, so its slope is 0
    d0, d1 = (torch.where(single, 0.0, slopes.gather(0, row)) for row in (gaps.before, gaps.after))
    q = 1 / gaps.width
    mean = (x1 - x0) * q
    second, third = (3 * mean - d1 - 2 * d0) * q, (d0 + d1 - 2 * mean) * q * q
    s, h = gaps.since, gaps.duration
    powers = (
        x0 + s * (d0 + s * (second + s * third)),
        h * (d0 + s * (2 * second + 3 * s * third)),
        h * h * (second + 3 * s * third),
        h * h * h * third,
    )
    return torch.stack([torch.where(gaps.none, 0.0, power).to(series.dtype) for power in powers], dim=1)


class _Native(torch.autograd.Function):
    """The native kernel, differentiable once in the times and values."""

    @staticmethod
    def forward(ctx: Any, times: Tensor, values: Tensor, offsets: Int[Tensor, "bounds"], kind: str) -> Tensor:
        assert kernels is not None
        ctx.save_for_backward(times, values, offsets)
        times, values, offsets = times.detach().contiguous(), values.detach().contiguous(), offsets.contiguous()
        coefficients = values.new_empty(int(piece_offsets(offsets, 1)[-1]), 4, values.shape[1])
        kernels.cubic(times, values, offsets, kind, coefficients, torch.get_num_threads())
        ctx.kind = kind
        return coefficients

    @staticmethod
    @once_differentiable(
        "the native kernel of a cubic path cannot be differentiated twice; set NEURALCDE_ISA=none to build paths in "
        "plain torch, which can."
    )
    def backward(ctx: Any, saved: tuple[Tensor, ...], gradient: Tensor) -> tuple[Tensor | None, Tensor, None, None]:
        assert kernels is not None
        times, values, offsets = (part.detach().contiguous() for part in saved)
        to_values = torch.empty_like(values)
        to_times = torch.empty_like(times) if ctx.needs_input_grad[0] else None
        gradient, threads = gradient.contiguous(), torch.get_num_threads()
        kernels.cubic_backward(times, values, offsets, ctx.kind, gradient, to_values, to_times, threads)
        return to_times, to_values, None, None
