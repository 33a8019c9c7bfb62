"""The control path X, which drives a controlled differential equation; one class for every scheme."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from ..series import IrregularSeries, ragged
from .pieces import piece_offsets

Side = Literal["left", "right"]
Causality = Literal["none", "knots", "everywhere"]
Times = Tensor | NDArray[Any] | float | Sequence[Any]  # a number, (k,) or (series, k)
Ends = Tensor | NDArray[Any] | float | Sequence[float]  # a number, or (series,)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class ControlPath:
    r"""A batch of continuous paths $X \colon [t_0, t_n] \to \mathbb{R}^{channels}$, one per series.

    Each series has its own interval $[t_0, t_n]$. X is a piecewise polynomial: on the piece that starts at row r and
    has duration h, $X(t) = \sum_k c_k u^k$ with $u = (t - t_r) / h \in [0, 1]$.

    Parameters
    ----------
    series
        The observations that the path was made from.
    coefficients
        Polynomial coefficients $c_k$, shape (pieces, degree + 1, channels). The pieces of the first series come first,
        then those of the second, and so on.
    pieces_per_gap
        1; or 2 for rectilinear paths, in which every second piece is vertical (it has duration 0).
    scheme
        Name of the scheme that made the path.
    causality
        Where X(t) depends only on observations up to t: at all t (`"everywhere"`), at `"knots"`, or nowhere (`"none"`).

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
            f"ControlPath({self.scheme}, {len(self):,} series, {self.channels} channels, "
            f"{len(self.coefficients):,} pieces, {str(self.dtype).removeprefix('torch.')})"
        )

    def plot(self, id: Any, *, axes: Any = None) -> list[Any]:
        """Plot the path of one series with its observations: a panel per channel, on these axes or on new ones."""
        from .path_plot import plot_path  # that module imports figures, which few need

        return plot_path(self, id, axes)

    @property
    def channels(self) -> int:
        """Number of channels of X."""
        return self.coefficients.shape[2]

    @property
    def degree(self) -> int:
        """Degree of the polynomials."""
        return self.coefficients.shape[1] - 1

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the coefficients."""
        return self.coefficients.dtype

    @property
    def device(self) -> torch.device:
        """The device of the coefficients."""
        return self.coefficients.device

    @property
    def knots(self) -> Float[Tensor, "rows"]:
        """The observation times of all series, concatenated; `series.offsets` says where each series starts."""
        return self.series.times

    @property
    def interval(self) -> Float[Tensor, "series 2"]:
        """First and last time of each series."""
        offsets = self.series.offsets
        return torch.stack([self.knots[offsets[:-1]], self.knots[offsets[1:] - 1]], dim=1)

    @property
    def piece_offsets(self) -> Int[Tensor, "bounds"]:
        """Index of the first piece of each series; the last entry is the total number of pieces."""
        return piece_offsets(self.series.offsets, self.pieces_per_gap)

    @property
    def durations(self) -> Float[Tensor, "pieces"]:
        """Duration of each piece, float64; 0 for vertical pieces and for the only piece of a series with one row."""
        offsets, knots, firsts = self.series.offsets, self.knots, self.piece_offsets
        of_piece = ragged.series_of_rows(firsts)
        within = ragged.places_in_series(firsts)
        row = offsets[:-1][of_piece] + within // self.pieces_per_gap
        gap = knots[torch.minimum(row + 1, (offsets[1:] - 1)[of_piece])] - knots[row]
        return gap.masked_fill(within % self.pieces_per_gap == 1, 0.0)

    def evaluate(self, t: Times, *, side: Side = "right") -> Float[Tensor, "series *k channels"]:
        """X(t), differentiable in the coefficients, in the knots and in t.

        Parameters
        ----------
        t
            A time, k times of shape (k,) shared by all series, or times of shape (series, k).
        side
            Matters only for rectilinear paths, which jump at knots: "right" is the value after the jump, "left" before.

        Returns
        -------
        Tensor
            Shape (series, channels) for a scalar t, otherwise (series, k, channels).
        """
        piece, u, _ = self._locate(t, side, values=True)
        return self._polynomial(piece, u, order=0, scalar=_is_scalar(t))

    def at_rows(self) -> Float[Tensor, "rows channels"]:
        """X at every row of the series, in the order of its rows; on rectilinear paths, after the jump."""
        # At a row where a piece starts, X is the piece's constant coefficient. The last row of a series starts no
        # piece: there X is the end of the last piece (u = 1), the sum of its coefficients.
        last = self.series.offsets[1:] - 1
        piece = ragged.places_in_series(self.series.offsets) * self.pieces_per_gap
        piece = piece + self.piece_offsets[:-1][ragged.series_of_rows(self.series.offsets)]
        ends = self.piece_offsets[1:] - 1
        values = self.coefficients[piece.index_copy(0, last, ends)][:, 0]
        return values.index_copy(0, last, self.coefficients[ends].sum(1))

    def derivative(self, t: Times, order: int = 1, *, side: Side = "right") -> Float[Tensor, "series *k channels"]:
        r"""$\mathrm{d}^k X / \mathrm{d}t^k$ at t for k = `order` in 1, 2, 3; shapes as in `evaluate`.

        At a knot it is the derivative of the piece after it (`side="right"`) or before it (`"left"`); at an end of the
        interval, that of the only adjacent piece. Vertical pieces have no derivative and are skipped.
        """
        if order not in (1, 2, 3):
            raise ValueError(f"order must be 1, 2 or 3, got {order!r}.")
        piece, u, duration = self._locate(t, side, values=False)
        slope = self._polynomial(piece, u, order=order, scalar=False)
        # Divided in float64: the third power of a short gap underflows in float32.
        slope = (slope / torch.where(duration > 0, duration, 1.0)[..., None] ** order).to(self.dtype)
        return slope[:, 0] if _is_scalar(t) else slope

    def increment(self, s: Times, t: Times) -> Float[Tensor, "series *k channels"]:
        """X(t) - X(s); shapes as in `evaluate`."""
        return self.evaluate(t) - self.evaluate(s)

    def __getitem__(self, index: ragged.Index) -> ControlPath:
        return self.at(ragged.positions(index, len(self)))

    def at(self, chosen: slice | Int[Tensor, "chosen"]) -> ControlPath:
        """The paths at these positions: like indexing, but without checks, for use in a training loop."""
        pieces, _ = ragged.select(self.piece_offsets, chosen)
        coefficients = ragged.take(self.coefficients, pieces)
        return dataclasses.replace(self, series=self.series.at(chosen), coefficients=coefficients)

    def restrict(self, start: Ends | None = None, end: Ends | None = None) -> ControlPath:
        """The paths on a part of their intervals, on which a solve then runs: z from `start` to `end`.

        X is the same function there: its pieces are cut, not interpolated again. Differentiable in the coefficients, in
        the knots, in `start` and in `end`.

        Parameters
        ----------
        start, end
            One time for all series, or one per series; None for the first or last time of each series.

        Returns
        -------
        ControlPath
            Its rows are those of the series from `start` to `end`. Where an end is not at a row, a row without any
            observation is added there. A model with jumps has them at the rows of the part: at an end that is at a row
            too, but not at added rows, and gaps since the last observation begin anew.

        Raises
        ------
        ValueError
            If a time lies outside its series, or `start` after `end`.

        Notes
        -----
        The t that a field is called with counts from the start of the part. A path that looks ahead to the next row
        between knots (causality `"knots"`) has causality `"none"` if it is cut there.

        Examples
        --------
        >>> import neuralcde as nc
        >>> path = nc.linear(nc.IrregularSeries.from_list([([0.0, 1.0, 3.0], [[0.0], [2.0], [6.0]])]))
        >>> part = path.restrict(0.5, 2.0)
        >>> part.knots.tolist(), part.at_rows()[:, 0].tolist()
        ([0.5, 1.0, 2.0], [1.0, 2.0, 4.0])
        """
        from .restriction import restricted  # that module imports this one

        return restricted(self, start, end)

    def to(self, target: torch.device | torch.dtype | str) -> ControlPath:
        """The path on another device, or with another dtype."""
        return dataclasses.replace(self, series=self.series.to(target), coefficients=self.coefficients.to(target))

    def locate(self, t: Times) -> tuple[Int[Tensor, "series k"], Float[Tensor, "series k"], Float[Tensor, "series k"]]:
        """The piece that each time lies in (the later one at a knot), the point u in it, and the piece's duration."""
        return self._locate(t, "right", values=False)

    def _locate(
        self, t: Times, side: Side, *, values: bool
    ) -> tuple[Int[Tensor, "series k"], Float[Tensor, "series k"], Float[Tensor, "series k"]]:
        """The piece that each time lies in, the position u within it, and the piece's duration."""
        if side not in ("left", "right"):
            raise ValueError(f'side must be "left" or "right", got {side!r}.')
        asked = self.asked_times(t)
        offsets, knots = self.series.offsets, self.knots
        row = ragged.last_row_at_or_before(knots.detach(), offsets, asked.detach(), strict=side == "left")
        first, last = offsets[:-1, None], offsets[1:, None] - 1
        # No piece starts at the last row: the end of the interval belongs to the piece before it.
        row = torch.minimum(row, torch.maximum(last - 1, first))
        duration = knots[torch.minimum(row + 1, last)] - knots[row]
        u = (asked - knots[row]) / torch.where(duration > 0, duration, 1.0)
        piece = self.piece_offsets[:-1, None] + (row - first) * self.pieces_per_gap
        # On a rectilinear path, X at the very end is the value after the last jump, which only the vertical piece has.
        if values and self.pieces_per_gap == 2 and side == "right":
            ended = (asked == knots[last]) & (last > first)
            piece = torch.where(ended, self.piece_offsets[1:, None] - 1, piece)
        return piece, u, duration

    def asked_times(self, t: Times) -> Float[Tensor, "series k"]:
        """Broadcast times to shape (series, k) in float64; times outside a series' interval raise `ValueError`."""
        asked = torch.as_tensor(t, dtype=torch.float64, device=self.device)
        if asked.ndim > 2 or (asked.ndim == 2 and len(asked) != len(self)):
            raise ValueError(
                f"t of shape {tuple(asked.shape)} does not fit {len(self)} series; expected a scalar, (k,) shared by "
                f"all, or ({len(self)}, k)."
            )
        asked = asked.reshape(1, -1) if asked.ndim < 2 else asked
        asked = asked.expand(len(self), asked.shape[1])
        low, high = self.interval.detach().unbind(1)
        outside = ~((asked >= low[:, None]) & (asked <= high[:, None]))
        if bool(outside.any()):
            i, j = outside.nonzero()[0].tolist()
            raise ValueError(
                f"t={asked[i, j].item()} lies outside series {ragged.series_name(self.series.ids, i)}, which is "
                f"defined on [{low[i].item()}, {high[i].item()}]; X is never extrapolated. Pass times per series, t of "
                f"shape ({len(self)}, k), within path.interval."
            )
        return asked

    def _polynomial(
        self, piece: Int[Tensor, "series k"], u: Float[Tensor, "series k"], *, order: int, scalar: bool
    ) -> Float[Tensor, "series *k channels"]:
        """The derivative of the given order with respect to u, by Horner's rule."""
        coefficients = self.coefficients[piece]
        u = u[..., None].to(self.dtype)
        result = torch.zeros_like(coefficients[:, :, 0])
        for power in range(self.degree, order - 1, -1):
            falling = 1  # factor that differentiating u**power brings down: power (power - 1) ... (power - order + 1)
            for factor in range(power - order + 1, power + 1):
                falling *= factor
            result = result * u + falling * coefficients[:, :, power]
        return result[:, 0] if scalar else result


def _is_scalar(t: Times) -> bool:
    return torch.as_tensor(t).ndim == 0
