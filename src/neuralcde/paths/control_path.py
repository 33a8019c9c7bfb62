"""The path X that drives a controlled differential equation: one class for every scheme."""

from __future__ import annotations

import dataclasses
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..series import IrregularSeries, ragged
from .pieces import piece_offsets

Side = Literal["left", "right"]
Causality = Literal["none", "knots", "everywhere"]


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class ControlPath:
    r"""A batch of continuous paths $X \colon [t_0, t_n] \to \mathbb{R}^{channels}$, one a series, each on its own interval.

    Every scheme gives the same object: pieces that are polynomials in $u \in [0, 1]$,
    $X(t) = \sum_k c_k u^k$ with $u = (t - t_r) / h$ on the piece that starts at row r and lasts h.

    Parameters
    ----------
    series
        The observations that the path was made from.
    coefficients
        (pieces, degree + 1, channels): the pieces of the first series, then those of the second, ...
    pieces_per_gap
        1, or 2 for rectilinear paths, whose every second piece is vertical: it has duration 0.
    scheme
        Name of the function that made the path.
    causality
        Which values of X do not depend on later observations: `"none"`, those at `"knots"`, or `"everywhere"`.

    Examples
    --------
    >>> import neuralcde as nc
    >>> path = nc.linear(nc.IrregularSeries.from_list([([0.0, 1.0, 3.0], [[0.0], [2.0], [3.0]])]))
    >>> path
    ControlPath(linear, 1 series, 1 channels, 2 pieces, float32)
    >>> path.evaluate([0.5, 2.0]).tolist(), path.derivative(1.0).tolist(), path.derivative(1.0, side="left").tolist()
    ([[[1.0], [2.5]]], [[0.5]], [[2.0]])
    """

    series: IrregularSeries
    coefficients: Float[Tensor, "pieces powers channels"]
    pieces_per_gap: int
    scheme: str
    causality: Causality

    def __len__(self) -> int:
        return len(self.series)

    def __repr__(self) -> str:
        return (
            f"ControlPath({self.scheme}, {len(self):,} series, {self.channels} channels, {len(self.coefficients):,} pieces, "
            f"{str(self.dtype).removeprefix('torch.')})"
        )

    @property
    def channels(self) -> int:
        """Number of channels of X."""
        return self.coefficients.shape[2]

    @property
    def degree(self) -> int:
        """Degree of the pieces."""
        return self.coefficients.shape[1] - 1

    @property
    def dtype(self) -> torch.dtype:
        """Type of the coefficients."""
        return self.coefficients.dtype

    @property
    def device(self) -> torch.device:
        """Where the coefficients are."""
        return self.coefficients.device

    @property
    def knots(self) -> Float[Tensor, "rows"]:
        """The observation times of all series, one series after the other (`series.offsets` says where each starts)."""
        return self.series.times

    @property
    def interval(self) -> Float[Tensor, "series 2"]:
        """First and last time of each series."""
        offsets = self.series.offsets
        return torch.stack([self.knots[offsets[:-1]], self.knots[offsets[1:] - 1]], dim=1)

    @property
    def piece_offsets(self) -> Int[Tensor, "bounds"]:
        """Where the pieces of each series start, and their number at the end."""
        return piece_offsets(self.series.offsets, self.pieces_per_gap)

    @property
    def durations(self) -> Float[Tensor, "pieces"]:
        """How long each piece lasts, float64: 0 for vertical pieces and for the piece of a series with one row."""
        offsets, knots, firsts = self.series.offsets, self.knots, self.piece_offsets
        of_piece = ragged.series_of_rows(firsts)
        within = ragged.places_in_series(firsts)
        row = offsets[:-1][of_piece] + within // self.pieces_per_gap
        gap = knots[torch.minimum(row + 1, (offsets[1:] - 1)[of_piece])] - knots[row]
        return gap.masked_fill(within % self.pieces_per_gap == 1, 0.0)

    def evaluate(self, t: Tensor | float | list[float], *, side: Side = "right") -> Float[Tensor, ...]:
        """X(t): (series, channels) for a scalar, (series, k, channels) for times (k,) shared or (series, k) per series.

        `side` matters only where X jumps at a knot, on rectilinear paths: "right" is the value after the jump.
        Differentiable in the coefficients, in the knots and in t.
        """
        piece, u, _ = self._locate(t, side, values=True)
        return self._polynomial(piece, u, order=0, scalar=_is_scalar(t))

    def at_rows(self) -> Float[Tensor, "rows channels"]:
        """X at every row of the series, after a vertical piece where there is one; rows and offsets as in the series."""
        last = self.series.offsets[1:] - 1
        piece = ragged.places_in_series(self.series.offsets) * self.pieces_per_gap
        piece = piece + self.piece_offsets[:-1][ragged.series_of_rows(self.series.offsets)]
        ends = self.piece_offsets[1:] - 1
        values = self.coefficients[piece.index_copy(0, last, ends)][:, 0]
        return values.index_copy(0, last, self.coefficients[ends].sum(1))

    def derivative(
        self, t: Tensor | float | list[float], order: int = 1, *, side: Side = "right"
    ) -> Float[Tensor, ...]:
        r"""$\mathrm{d}^k X / \mathrm{d}t^k$ at t for k = `order` in 1, 2, 3; shapes as in `evaluate`.

        At a knot the derivative of the piece after it (`side="right"`) or before it (`"left"`), at the ends of the
        interval that of the only piece there. Vertical pieces have no derivative and are passed over.
        """
        if order not in (1, 2, 3):
            raise ValueError(f"order must be 1, 2 or 3, got {order!r}.")
        piece, u, duration = self._locate(t, side, values=False)
        slope = self._polynomial(piece, u, order=order, scalar=False)
        # divided in float64: the third power of a short gap is beyond float32
        slope = (slope / torch.where(duration > 0, duration, 1.0)[..., None] ** order).to(self.dtype)
        return slope[:, 0] if _is_scalar(t) else slope

    def increment(self, s: Tensor | float | list[float], t: Tensor | float | list[float]) -> Float[Tensor, ...]:
        """X(t) - X(s); shapes as in `evaluate`."""
        return self.evaluate(t) - self.evaluate(s)

    def __getitem__(self, index: ragged.Index) -> ControlPath:
        return self.at(ragged.positions(index, len(self)))

    def at(self, chosen: slice | Int[Tensor, "chosen"]) -> ControlPath:
        """The paths at these positions, which must be right: indexing without its checks, for the loop of a training."""
        pieces, _ = ragged.select(self.piece_offsets, chosen)
        coefficients = ragged.take(self.coefficients, pieces)
        return dataclasses.replace(self, series=self.series.at(chosen), coefficients=coefficients)

    def to(self, target: torch.device | torch.dtype | str) -> ControlPath:
        """The path on another device or in another precision."""
        return dataclasses.replace(self, series=self.series.to(target), coefficients=self.coefficients.to(target))

    def _locate(
        self, t: Tensor | float | list[float], side: Side, *, values: bool
    ) -> tuple[Int[Tensor, "series k"], Float[Tensor, "series k"], Float[Tensor, "series k"]]:
        """Piece, place u within it and its duration. At the end, values are read after the last vertical piece."""
        if side not in ("left", "right"):
            raise ValueError(f'side must be "left" or "right", got {side!r}.')
        asked = self.asked_times(t)
        offsets, knots = self.series.offsets, self.knots
        row = ragged.last_row_at_or_before(knots.detach(), offsets, asked.detach(), strict=side == "left")
        first, last = offsets[:-1, None], offsets[1:, None] - 1
        row = torch.minimum(row, torch.maximum(last - 1, first))
        duration = knots[torch.minimum(row + 1, last)] - knots[row]
        u = (asked - knots[row]) / torch.where(duration > 0, duration, 1.0)
        piece = self.piece_offsets[:-1, None] + (row - first) * self.pieces_per_gap
        if values and self.pieces_per_gap == 2 and side == "right":
            ended = (asked == knots[last]) & (last > first)
            piece = torch.where(ended, self.piece_offsets[1:, None] - 1, piece)
        return piece, u, duration

    def asked_times(self, t: Tensor | float | list[float]) -> Float[Tensor, "series k"]:
        """Times that a user asks for, as (series, k) in float64; outside a series' interval they are refused."""
        asked = torch.as_tensor(t, dtype=torch.float64, device=self.device)
        if asked.ndim > 2 or (asked.ndim == 2 and len(asked) != len(self)):
            raise ValueError(
                f"t of shape {tuple(asked.shape)} does not fit {len(self)} series; expected a scalar, (k,) shared by all, or "
                f"({len(self)}, k)."
            )
        asked = asked.reshape(1, -1) if asked.ndim < 2 else asked
        asked = asked.expand(len(self), asked.shape[1])
        low, high = self.interval.detach().unbind(1)
        outside = ~((asked >= low[:, None]) & (asked <= high[:, None]))
        if bool(outside.any()):
            i, j = outside.nonzero()[0].tolist()
            raise ValueError(
                f"t={asked[i, j].item()} lies outside series {ragged.series_name(self.series.ids, i)}, which is defined on "
                f"[{low[i].item()}, {high[i].item()}]; X is never extrapolated. Ask each series for times of its own: t of shape "
                f"({len(self)}, k), within path.interval."
            )
        return asked

    def _polynomial(
        self, piece: Int[Tensor, "series k"], u: Float[Tensor, "series k"], *, order: int, scalar: bool
    ) -> Float[Tensor, ...]:
        """The order-th derivative in u, by Horner's rule."""
        coefficients = self.coefficients[piece]
        u = u[..., None].to(self.dtype)
        result = torch.zeros_like(coefficients[:, :, 0])
        for power in range(self.degree, order - 1, -1):
            falling = 1
            for factor in range(power - order + 1, power + 1):
                falling *= factor
            result = result * u + falling * coefficients[:, :, power]
        return result[:, 0] if scalar else result


def _is_scalar(t: Tensor | float | list[float]) -> bool:
    return torch.as_tensor(t).ndim == 0
