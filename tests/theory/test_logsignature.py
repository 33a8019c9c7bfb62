"""Log-signatures: a hand-written tensor logarithm, closed forms, Chen's identity over windows, the neural RDE."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
import torch
from tensor_series import flat, levels, logarithm, product, tensor_exponential

import neuralcde as nc
from neuralcde.solve.tensor_logarithm import logarithm as tensor_logarithm
from neuralcde.solve.tensor_logarithm import lyndon_words, place_of_word
from ragged_cases import SCHEMES
from solve_cases import mlp, some_path, states


def close(a, b, tolerance=1e-11):
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def line_through(*points):
    return nc.linear(nc.IrregularSeries.from_list([(range(len(points)), np.array(points))], dtype=torch.float64))


def is_lyndon(word):
    return all(word < word[k:] + word[:k] for k in range(1, len(word)))


class TestLyndonWords:
    @pytest.mark.parametrize(("channels", "depth"), [(1, 4), (2, 6), (3, 4), (5, 3)])
    def test_are_the_words_smaller_than_their_rotations(self, channels, depth):
        words = [w for length in range(1, depth + 1) for w in itertools.product(range(channels), repeat=length)]
        assert lyndon_words(channels, depth) == [word for word in words if is_lyndon(word)]
        assert [place_of_word(word, channels) for word in words] == list(range(len(words)))

    def test_their_number(self):
        """As in the literature: c, c + c (c - 1) / 2, and (c^3 - c) / 3 more."""
        for channels in (2, 6, 14):
            counts = [len(lyndon_words(channels, depth)) for depth in (1, 2, 3)]
            two = channels + channels * (channels - 1) // 2
            assert counts == [channels, two, two + (channels**3 - channels) // 3]


class TestLogarithm:
    @pytest.mark.parametrize(("scheme", "depth"), [("linear", 5), ("natural_cubic", 3), ("rectilinear", 4)])
    def test_against_powers_of_tensors_and_back(self, scheme, depth, engine):
        """The logarithm by hand is the same; its exponential is the signature."""
        path = some_path(3, scheme=scheme, rows=(1, 6))
        words = nc.signature(path, depth)
        logs, found = tensor_logarithm(words, 3, depth), nc.logsignature(path, depth)
        places = [place_of_word(word, 3) for word in lyndon_words(3, depth)]
        for i in range(len(path)):
            expected = logarithm(levels(words[i], 3))
            close(logs[i], flat(expected))
            close(found[i], flat(expected)[places])
            close(flat(tensor_exponential(levels(logs[i], 3))), words[i])

    def test_is_a_lie_series(self, engine):
        """The symmetric parts of levels 2 and 3 vanish: so nothing is lost by keeping the Lyndon words alone."""
        path = some_path(4, scheme="hermite")
        for logs in tensor_logarithm(nc.signature(path, 3), 3, 3):
            _, _, two, three = levels(logs, 3)
            close(two + two.T, torch.zeros_like(two))
            close(sum(three.permute(order) for order in itertools.permutations(range(3))), torch.zeros_like(three))

    def test_a_time_reversed_path_has_the_opposite(self, engine):
        points = np.random.default_rng(0).normal(size=(6, 2))
        forwards, backwards = (nc.logsignature(line_through(*x), 4) for x in (points, points[::-1]))
        close(backwards, -forwards)


class TestClosedForms:
    @pytest.mark.parametrize("scheme", SCHEMES)
    def test_depth_one_is_the_increment(self, scheme, engine):
        path = some_path(5, scheme=scheme, rows=(1, 6))
        low, high = path.interval.unbind(1)
        rise = path.evaluate(high[:, None]) - path.evaluate(low[:, None], side="left")
        close(nc.logsignature(path, 1), rise[:, 0])

    def test_a_straight_line_has_no_brackets(self, engine):
        found = nc.logsignature(line_through([1.0, 2.0], [4.0, -5.0]), 5)[0]
        close(found[:2], torch.tensor([3.0, -7.0]).double())
        close(found[2:], torch.zeros(len(found) - 2).double(), 1e-9)

    def test_two_lines_by_baker_campbell_hausdorff(self, engine):
        """log(exp(a) exp(b)) = a + b + [a, b] / 2 + [a, [a, b]] / 12 + [b, [b, a]] / 12 + ..."""
        a, b = np.array([0.3, -1.0, 0.8]), np.array([2.0, 0.4, -0.6])

        def bracket(x, y):
            return np.multiply.outer(x, y) - np.multiply.outer(y, x)

        ab = bracket(a, b)
        three = (bracket(a, ab) - bracket(b, ab)) / 12
        expected = [*(a + b), *(ab[w] / 2 for w in [(0, 1), (0, 2), (1, 2)])]
        expected += [three[word] for word in lyndon_words(3, 3) if len(word) == 3]
        found = nc.logsignature(line_through(0 * a, a, a + b), 3)[0]
        close(found, torch.tensor(np.array(expected)))

    @pytest.mark.parametrize("corners", [3, 4, 100])
    def test_a_polygon_has_its_area(self, corners, engine):
        angles = 2 * math.pi * np.arange(corners + 1) / corners
        found = nc.logsignature(line_through(*np.stack([np.cos(angles), np.sin(angles)], 1)), 2)[0]
        area = corners / 2 * math.sin(2 * math.pi / corners)
        close(found, torch.tensor([0.0, 0.0, area], dtype=torch.float64))

    def test_a_parabola(self, engine):
        """X = (u, u^2): the Levy area is (1/2) int u 2u - u^2 du = 1/6."""
        path = line_through([0.0, 0.0], [1.0, 1.0])
        pieces = torch.tensor([[[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]], dtype=torch.float64)
        found = nc.logsignature(dataclasses.replace(path, coefficients=pieces), 2)[0]
        close(found, torch.tensor([1.0, 1.0, 1 / 6], dtype=torch.float64))


WINDOWS = [{"rows": 2}, {"rows": 100}, {"duration": 1.3}, {"duration": 0.9}]


@pytest.mark.parametrize("options", WINDOWS, ids=str)
@pytest.mark.parametrize("scheme", ["linear", "natural_cubic", "rectilinear"])
class TestWindows:
    def test_chen(self, scheme, options):
        """The product of the exponentials of the increments is the signature of the whole path."""
        path, depth = some_path(6, scheme=scheme, rows=(1, 8), channels=2), 3
        windows = nc.logsignature_windows(path, depth, **options)
        whole = nc.signature(path, depth)
        places = [place_of_word(word, 2) for word in lyndon_words(2, depth)]
        for i in range(len(path)):
            own = slice(*windows.piece_offsets[i : i + 2].tolist())
            total, ends = levels(torch.zeros_like(whole[0]), 2), windows[i].knots
            for k, (low, high) in enumerate(itertools.pairwise(ends)):
                part = path[i].restrict(low, high)
                step = levels(tensor_logarithm(nc.signature(part, depth), 2, depth)[0], 2)
                close(windows.coefficients[own][k, 1], flat(step)[places])
                total = product(total, tensor_exponential(step))
            close(flat(total), whole[i], 1e-9)

    def test_the_path_starts_at_x_and_adds_the_increments(self, scheme, options):
        path = some_path(7, scheme=scheme, rows=(1, 8), channels=2)
        windows = nc.logsignature_windows(path, 2, **options)
        assert windows.channels == 3
        assert torch.equal(windows.interval, path.interval)
        assert len(windows.coefficients) == windows.piece_offsets[-1]
        rows, first = windows.series.values, windows.series.offsets[:-1]
        close(windows.at_rows(), rows)
        begin = path.evaluate(path.interval[:, :1], side="left")[:, 0]
        close(rows[first], torch.cat([begin, torch.zeros(len(path), 1).double()], 1))
        for i, one in enumerate(windows):
            close(one.at_rows()[1:, :2], path[i].evaluate(one.knots)[0, 1:], 1e-9)
            gaps = one.knots.diff()
            if "duration" in options:
                assert (gaps <= options["duration"] + 1e-9).all()
                close(gaps[:-1], torch.full_like(gaps[:-1], options["duration"]))
            else:
                assert torch.isin(one.knots, path[i].knots).all()
                assert len(gaps) == math.ceil((len(path[i].knots) - 1) / options["rows"])


def test_a_window_of_a_whole_series_has_its_log_signature(engine):
    path = some_path(8, scheme="natural_cubic", rows=(2, 6))
    windows = nc.logsignature_windows(path, 3, rows=1000)
    close(windows.coefficients[:, 1], nc.logsignature(path, 3))


def test_a_series_does_not_depend_on_the_others():
    path = some_path(9, rows=(1, 9), count=4)
    together = nc.logsignature_windows(path, 2, duration=1.0)
    for i in range(len(path)):
        alone = nc.logsignature_windows(path[i], 2, duration=1.0)
        close(alone.coefficients, together[i].coefficients, 1e-13)
        assert torch.equal(alone.knots, together[i].knots)


def test_names_roles_and_causality():
    pairs = [([0.0, 0.5, 2.0], [[1.0], [4.0], [2.0]])]
    series = nc.IrregularSeries.from_list(pairs, channels=["pulse"], ids=["a"], static=[[3.0]]).with_channels()
    found = nc.logsignature_windows(nc.linear(series, fill="forward"), 2, rows=1)
    assert found.series.channel_names == ("time", "pulse", "time,pulse")
    assert found.series.roles == ("time", "data", "data")
    assert found.series.ids.tolist() == ["a"]
    assert found.series.static.tolist() == [[3.0]]
    assert found.dtype == torch.float32
    assert found.causality == "knots"
    assert nc.logsignature_windows(nc.linear(series, fill="forward"), 2, duration=0.7).causality == "none"
    assert nc.logsignature_windows(nc.rectilinear(series), 2, duration=0.7).causality == "knots"
    assert nc.logsignature_windows(nc.natural_cubic(series), 2, rows=1).causality == "none"
    model = nc.NeuralCDE(found.channels, outputs=1, hidden=4)
    assert model(found).shape == (1, 1)


def test_gradients():
    path = some_path(10, count=2, rows=(3, 5), channels=2)

    def whole(coefficients):
        return nc.logsignature(dataclasses.replace(path, coefficients=coefficients), 3)

    def windowed(coefficients):
        moved = dataclasses.replace(path, coefficients=coefficients)
        return nc.logsignature_windows(moved, 3, duration=1.1).coefficients

    leaf = path.coefficients.requires_grad_()
    assert torch.autograd.gradcheck(whole, leaf, fast_mode=True)
    assert torch.autograd.gradcheck(windowed, leaf, fast_mode=True)


def test_single_precision_loses_no_area(engine):
    """The area is a small difference of large products: in float32 steps it would be off by 1e-2."""
    far = line_through([0.0, 0.0], [1e3, 1e3], [1e3, 1e3 + 1e-2], [0.0, 1e-2]).to(torch.float32)
    found, exact = nc.logsignature(far, 2), nc.logsignature(far.to(torch.float64), 2)
    assert found.dtype == torch.float32
    close(found, exact.to(torch.float32), 1e-6)


def test_the_log_ode_with_brackets_converges_faster_with_depth():
    """The equation over a window has the field f A + [f_i, f_j] L^ij: with depth 2 its error falls with a higher power.

    For dz = A_i z dX^i brackets of fields are commutators of matrices, so this tests the sign and size of the areas
    in what they are for.
    """
    torch.manual_seed(0)
    first, second = torch.randn(2, 3, 3).double() / 3
    bracket = second @ first - first @ second  # of the fields A_1 z and A_2 z: f_2' f_1 - f_1' f_2
    times = torch.linspace(0, 2, 257, dtype=torch.float64)
    path = nc.linear(
        nc.IrregularSeries.from_list(
            [(times, torch.stack([torch.sin(3 * times), torch.cos(5 * times)], 1))], dtype=torch.float64
        )
    )
    z0 = torch.tensor([[1.0, -0.5, 0.3]], dtype=torch.float64)

    def field(t, z):
        return torch.stack([z @ first.T, z @ second.T], dim=2)

    def with_brackets(t, z):
        return torch.stack([z @ first.T, z @ second.T, z @ bracket.T], dim=2)

    exact = nc.solve_cde(path, field, z0, solver="tsit5").last

    def error(depth, rows):
        windows = nc.logsignature_windows(path, depth, rows=rows)
        options = {"solver": "tsit5", "steps": nc.AtKnots(4)}
        last = nc.solve_cde(windows, field if depth == 1 else with_brackets, z0, **options).last
        return float((last - exact).abs().max())

    orders = [math.log2(error(depth, 16) / error(depth, 8)) for depth in (1, 2)]
    assert orders[0] == pytest.approx(2, abs=0.4)
    assert orders[1] > 2.8
    assert error(2, 8) < error(1, 8) / 10


def test_a_neural_rde_runs_natively(engine):
    """Few long steps over a long series; gradients reach the data."""
    path = some_path(11, scheme="linear", count=3, rows=(30, 40), channels=2)
    path = dataclasses.replace(path, coefficients=path.coefficients.requires_grad_())
    windows = nc.logsignature_windows(path, 2, rows=8)
    solution = nc.solve_cde(windows, mlp(windows, 4), states(windows, 4))
    assert solution.stats.engine.startswith(engine)
    assert solution.stats.accepted.tolist() == [math.ceil((n - 1) / 8) for n in path.series.lengths.tolist()]
    solution.last.sum().backward()
    assert (path.coefficients.grad[:, 1].abs() > 0).any(1).all()


@pytest.mark.wrong_types
def test_invalid_arguments():
    path = line_through([0.0, 0.0], [1.0, 1.0])
    with pytest.raises(ValueError, match=r"either duration= or rows=, got duration=None and rows=None"):
        nc.logsignature_windows(path, 2)
    with pytest.raises(ValueError, match=r"got duration=1.0 and rows=3"):
        nc.logsignature_windows(path, 2, duration=1.0, rows=3)
    for wrong in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match="duration must be positive and finite"):
            nc.logsignature_windows(path, 2, duration=wrong)
    with pytest.raises(ValueError, match="rows must be"):
        nc.logsignature_windows(path, 2, rows=0)
    with pytest.raises(ValueError, match="depth"):
        nc.logsignature(path, 0)
    for function in (nc.logsignature, nc.logsignature_windows):
        with pytest.raises(TypeError, match="path must be a ControlPath, got list"):
            function([1.0], 2)
