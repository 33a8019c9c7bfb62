"""Conformance tests of every path scheme, with the native kernels and in plain torch."""

import dataclasses
import json
import math

import numpy as np
import pytest
import torch
from sklearn.base import clone

import neuralcde as nc
from neuralcde.paths import PathScheme
from ragged_cases import NAN, SCHEME_OBJECTS, SCHEMES, at_knots, in_every_piece, random_series, rows_as_block

APPROXIMATES = ("smoothing",)  # all others pass through the observations
FORWARD = [case for case, scheme in SCHEME_OBJECTS.items() if scheme.causality != "none"]
JUMPS = [case for case, make in SCHEMES.items() if make(random_series(0)).pieces_per_gap == 2]  # at rows
BOTH_SIDES = ("left", "right")


def tolerance(dtype):
    return {"rtol": 0, "atol": 2e-5 if dtype == torch.float32 else 1e-12}


def orders(path, t, **side):
    """X and its three derivatives."""
    return [path.evaluate(t, **side), *(path.derivative(t, order, **side) for order in (1, 2, 3))]


def same(path, other):
    """Whether two paths are bitwise equal."""
    assert path.series == other.series
    assert torch.equal(path.coefficients, other.coefficients)
    assert torch.equal(path.piece_offsets, other.piece_offsets)
    for ours, theirs in zip(orders(path, at_knots(path.series)), orders(other, at_knots(path.series)), strict=True):
        assert torch.equal(ours, theirs)


@pytest.fixture(params=[torch.float32, torch.float64], ids=["float32", "float64"])
def dtype(request):
    return request.param


# ---- values of X ----


def test_passes_through_the_observations(scheme, build, dtype):
    if scheme in APPROXIMATES:
        pytest.skip("approximates the observations")
    series = random_series(1, count=20, dtype=dtype)
    path, observed = build(series), rows_as_block(series)
    seen = ~observed.isnan()
    for side in ("right",) if scheme in JUMPS else BOTH_SIDES:
        there = path.evaluate(at_knots(series), side=side)
        torch.testing.assert_close(there[seen], observed[seen], **tolerance(dtype))


def test_pieces_meet(build, dtype):
    """X is continuous: a piece ends where the next one starts, including vertical pieces of rectilinear paths."""
    path = build(random_series(2, count=20, dtype=dtype))
    start, end = path.coefficients[:, 0], path.coefficients.sum(1)
    inner = torch.ones(len(start), dtype=torch.bool)
    inner[path.piece_offsets[1:] - 1] = False
    assert inner.sum() > 50
    torch.testing.assert_close(end[inner], start[1:][inner[:-1]], **tolerance(dtype))


def test_is_constant_outside_a_channels_own_observations(scheme, build):
    """Rows 0 .. 9, observed at rows 3, 4 and 6."""
    values = np.full(10, NAN)
    values[[3, 4, 6]] = 1.0, 3.0, 2.0
    path = build(nc.IrregularSeries.from_list([(np.arange(10.0), values)], dtype=torch.float64))
    forward = scheme in FORWARD
    # With forward fill X leaves 0 at row 2, and backward differences affect one gap after the last observation.
    outside = [
        (np.linspace(0, 2 if forward else 3, 9), 0.0 if forward else path.evaluate(3.0).item(), "left"),
        (np.linspace(7 if scheme == "hermite-forward" else 6, 9, 9), path.evaluate(6.0).item(), "right"),
    ]
    for t, held, side in outside:
        value, *derivatives = orders(path, t, side=side)
        torch.testing.assert_close(value, torch.full_like(value, held), rtol=0, atol=1e-14)
        assert not any(torch.any(derivative) for derivative in derivatives)
    assert torch.any(path.increment(3.5, 4.5))


def test_a_channel_never_observed_is_zero(build, dtype):
    series = nc.IrregularSeries.from_list([([0.0, 1.0, 3.0], [[1.0, NAN], [NAN, NAN], [2.0, NAN]])], dtype=dtype)
    path = build(series)
    assert not torch.any(path.coefficients[:, :, 1])
    assert torch.any(path.coefficients[:, :, 0])


def test_one_row_is_a_constant_path(build, dtype):
    first, last = ([0.0, 1.0], [[1.0, 2.0], [3.0, 4.0]]), ([2.0, 2.5], [[7.0, 8.0], [9.0, 1.0]])
    path = build(nc.IrregularSeries.from_list([first, ([5.0], [[3.0, NAN]]), last], dtype=dtype))[1]
    assert path.interval.tolist() == [[5.0, 5.0]]
    assert path.durations.tolist() == [0.0]
    for side in BOTH_SIDES:
        value, *derivatives = orders(path, 5.0, side=side)
        assert value.tolist() == [[3.0, 0.0]]
        assert all(derivative.tolist() == [[0.0, 0.0]] for derivative in derivatives)


def test_rows_without_any_observation_keep_their_knots(build):
    series = nc.IrregularSeries.from_list([([0.0, 1.0, 2.0, 4.0], [NAN, 1.0, NAN, NAN])])
    path = build(series)
    assert path.knots.tolist() == [0.0, 1.0, 2.0, 4.0]
    assert path.evaluate(4.0).tolist() == [[1.0]]


# ---- independence of batches, blocks, threads and strides ----


def test_batch_equals_series_by_series(build, dtype):
    series = random_series(7, count=12, dtype=dtype)
    path = build(series)
    for i, one in enumerate(series):
        same(path[i], build(one))
    assert torch.equal(path.coefficients, torch.cat([build(one).coefficients for one in series]))


@pytest.mark.parametrize(
    "index",
    [slice(2, 5), slice(None, None, 2), slice(3, 3), -1, [4, 0, 4], np.arange(6) % 3 == 0, torch.tensor([5, 1])],
    ids=["a:b", "::2", "empty", "-1", "list", "mask", "tensor"],
)
def test_slicing_equals_rebuilding(build, index):
    series = random_series(8, count=6)
    same(build(series)[index], build(series[index]))


def test_iterates_over_series(build):
    path = build(random_series(8, count=3))
    assert [one.series.ids.tolist() for one in path] == [["s0"], ["s1"], ["s2"]]


def test_padding_does_not_matter(build):
    series = random_series(9, count=5, rows=(3, 8), missing=0.2)
    block = series.to_padded()
    wider = torch.nn.functional.pad(block.values, (0, 0, 0, 7), value=NAN)
    times = torch.nn.functional.pad(block.times, (0, 7), value=NAN)
    again = nc.IrregularSeries.from_padded(wider, times, block.lengths, ids=series.ids.tolist(), dtype=torch.float64)
    same(build(again), build(series))


def test_blocks_do_not_matter(build, monkeypatch):
    """Paths are built in blocks of series to bound scratch memory."""
    from neuralcde.paths import pieces

    series = random_series(10, count=9)
    whole = build(series)
    for cells in (1, 40):
        monkeypatch.setattr(pieces, "CELLS_AT_ONCE", cells)
        same(build(series), whole)


def test_threads_do_not_matter(build):
    """20,000 rows are enough for the kernels to use both threads."""
    series = random_series(12, count=500, rows=(1, 80), channels=2)
    before = torch.get_num_threads()
    try:
        paths = []
        for threads in (1, 2):
            torch.set_num_threads(threads)
            paths.append(build(series))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(paths[0].coefficients, paths[1].coefficients)


def test_strides_do_not_matter(build):
    series = random_series(13)
    strided = dataclasses.replace(series, values=series.values.T.contiguous().T)
    assert not strided.values.is_contiguous()
    assert torch.equal(build(strided).coefficients, build(series).coefficients)


def test_empty_batch(build, dtype):
    series = random_series(14, dtype=dtype)[:0]
    for path in (build(series), build(random_series(14, dtype=dtype))[:0]):
        assert len(path) == 0
        assert path.evaluate(1.0).shape == (0, 3)
        assert path.derivative([1.0, 2.0]).shape == (0, 2, 3)
        assert path.coefficients.dtype == dtype
        assert path.interval.shape == (0, 2)
        assert path.durations.shape == (0,)
        assert path.piece_offsets.tolist() == [0]


def test_empty_batch_with_gradients(build):
    series = random_series(14)[:0]
    leaf = series.values.clone().requires_grad_()
    build(dataclasses.replace(series, values=leaf)).evaluate(1.0).sum().backward()
    assert leaf.grad.shape == (0, 3)


# ---- dtypes and precision ----


def test_dtype_is_kept_and_can_be_changed(build, dtype):
    path = build(random_series(15, dtype=dtype))
    assert path.dtype == dtype
    assert path.knots.dtype == path.durations.dtype == path.interval.dtype == torch.float64
    assert {x.dtype for x in orders(path, at_knots(path.series))} == {dtype}
    for other in (torch.float32, torch.float64):
        changed = path.to(other)
        assert changed.dtype == changed.series.dtype == changed.evaluate(at_knots(path.series)).dtype == other
        assert torch.equal(changed.coefficients, path.coefficients.to(other))
    assert torch.equal(path.to("cpu").coefficients, path.coefficients)
    with pytest.raises(TypeError, match=r"float32 or torch\.float64"):
        path.to(torch.float16)


def test_unix_seconds_in_float32(build):
    """Shifting every series by 1.7e9 seconds changes nothing: only differences of the float64 times count."""

    def eighths(rng, count):
        return rng.integers(1, 16, count) / 8

    near = random_series(16, gaps=eighths, dtype=torch.float32)
    far = random_series(16, gaps=eighths, start=1.7e9, dtype=torch.float32)
    assert torch.equal(build(far).coefficients, build(near).coefficients)
    asked, _ = in_every_piece(near, (0.25, 0.5))
    for a, b in zip(orders(build(far), asked + 1.7e9), orders(build(near), asked), strict=True):
        assert torch.equal(a, b)


def test_huge_and_tiny_gaps_stay_finite(build, dtype):
    times = [0.0, 1e-9, 2e-9, 1.0, 2.0, 1e9, 2e9]
    values = [[0.0, NAN], [1.0, 1.0], [-1.0, NAN], [2.0, 3.0], [NAN, -1.0], [1.0, NAN], [0.0, 2.0]]
    leaf = torch.tensor(values, dtype=dtype, requires_grad=True)
    path = build(nc.IrregularSeries.from_list([(times, leaf)], dtype=dtype))
    asked, _ = in_every_piece(path.series)
    everything = orders(path, asked)
    assert all(x.isfinite().all() for x in everything)
    sum(x.sum() for x in everything).backward()
    assert leaf.grad.isfinite().all()


def test_derivatives_over_the_shortest_gaps_are_not_nan(build):
    """In float32 h^-3 overflows to infinity, and 0 times infinity is NaN."""
    path = build(nc.IrregularSeries.from_list([([0.0, 1e-14, 2e-14], [[5.0, 1.0]] * 3)], dtype=torch.float32))
    assert all(not torch.any(path.derivative(5e-15, order)) for order in (1, 2, 3))


# ---- evaluation ----


def test_shapes_of_times(build):
    path = build(random_series(17, count=4, rows=(4, 9)))
    inside = path.interval[:, :1] + torch.tensor([[0.1, 0.7]], dtype=torch.float64)
    each = path.evaluate(inside)
    assert each.shape == (4, 2, 3)
    for j, t in enumerate((0.1, 0.7)):
        for scalar in (t, torch.tensor(t, dtype=torch.float64), np.float64(t)):
            assert path.evaluate(scalar).shape == path.derivative(scalar).shape == (4, 3)
            assert torch.equal(path.evaluate(scalar), each[:, j])
    assert torch.equal(path.evaluate([0.1, 0.7]), each)
    assert torch.equal(path.derivative(inside[0]), path.derivative(inside))
    assert path.evaluate([]).shape == path.evaluate(torch.empty(4, 0)).shape == (4, 0, 3)


def test_derivative_is_the_slope_of_evaluate(build):
    """Each derivative inside pieces equals the autograd derivative of the previous order."""
    path = build(random_series(18, count=5, rows=(2, 8)))
    t = in_every_piece(path.series)[0]
    inside = (t > path.interval[:, :1]) & (t < path.interval[:, 1:])
    for order in (1, 2, 3):
        asked = t.clone().requires_grad_()
        lower = path.evaluate(asked) if order == 1 else path.derivative(asked, order - 1)
        for channel in range(path.channels):
            total = lower[..., channel].sum()
            slope = torch.autograd.grad(total, asked, retain_graph=True)[0] if total.requires_grad else 0 * t
            expected = path.derivative(t, order)[..., channel]
            torch.testing.assert_close(slope[inside], expected[inside], rtol=1e-9, atol=1e-9)


def test_derivative_is_the_finite_difference_of_evaluate(build):
    path = build(random_series(19, count=5, rows=(2, 8)))
    t, h = in_every_piece(path.series)
    inside, step = h > 0, 1e-5
    t = torch.where(inside, t, t + step * 2)
    t = torch.minimum(t, path.interval[:, 1:] - step).clamp(min=path.interval[:, :1] + step)
    slope = (path.evaluate(t + step) - path.evaluate(t - step)) / (2 * step)
    torch.testing.assert_close(slope[inside], path.derivative(t)[inside], rtol=1e-7, atol=1e-7)


def test_sides_of_a_knot(scheme, build):
    """The derivative is that of the piece before or after the knot; vertical pieces are skipped."""
    path = build(random_series(20, count=1, rows=(7, 7), missing=0.2).with_channels())
    c = path.coefficients[:: path.pieces_per_gap]
    h = path.durations[:: path.pieces_per_gap, None]
    inner = path.knots[1:-1]
    power = torch.arange(path.degree + 1, dtype=torch.float64)[None, :, None]
    after, before = c[1:, 1] / h[1:], (c * power).sum(1)[:-1] / h[:-1]
    torch.testing.assert_close(path.derivative(inner)[0], after)
    torch.testing.assert_close(path.derivative(inner, side="left")[0], before)
    if scheme.startswith("linear"):
        assert not torch.allclose(after, before)
    ends = path.interval[0]
    for order in (1, 2, 3):
        assert torch.equal(path.derivative(ends, order), path.derivative(ends, order, side="left"))
    if scheme not in JUMPS:
        torch.testing.assert_close(path.evaluate(path.knots), path.evaluate(path.knots, side="left"))


def test_ends_of_the_interval_can_be_asked(build, dtype):
    series = random_series(21, dtype=dtype)
    path = build(series)
    assert torch.equal(path.interval[:, 0], series.times[series.offsets[:-1]])
    assert torch.equal(path.interval[:, 1], series.times[series.offsets[1:] - 1])
    ends = path.evaluate(path.interval)
    assert torch.equal(ends[:, 0], path.coefficients[path.piece_offsets[:-1], 0])
    torch.testing.assert_close(ends[:, 1], path.coefficients[path.piece_offsets[1:] - 1].sum(1), **tolerance(dtype))


def test_outside_the_interval_is_an_error_that_names_the_series(build):
    path = build(random_series(22, count=3, rows=(3, 5)))
    low, high = path.interval[1].tolist()
    for t in (math.nextafter(low, -1), math.nextafter(high, math.inf), NAN, math.inf):
        asked = path.interval[:, :1].clone()
        asked[1] = t
        for ask in (path.evaluate, path.derivative):
            with pytest.raises(ValueError, match=r"outside series 's1', which is defined on \[0.0, .*path.interval"):
                ask(asked)


def test_the_error_has_all_digits_and_no_warning():
    """Times that require gradients, in unix seconds, one second after the end of a series."""
    times = torch.tensor([1.7e9, 1.7e9 + 60], dtype=torch.float64, requires_grad=True)
    path = nc.linear(nc.IrregularSeries.from_list([(times, [1.0, 2.0])]))
    with pytest.raises(ValueError, match=r"t=1700000061.0 lies outside series 0, .*\[1700000000.0, 1700000060.0\]"):
        path.evaluate(times + 1)


def test_increment(build):
    path = build(random_series(23, count=4, rows=(3, 9)))
    s, t = path.interval[:, :1], path.interval[:, 1:]
    torch.testing.assert_close(path.increment(s, t), path.evaluate(t) - path.evaluate(s))
    assert not torch.any(path.increment(t, t))
    middle = s.lerp(t, 0.37)
    torch.testing.assert_close(path.increment(s, middle) + path.increment(middle, t), path.increment(s, t))


def test_pieces_fill_the_interval(scheme, build):
    path = build(random_series(24, count=9))
    counts = path.piece_offsets.diff()
    gaps = path.series.lengths - 1
    assert torch.equal(counts, torch.where(gaps > 0, gaps * (2 if scheme in JUMPS else 1), 1))
    assert path.piece_offsets[-1] == len(path.coefficients) == len(path.durations)
    for i, (low, high) in enumerate(path.interval.tolist()):
        own = path.durations[path.piece_offsets[i] : path.piece_offsets[i + 1]]
        assert math.isclose(float(own.sum()), high - low, rel_tol=1e-12)
        assert bool((own[:: path.pieces_per_gap] > 0).all()) == (high > low)


def test_integral_of_the_derivative_is_the_increment(scheme, build):
    """The integral of X' is X(T) - X(0); two Gauss points per piece are exact for cubics."""
    if scheme in JUMPS:
        pytest.skip("its vertical pieces have no derivative")
    series = random_series(25, count=6, rows=(2, 9))
    path, place = build(series), 0.5 / math.sqrt(3)
    asked, gap = in_every_piece(series, (0.5 - place, 0.5 + place))
    total = (path.derivative(asked) * gap[..., None] / 2).sum(1, keepdim=True)
    torch.testing.assert_close(total, path.increment(path.interval[:, :1], path.interval[:, 1:]))


# ---- as a part ----


def test_saved_cloned_and_found_by_name(scheme):
    """The same options, and the same paths."""
    made, series = SCHEME_OBJECTS[scheme], random_series(27)
    config = json.loads(json.dumps(made.to_config()))
    name = config["name"]
    for again in (PathScheme.from_config(config), clone(made), type(made)().set_params(**made.get_params())):
        assert again == made
        assert again is not made
        same(again.build(series), made.build(series))
    assert PathScheme.registry[name] is type(made)
    assert type(PathScheme.of(name)) is type(made)
    assert made.build(series).scheme == name


def test_the_series_is_left_as_it_was(build):
    series = random_series(28)
    before = series.values.clone()
    build(series)
    assert torch.equal(series.values.nan_to_num(7.0), before.nan_to_num(7.0))


# ---- invalid arguments ----


@pytest.mark.wrong_types
def test_fill_must_be_known():
    for name in ("hermite", "linear"):
        with pytest.raises(ValueError, match='fill must be "interpolate" or "forward", got \'backward\''):
            getattr(nc, name)(random_series(0), fill="backward")


@pytest.mark.wrong_types
def test_invalid_times_orders_and_sides():
    path = SCHEMES["linear"](random_series(26, count=3, rows=(3, 4)))
    with pytest.raises(ValueError, match="order must be 1, 2 or 3, got 0"):
        path.derivative(0.0, order=0)
    with pytest.raises(ValueError, match='side must be "left" or "right", got \'both\''):
        path.evaluate(0.0, side="both")
    with pytest.raises(ValueError, match=r"t of shape \(2, 4\) does not fit 3 series"):
        path.evaluate(torch.zeros(2, 4))
    with pytest.raises(IndexError, match="out of range for 3 series"):
        path[3]


def test_repr():
    assert (
        repr(nc.hermite(random_series(0, count=2))) == "ControlPath(hermite, 2 series, 3 channels, 17 pieces, float64)"
    )


@pytest.mark.wrong_types
@pytest.mark.parametrize("scheme", SCHEMES)
def test_what_is_not_a_series_is_named(scheme):
    with pytest.raises(TypeError, match=r"series must be an IrregularSeries, got ndarray; make one"):
        SCHEMES[scheme](np.zeros((3, 2)))
