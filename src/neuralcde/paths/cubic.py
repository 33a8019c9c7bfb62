"""Cubics through each channel's own observations, given their slopes there: what natural_cubic and hermite share."""

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
    """The coefficients of every piece, by the kernel for this kind of slopes, or in torch with `find_slopes`."""
    if kernels is not None and series.device.type == "cpu" and not transformed():
        return _Native.apply(series.times, series.values, series.offsets, kind)  # type: ignore[no-untyped-call, no-any-return]
    return in_blocks(series, 4, lambda part: in_torch(part, find_slopes))


def in_torch(series: IrregularSeries, find_slopes: FindSlopes) -> Float[Tensor, "pieces 4 channels"]:
    r"""The same in plain torch: the specification of the kernel, and what runs where there is none.

    Between two observations of a channel with slopes $d_0$ and $d_1$, with $q = 1 / (t_1 - t_0)$, $D = (x_1 - x_0) q$ and $s = t - t_0$,

    $$p(s) = x_0 + d_0 s + (3 D - d_1 - 2 d_0) q s^2 + (d_0 + d_1 - 2 D) q^2 s^3,$$

    and the coefficients of $u^k$ on a piece of duration h that starts at s are $h^k p^{(k)}(s) / k!$.
    """
    gaps = own_gaps(series)
    slopes = find_slopes(series)
    known = torch.where(series.values.isnan(), 0.0, series.values).double()
    x0, x1 = known.gather(0, gaps.before), known.gather(0, gaps.after)
    single = gaps.before == gaps.after
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
        "the native kernel of a cubic path cannot be differentiated twice; set NEURALCDE_ISA=none to build paths in plain torch, "
        "which can."
    )
    def backward(ctx: Any, saved: tuple[Tensor, ...], gradient: Tensor) -> tuple[Tensor | None, Tensor, None, None]:
        assert kernels is not None
        times, values, offsets = (part.detach().contiguous() for part in saved)
        to_values = torch.empty_like(values)
        to_times = torch.empty_like(times) if ctx.needs_input_grad[0] else None
        gradient, threads = gradient.contiguous(), torch.get_num_threads()
        kernels.cubic_backward(times, values, offsets, ctx.kind, gradient, to_values, to_times, threads)
        return to_times, to_values, None, None
