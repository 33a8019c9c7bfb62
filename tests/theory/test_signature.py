"""The signature as solution of a linear CDE (appendix B): closed forms, algebra, invariances, a reference."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
import torch
from tensor_series import exponential, flat, levels, product

import neuralcde as nc
from neuralcde._native import kernels
from neuralcde.engine import lower
from neuralcde.fields import SignatureField
from neuralcde.solve import ControlTerm, solvers
from ragged_cases import SCHEMES, random_series
from solve_cases import SOLVERS, STRAIGHT, Case, on_engine, ran_on, some_path

native = pytest.mark.skipif(kernels is None, reason="the native kernels were not built or are turned off")


def reference(path, depth):
    """Signatures of piecewise linear paths by Chen's identity, series by series and gap by gap."""
    rows, offsets = path.at_rows(), path.series.offsets.tolist()
    found = []
    for low, high in itertools.pairwise(offsets):
        total = exponential(torch.zeros(path.channels, dtype=path.dtype), depth)
        for x in rows[low:high].diff(dim=0):
            total = product(total, exponential(x, depth))
        found.append(flat(total))
    return torch.stack(found)


def of_polynomials(pieces, depth):
    """Signature of one path of polynomial pieces (pieces, powers, channels): antiderivatives, word by word."""
    channels, total = pieces.shape[2], None
    for piece in pieces:
        rates = [np.polynomial.Polynomial(piece[:, i]).deriv() for i in range(channels)]
        words, grown = {(): np.polynomial.Polynomial([1.0])}, [torch.ones((), dtype=torch.float64)]
        for length in range(1, depth + 1):
            names = itertools.product(range(channels), repeat=length)
            words |= {word: (words[word[:-1]] * rates[word[-1]]).integ() for word in names}
            ends = [words[word](1.0) for word in itertools.product(range(channels), repeat=length)]
            grown.append(torch.tensor(ends, dtype=torch.float64).reshape((channels,) * length))
        total = grown if total is None else product(total, grown)
    return flat(total)


def close(a, b, tolerance=1e-12):
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def broken_lines(*values, dtype=torch.float64):
    """Linear paths through these points, at times 0, 1, 2, ..."""
    return nc.linear(nc.IrregularSeries.from_list([(range(len(x)), x) for x in values], dtype=dtype))


class TestClosedForms:
    X = torch.tensor([0.7, -1.3, 2.1], dtype=torch.float64)

    def line(self):
        return broken_lines(torch.stack([torch.ones(3).double(), 1 + self.X]))

    @pytest.mark.parametrize("depth", [1, 2, 3, 4, 5])
    def test_a_straight_line(self, depth, engine):
        close(nc.signature(self.line(), depth)[0], flat(exponential(self.X, depth)))

    @pytest.mark.parametrize("solver", SOLVERS)
    def test_one_step_is_exact_up_to_the_order_of_the_solver_and_no_further(self, solver, engine):
        order = solvers[solver].order
        found = nc.signature(self.line(), order + 1, solver=solver, steps=nc.AtKnots())[0]
        expected, last = flat(exponential(self.X, order + 1)), 3 ** (order + 1)
        close(found[:-last], expected[:-last])
        assert (found - expected)[-last:].abs().max() > 1e-3

    def test_deeper_levels_are_exact_too(self, engine):
        expected = flat(exponential(self.X, 7))
        close(nc.signature(self.line(), 7)[0], expected)
        errors = [
            float((nc.signature(self.line(), 7, solver="dopri5", steps=nc.AtKnots(k))[0] - expected).abs().max())
            for k in (8, 16)
        ]
        assert 4.5 < math.log2(errors[0] / errors[1]) < 5.5

    @pytest.mark.parametrize("scheme", SCHEMES)
    def test_one_channel_has_powers_of_its_increment(self, scheme, engine):
        path = some_path(3, scheme=scheme, channels=1, rows=(1, 6))
        increment = path.increment(path.interval[:, :1], path.interval[:, 1:])[:, 0]
        powers = torch.cat([increment**k / math.factorial(k) for k in range(1, 5)], dim=1)
        close(nc.signature(path, 4), powers)

    def test_a_parabola(self, engine):
        """X = (u, u^2), so that words are integrals of monomials: S^ij = j / (i + j), S^ijk = S^ij k / (i + j + k)."""
        path = broken_lines([[0.0, 0.0], [1.0, 1.0]])
        pieces = torch.tensor([[[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]], dtype=torch.float64)
        found = nc.signature(dataclasses.replace(path, coefficients=pieces), 3)[0]
        words = [word for length in (1, 2, 3) for word in itertools.product((1, 2), repeat=length)]
        expected = [math.prod(word) / math.prod(itertools.accumulate(word)) for word in words]
        close(found, torch.tensor(expected, dtype=torch.float64))

    def test_cubics_over_uneven_gaps(self, engine):
        """Against polynomial arithmetic, where a spline overshoots so far that fixed steps of a solver are off."""
        times = torch.cat([torch.zeros(1), torch.logspace(-3, 2, 12)]).double()
        values = torch.randn(13, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
        path = nc.natural_cubic(nc.IrregularSeries.from_list([(times, values)], dtype=torch.float64))
        expected = of_polynomials(path.coefficients.numpy(), 4)
        found = nc.signature(path, 4)[0]
        assert float(((found - expected) / expected.abs().clamp(min=1)).abs().max()) < 1e-9
        rough = nc.signature(path, 4, solver="dopri5")[0]
        assert float(((rough - expected) / expected.abs().clamp(min=1)).abs().max()) > 1e-3


class TestAlgebra:
    @pytest.mark.parametrize("seed", range(3))
    def test_equals_tensor_exponentials(self, seed, engine):
        """Compared with Chen's identity in plain Python, for ragged series with missing values, some of one row."""
        path = some_path(seed, scheme="linear", rows=(1, 9))
        close(nc.signature(path, 5), reference(path, 5), 1e-11)

    def test_chen_for_two_pieces(self, engine):
        first, second = torch.tensor([0.3, -1.0]).double(), torch.tensor([2.0, 0.4]).double()
        both = broken_lines(torch.stack([0 * first, first, first + second]))
        close(nc.signature(both, 5)[0], flat(product(exponential(first, 5), exponential(second, 5))))

    @pytest.mark.parametrize("scheme", ["linear", "natural_cubic", "hermite"])
    def test_chen_at_every_knot(self, scheme, engine):
        """S of the whole path is S up to a knot times S from there; this holds for the discretisation too."""
        one = some_path(5, scheme=scheme, count=1, rows=(6, 6), missing=0.0)
        options = {"steps": nc.AtKnots(substeps=2)}
        whole = nc.signature(one, 4, **options)[0]

        def between(low, high):
            rows = one.series.times[low : high + 1], one.series.values[low : high + 1]
            series = nc.IrregularSeries.from_list([rows], dtype=torch.float64)
            part = dataclasses.replace(one, series=series, coefficients=one.coefficients[low:high])
            return levels(nc.signature(part, 4, **options)[0], one.channels)

        for knot in range(1, 5):
            close(flat(product(between(0, knot), between(knot, 5))), whole)

    @pytest.mark.parametrize("scheme", ["linear", "natural_cubic", "rectilinear"])
    def test_products_are_sums_over_shuffles(self, scheme, engine):
        """S^i S^j = S^ij + S^ji, and S^i S^jk = S^ijk + S^jik + S^jki: products of words are linear in words."""
        path = some_path(7, scheme=scheme)
        for words in nc.signature(path, 3):
            _, one, two, three = levels(words, path.channels)
            tolerance = 1e-11
            close(torch.einsum("i,j->ij", one, one), two + two.T, tolerance)
            shuffled = three + three.permute(1, 0, 2) + three.permute(2, 0, 1)
            close(torch.einsum("i,jk->ijk", one, two), shuffled, tolerance)

    def test_the_matrix_of_the_paper(self):
        """M(y) of definition B.4 has the last letter of a word as slowest index: the same entries, transposed."""
        path, depth = some_path(9, scheme="linear", channels=2), 3
        channels = path.channels

        def stacked(t, z):
            rows, start = [torch.zeros(len(z), 1, channels, dtype=z.dtype)], 0
            for level in range(depth):
                y = z[:, start : start + channels**level]
                start += channels**level
                rows.append(torch.cat([y[:, :, None] * column for column in torch.eye(channels).double()], dim=1))
            return torch.cat(rows, dim=1)

        z0 = torch.eye(1, 15, dtype=torch.float64).expand(len(path), 15)
        paper = nc.solve_cde(path, stacked, z0, solver="dopri5").last[:, 1:]
        for ours, theirs in zip(nc.signature(path, depth), paper, strict=True):
            turned = [level.permute(tuple(reversed(range(level.ndim)))) for level in levels(theirs, channels)]
            close(ours, flat(turned))

    def test_equals_pysiglib(self):
        pysiglib = pytest.importorskip("pysiglib", reason="pysiglib is not installed (it is no dependency)")
        values = np.random.default_rng(0).standard_normal((4, 9, 3))
        found = nc.signature(broken_lines(*values), 5)
        close(found, torch.as_tensor(np.asarray(pysiglib.sig(values, 5)))[:, -found.shape[1] :], 1e-11)


class TestInvariances:
    VALUES = torch.tensor([[0.0, 1.0], [2.0, -1.0], [0.5, 0.3], [1.5, 2.0]], dtype=torch.float64)

    @pytest.mark.parametrize("scheme", STRAIGHT)
    def test_speed_does_not_matter(self, scheme, engine):
        one = random_series(3, missing=0)
        other = dataclasses.replace(one, times=one.times**3 + one.times)
        close(*(nc.signature(SCHEMES[scheme](x), 4) for x in (one, other)), 1e-11)

    def test_stops_on_the_way_do_not_matter(self, engine):
        """Additional knots on the same lines, at uneven positions."""
        finer = torch.cat([torch.stack([a, 0.9 * a + 0.1 * b]) for a, b in itertools.pairwise(self.VALUES)])
        finer = torch.cat([finer, self.VALUES[-1:]])
        close(nc.signature(broken_lines(self.VALUES), 5), nc.signature(broken_lines(finer), 5))

    def test_a_cubic_at_another_speed(self, engine):
        """X(u) = a u + b u^3 with a and b parallel is the line from 0 to a + b at another speed."""
        line = broken_lines([[0.0, 0.0], [2.0, -1.0]])
        slope = torch.tensor([2.0, -1.0], dtype=torch.float64)
        pieces = torch.stack([0 * slope, 0.25 * slope, 0 * slope, 0.75 * slope])[None]
        slow = dataclasses.replace(line, coefficients=pieces)
        close(nc.signature(slow, 4), nc.signature(line, 4))

    def test_time_as_a_channel_sees_the_speed(self):
        one = random_series(3, missing=0)
        other = dataclasses.replace(one, times=one.times**3 + one.times)
        first, second = (nc.signature(nc.linear(x.with_channels()), 2) for x in (one, other))
        assert (first - second).abs().max() > 0.1

    def test_where_x_starts_does_not_matter(self, engine):
        close(nc.signature(broken_lines(self.VALUES), 4), nc.signature(broken_lines(self.VALUES + 9), 4))

    def test_there_and_back_again_is_the_identity(self, engine):
        back = torch.cat([self.VALUES, self.VALUES.flip(0)[1:]])
        found = nc.signature(broken_lines(back), 5)
        close(found, torch.zeros_like(found))


class TestBatches:
    @pytest.mark.parametrize("scheme", SCHEMES)
    def test_a_ragged_batch_is_a_loop(self, scheme, engine):
        path = some_path(11, scheme=scheme, count=8, rows=(1, 6))
        steps = nc.AtKnots(substeps=2)
        batch = nc.signature(path, 3, steps=steps)
        alone = torch.cat([nc.signature(path[i], 3, steps=steps) for i in range(len(path))])
        if engine == "native":
            assert torch.equal(batch, alone)
        close(batch, alone)
        still = path.series.lengths == 1
        assert still.any()
        assert batch[still].abs().max() == 0
        assert batch[~still].abs().amax(1).min() > 0

    @pytest.mark.parametrize("channels", [1, 2, 5])
    def test_shapes(self, channels):
        path = some_path(2, scheme="linear", channels=channels)
        for depth in (1, 2, 4):
            words = sum(channels**k for k in range(1, depth + 1))
            assert nc.signature(path, depth).shape == (len(path), words)

    def test_no_series(self):
        assert nc.signature(some_path(1)[:0], 2).shape == (0, 12)

    def test_single_precision(self, engine):
        path = some_path(4, scheme="linear")
        found = nc.signature(path.to(torch.float32), 4)
        assert found.dtype == torch.float32
        close(found.double(), reference(path, 4), 1e-4)


class TestEngines:
    @native
    @pytest.mark.parametrize("scheme", SCHEMES)
    def test_native_equals_plain_torch(self, scheme, monkeypatch):
        path = some_path(13, scheme=scheme, count=9, rows=(1, 7))
        results = []
        for name in ("native", "torch"):
            on_engine(monkeypatch, name)
            coefficients = path.coefficients.clone().requires_grad_()
            found = nc.signature(dataclasses.replace(path, coefficients=coefficients), 4, steps=nc.AtKnots(substeps=2))
            weights = torch.linspace(-1, 1, found.numel(), dtype=torch.float64).reshape(found.shape)
            (gradient,) = torch.autograd.grad((found * weights).sum(), coefficients)
            results.append((found.detach(), gradient))
        for native, plain in zip(*results, strict=True):
            close(native, plain, 1e-10)
        assert results[0][1].abs().max() > 0.1

    @native
    def test_it_is_the_native_engine_that_runs(self, monkeypatch):
        on_engine(monkeypatch, "native")
        path, field = some_path(1, scheme="linear"), SignatureField(3, 3)
        assert ran_on(nc.solve_cde(path, field, torch.zeros(len(path), field.hidden).double()), "native")

    @pytest.mark.parametrize("gradient", ["checkpoint", "backprop", "backsolve"])
    def test_every_gradient_and_every_state(self, gradient, engine):
        """The field with arbitrary initial states: S at the knots, and gradients with respect to z0 and the path."""
        path = some_path(17, scheme="linear", channels=2)
        z0 = torch.randn(len(path), 15, dtype=torch.float64)
        case = Case(path, z0, ControlTerm(SignatureField(2, 3)))
        _, _, found = case.gradients(save="knots", gradient=gradient, solver="dopri5")
        _, _, exact = case.gradients(save="knots", gradient="backprop", solver="dopri5")
        for name in exact:
            close(found[name], exact[name], 1e-10 if gradient != "backsolve" else 1e-6)
            assert exact[name].abs().max() > 0

    @pytest.mark.parametrize("scheme", ["linear", "natural_cubic"])
    def test_gradcheck_to_the_data(self, scheme):
        times = [torch.tensor([0.0, 1.0, 1.7, 3.0]), torch.tensor([0.0, 2.0, 2.5])]

        def of_data(*values):
            series = nc.IrregularSeries.from_list(list(zip(times, values, strict=True)), dtype=torch.float64)
            return nc.signature(SCHEMES[scheme](series.with_channels()), 3, steps=nc.AtKnots())

        values = [torch.randn(len(t), 2, dtype=torch.float64, requires_grad=True) for t in times]
        assert torch.autograd.gradcheck(of_data, values)


class TestField:
    def test_prod_is_the_matrix_times_dx(self):
        field = SignatureField(3, 3)
        z, dx = torch.randn(4, field.hidden).double(), torch.randn(4, 3).double()
        matrix = field(torch.zeros(4), z)
        assert matrix.shape == (4, 40, 3)
        close(field.prod(torch.zeros(4), z, dx), torch.einsum("bhc,bc->bh", matrix, dx))
        assert field.prod(torch.zeros(4), z, dx)[:, 0].abs().max() == 0

    def test_the_formula(self):
        """The increment of the word wi is the word w times the increment of channel i."""
        field = SignatureField(2, 2)
        one, x, y = 1.5, 3.0, 4.0
        state = torch.tensor([[one, x, y, 9.0, 9.0, 9.0, 9.0]])
        found = field.prod(torch.zeros(1), state, torch.tensor([[10.0, 100.0]]))
        assert found.tolist() == [[0.0, 15.0, 150.0, 30.0, 300.0, 40.0, 400.0]]

    @pytest.mark.wrong_types
    @pytest.mark.parametrize("depth", [0, -2, 2.0, "3"])
    def test_invalid_depths_are_refused(self, depth):
        with pytest.raises(ValueError, match=f"depth must be an integer of at least 1, got {depth!r}"):
            nc.signature(some_path(1), depth)

    def test_too_many_words(self):
        with pytest.raises(
            ValueError, match=r"depth=9 is too deep for 10 channels: there are 1,111,111 words .* depth=5 \(111,111\)"
        ):
            SignatureField(10, 9)
        with pytest.raises(ValueError, match=r"depth=1000000000 is too deep for 3 channels: .* 2,391,484"):
            nc.signature(some_path(1), 10**9)
        assert SignatureField(10, 5).hidden == 111_111

    @pytest.mark.wrong_types
    def test_something_else_than_a_path(self):
        with pytest.raises(TypeError, match="path must be a ControlPath, got IrregularSeries; build one"):
            nc.signature(random_series(0), 2)

    def test_a_path_of_other_channels_is_refused(self, engine):
        path, field = some_path(1, channels=3), SignatureField(2, 3)
        assert "made for hidden=15, channels=2" in lower(field, 15, 3)
        with pytest.raises(
            ValueError, match=r"SignatureField\(.*\) needs states of size 15 .* got states of size 15 and 3 channels"
        ):
            nc.solve_cde(path, field, torch.zeros(len(path), 15).double())
        with pytest.raises(ValueError, match="got states of size 14 and 2 channels"):
            field(torch.zeros(1), torch.zeros(1, 14))
