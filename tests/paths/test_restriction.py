"""Paths on parts of their intervals."""

import dataclasses

import pytest
import torch

import neuralcde as nc
from ragged_cases import SCHEMES, between
from solve_cases import some_path

SHARES = [(0.0, 0.4), (0.13, 0.77), (0.5, 0.5), (0.6, 1.0), (0.0, 1.0), (1.0, 1.0), (0.0, 0.0)]


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("shares", SHARES)
def test_the_same_function_on_the_part(scheme, shares):
    """Values and derivatives at random times; every derivative inside pieces."""
    path = some_path(1, scheme=scheme, rows=(1, 7))
    low, high = between(path, *shares)
    part = path.restrict(low, high)
    torch.testing.assert_close(part.interval, torch.stack([low, high], 1))
    asked = low[:, None] + (high - low)[:, None] * torch.rand(9, generator=torch.Generator().manual_seed(0)).double()
    torch.testing.assert_close(part.evaluate(asked), path.evaluate(asked), rtol=1e-11, atol=1e-11)
    if shares[0] < shares[1]:
        for order in (1, 2, 3):
            expected = path.derivative(asked, order)
            torch.testing.assert_close(part.derivative(asked, order), expected, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(part.evaluate(high[:, None]), path.evaluate(high[:, None]), rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(part.at_rows()[part.series.offsets[:-1]], path.evaluate(low[:, None])[:, 0])
    assert len(part.coefficients) == part.piece_offsets[-1]
    assert (part.series.lengths >= 1).all()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_whole_interval_is_the_path_itself(scheme):
    path = some_path(2, scheme=scheme, rows=(1, 6))
    for part in (path.restrict(), path.restrict(*path.interval.unbind(1)), path.restrict(end=path.interval[:, 1])):
        assert torch.equal(part.coefficients, path.coefficients)
        assert torch.equal(part.knots, path.knots)
        assert torch.equal(part.series.values.nan_to_num(7.0), path.series.values.nan_to_num(7.0))
        assert torch.equal(part.series.offsets, path.series.offsets)
        assert part.causality == path.causality


def test_rows_of_the_part():
    """Rows are kept, also at the ends; where a part ends between rows, one without observations is added."""
    values = [[float(k), -float(k)] for k in range(5)]
    series = nc.IrregularSeries.from_list([(range(5), values)] * 2, ids=["a", "b"], static=[[1.0], [2.0]])
    path = nc.linear(series, fill="forward")
    part = path.restrict([1.0, 0.5], [3.0, 2.25])
    assert part.knots.tolist() == [1, 2, 3, 0.5, 1, 2, 2.25]
    assert part.series.offsets.tolist() == [0, 3, 7]
    assert part.series.values[:, 0].nan_to_num(-1.0).tolist() == [1, 2, 3, -1, 1, 2, -1]
    assert part.series.ids.tolist() == ["a", "b"]
    assert part.series.static.tolist() == [[1.0], [2.0]]
    assert part.at_rows()[:, 0].tolist() == [1, 2, 3, 0.5, 1, 2, 2.25]
    assert part.causality == "none"  # at 0.5 and 2.25 the path looks ahead to the next row
    assert path.restrict(1.0, 3.0).causality == "knots"
    assert nc.rectilinear(series).restrict(0.5, 2.25).causality == "everywhere"


def test_gradcheck():
    path = some_path(7, count=2, rows=(3, 4), channels=2)
    for scheme in (path, some_path(7, scheme="rectilinear", count=2, rows=(3, 4), channels=2)):

        def pieces(coefficients, low, high, scheme=scheme):
            return dataclasses.replace(scheme, coefficients=coefficients).restrict(low, high).coefficients

        ends = (x.requires_grad_() for x in between(scheme, 0.2, 0.7))
        assert torch.autograd.gradcheck(pieces, (scheme.coefficients.requires_grad_(), *ends))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_batches_and_precision(dtype):
    """Each series alone gives the same part; in single precision the coefficients are those of double, rounded."""
    path = some_path(9, dtype=dtype, rows=(2, 6))
    low, high = between(path, 0.2, 0.9)
    part = path.restrict(low, high)
    assert part.dtype == dtype
    torch.testing.assert_close(part.coefficients, path.to(torch.float64).restrict(low, high).coefficients.to(dtype))
    for i in range(len(path)):
        alone = path[i].restrict(low[i].item(), high[i].item())
        assert torch.equal(alone.coefficients, part[i].coefficients)
        assert torch.equal(alone.knots, part[i].knots)


@pytest.mark.wrong_types
def test_invalid_ends():
    path = nc.linear(nc.IrregularSeries.from_list([([0.0, 1.0], [0.0, 1.0]), ([0.0, 3.0], [0.0, 1.0])]))
    with pytest.raises(ValueError, match=r"t=2.0 lies outside series 0, which is defined on \[0.0, 1.0\]"):
        path.restrict(0.5, 2.0)
    with pytest.raises(ValueError, match=r"start=0.75 lies after end=0.5 for series 0; exchange the two"):
        path.restrict(0.75, 0.5)
    with pytest.raises(ValueError, match=r"end has shape \(3,\); expected one time for all series, or one for each of"):
        path.restrict(0.0, [0.1, 0.2, 0.3])
    with pytest.raises(ValueError, match="lies outside"):
        path.restrict(float("nan"))
