"""Outputs of a model at given times: at each time, the output for the series as it was known then."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..contracts import ArgumentError
from ..models import PathModel, SolvedModel
from ..models.branches import Branches, can_branch
from ..paths import ControlPath, PathScheme
from ..series import IrregularSeries
from ..series.until import check_times, cut_after, rows_at
from .output_checks import check_finite

SERIES = 256  # most series that are solved at once
CELLS = 1 << 22  # most values of truncated series that are held at once

Build = Callable[[IrregularSeries], ControlPath | IrregularSeries]


@torch.no_grad()
def outputs_at(
    model: PathModel, build: Build, scheme: PathScheme, series: IrregularSeries, asked: Tensor
) -> Float[Tensor, "series k outputs"]:
    """The outputs of `model(build(series.until(t)))` for each asked time t; NaN where a series had not begun.

    Parameters
    ----------
    model
        The model.
    build
        Function from series to path; or to prepared series, for a model with an encoder.
    scheme
        The path scheme that `build` uses. If it is causal at rows, each series is solved once, up to its last asked
        time, and then once more per time from the last row before it to the time. Otherwise each truncated series is
        solved.
    series
        The series.
    asked
        Times of shape (k,), or (series, k), in the unit of the series.
    """
    asked = _per_series(series, asked)
    row, begun = rows_at(series, asked)
    found = torch.full((*asked.shape, model.outputs), torch.nan)
    was_training = model.training
    model.eval()
    begun_by_any = begun.any(1).nonzero()[:, 0]
    for part in torch.split(begun_by_any, SERIES) if len(begun_by_any) else ():
        if isinstance(model, SolvedModel) and can_branch(model, scheme):
            found[part] = _on_branches(model, build, scheme, series.at(part), asked[part], begun[part])
            continue
        case, place = begun[part].nonzero().unbind(1)
        case = part[case]
        for some in _in_memory(series, case, row[case, place]):
            at = case[some], place[some]
            found[at] = model(build(cut_after(series, at[0], row[at], asked[at]))).cpu()
    model.train(was_training)
    check_finite(found[begun], series, of_series=begun.nonzero()[:, 0])
    return found


def _on_branches(
    model: SolvedModel, build: Build, scheme: PathScheme, series: IrregularSeries, asked: Tensor, begun: Tensor
) -> Float[Tensor, "series k outputs"]:
    """The outputs of a model whose states at rows do not depend on later rows."""
    row, _ = rows_at(series, asked)
    latest = torch.where(begun, asked, -torch.inf).amax(1)
    base = cut_after(series, torch.arange(len(series)), row.amax(1), latest)
    known = Branches(model, build(base), scheme)
    at, _ = rows_at(base, asked)
    found = torch.full((*asked.shape, model.outputs), torch.nan)
    exact = begun & (base.times[at] == asked)
    found[exact] = known.at_rows(at[exact].to(known.path.device)).cpu()
    case, place = (begun & ~exact).nonzero().unbind(1)
    for some in _in_memory(base, case, at[case, place]):
        here = case[some], place[some]
        branches = build(cut_after(base, here[0], at[here], asked[here]))
        found[here] = known.after_rows(at[here].to(branches.device), branches).cpu()
    return found


def truncated_series(
    series: IrregularSeries, asked: Tensor
) -> Iterator[tuple[tuple[Int[Tensor, " cases"], Int[Tensor, " cases"]], IrregularSeries]]:
    """`series.until(t)` for each asked time t at which a series had begun, as many at once as fit in memory.

    Gives the positions (series, k) of these cases, and their truncated series.
    """
    asked = _per_series(series, asked)
    row, begun = rows_at(series, asked)
    case, place = begun.nonzero().unbind(1)
    for some in _in_memory(series, case, row[case, place]):
        at = case[some], place[some]
        yield at, cut_after(series, at[0], row[at], asked[at])


def _per_series(series: IrregularSeries, asked: Tensor) -> Float[Tensor, "series k"]:
    if asked.ndim > 2 or (asked.ndim == 2 and len(asked) != len(series)):
        raise ArgumentError(
            f"times of shape {tuple(asked.shape)} do not fit {len(series)} series; expected (k,) for all series, or "
            f"({len(series)}, k).",
            argument="times",
        )
    check_times(asked, argument="times")
    return asked if asked.ndim == 2 else asked.reshape(1, -1).expand(len(series), -1)


def _in_memory(
    series: IrregularSeries, case: Int[Tensor, " cases"], row: Int[Tensor, " cases"]
) -> Iterator[Int[Tensor, " some"]]:
    """Ranges of cases such that the rows of their truncated series fit in memory together."""
    rows = (row - series.offsets[case] + 2).cumsum(0)
    block = (rows - 1) * series.channels // CELLS
    for some in torch.split(torch.arange(len(case)), torch.unique_consecutive(block, return_counts=True)[1].tolist()):
        if len(some):
            yield some
