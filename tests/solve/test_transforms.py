"""Hessians, forward mode and torch.func: the result is right or an error is raised, never a silent zero."""

import copy
import pickle
from functools import partial

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad
from torch.autograd.functional import hessian, jacobian

import neuralcde as nc
from neuralcde._native import kernels
from solve_cases import mlp, some_path, states

SCHEMES = [nc.linear, nc.natural_cubic, nc.hermite, nc.rectilinear, partial(nc.smoothing, penalty=0.3)]
needs_kernels = pytest.mark.skipif(kernels is None, reason="plain torch differentiates as often as one likes")


@pytest.fixture
def field():
    torch.manual_seed(1)
    return nc.MLPField(3, 2, width=4, activation="tanh").double()


@pytest.fixture
def values():
    return torch.randn(4, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(2))


def loss_of(field, scheme=nc.linear, gradient="checkpoint"):
    """A scalar loss of the values, through path and solve."""

    def loss(values):
        series = nc.IrregularSeries.from_list([([0.0, 1.0, 2.5, 3.0], values)], dtype=torch.float64)
        path = scheme(series.with_channels())
        return nc.solve_cde(path, field, values.new_zeros(1, 2), gradient=gradient).last.square().sum()

    return loss


def slope(loss, values, direction, step=1e-6):
    with torch.no_grad():
        return (loss(values + step * direction) - loss(values - step * direction)) / (2 * step)


@needs_kernels
@pytest.mark.parametrize(
    ("scheme", "gradient"),
    [(nc.linear, "checkpoint"), (nc.linear, "backsolve"), (nc.natural_cubic, "backprop"), (nc.hermite, "backprop")],
)
def test_unsupported_second_derivatives_raise(scheme, gradient, field, values):
    loss = loss_of(field, scheme, gradient)
    with pytest.raises(RuntimeError, match="cannot be differentiated twice"):
        hessian(loss, values)
    leaf = values.clone().requires_grad_()
    value = loss(leaf)
    (first,) = torch.autograd.grad(value, leaf, create_graph=True)
    with pytest.raises(RuntimeError, match="cannot be differentiated twice"):
        torch.autograd.grad(value + first.square().sum(), list(field.parameters()))


@needs_kernels
@pytest.mark.parametrize("gradient", ["checkpoint", "backsolve"])
def test_unsupported_second_derivatives_to_the_initial_state_raise(gradient):
    path = some_path(3, count=1)
    field = mlp(path, 3)
    with pytest.raises(RuntimeError, match="cannot be differentiated twice"):
        hessian(lambda z0: nc.solve_cde(path, field, z0, gradient=gradient).last.square().sum(), states(path, 3))


def test_second_derivatives_by_backprop(field, values):
    found = hessian(loss_of(field, gradient="backprop"), values)
    direction = torch.ones_like(values)

    def first(values):
        return torch.autograd.grad(loss_of(field)(leaf := values.clone().requires_grad_()), leaf)[0]

    expected = (first(values + 1e-5 * direction) - first(values - 1e-5 * direction)) / 2e-5
    torch.testing.assert_close(found.sum((2, 3)), expected, rtol=1e-6, atol=1e-8)


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # torch's own, at the first use of forward mode
@pytest.mark.parametrize("scheme", SCHEMES)
def test_forward_mode_and_torch_func(scheme, field, values):
    """With the default gradient method, through path and solve."""
    loss, direction = loss_of(field, scheme), torch.randn_like(values)
    expected = slope(loss, values, direction)
    with forward_ad.dual_level():
        forward = forward_ad.unpack_dual(loss(forward_ad.make_dual(values, direction))).tangent
    found = {
        "forward mode": forward,
        "jvp": torch.func.jvp(loss, (values,), (direction,))[1],
        "grad": (torch.func.grad(loss)(values) * direction).sum(),
    }
    for name, tangent in found.items():
        torch.testing.assert_close(tangent.detach(), expected, rtol=1e-7, atol=1e-9, msg=name)


@needs_kernels
def test_vectorized_gradients_raise(field, values):
    with pytest.raises(RuntimeError, match="one gradient at a time; use vectorize=False"):
        jacobian(loss_of(field), values, vectorize=True)


def test_half_precision_by_autocast_is_refused(field, values):
    path = nc.linear(nc.IrregularSeries.from_list([([0.0, 1.0, 2.5, 3.0], values)]).with_channels())
    for model in (nc.NeuralCDE(3, 1, hidden=4), nc.NeuralCDE(3, 1, hidden=4, initial="zero"), nc.GRUD(3, 1, hidden=4)):
        with torch.autocast("cpu", torch.bfloat16), pytest.raises(ValueError, match="exclude it from autocast"):
            model(path)


def test_backsolve_in_forward_mode_is_refused(field, values):
    with pytest.raises(ValueError, match="nor forward mode; use"):
        torch.func.grad(loss_of(field, gradient="backsolve"))(values)


@pytest.mark.parametrize("gradient", ["checkpoint", "backsolve"])
def test_inside_torchs_own_checkpoint(gradient, field, values):
    """torch.utils.checkpoint allows saved tensors to be unpacked only once."""
    leaf, loss = values.clone().requires_grad_(), loss_of(field, nc.natural_cubic, gradient)
    (expected,) = torch.autograd.grad(loss(leaf), leaf)
    outer = torch.utils.checkpoint.checkpoint(loss, leaf, use_reentrant=False)
    (found,) = torch.autograd.grad(outer, leaf, create_graph=True)
    torch.testing.assert_close(found, expected)


def test_backsolve_of_a_function_inside_as_cde_is_refused():
    """The parameters of a function are unknown, so they would silently get no gradient."""
    path = some_path(3, count=1, channels=2)
    start = torch.cat([torch.zeros(1, 1, dtype=path.dtype), path.evaluate(path.interval[:, :1])[:, 0]], dim=1)
    field = nc.as_cde(lambda t, z, x: z, hidden=1, channels=2)
    with pytest.raises(ValueError, match="the field is a plain function"):
        nc.solve_cde(path, field, start.requires_grad_(), gradient="backsolve")

    class Module(nn.Module):
        def forward(self, t, z, x):
            return z

    nc.solve_cde(path, nc.as_cde(Module(), hidden=1, channels=2), start, gradient="backsolve").last.sum().backward()


def test_a_path_is_unchanged_by_use(field, values):
    """Using a path in one mode of differentiation does not affect its later use in another."""
    path = nc.linear(
        nc.IrregularSeries.from_list(
            [([0.0, 1.0, 2.5, 3.0], values.requires_grad_())], dtype=torch.float64
        ).with_channels()
    )
    with torch.inference_mode():
        nc.solve_cde(path, field, values.new_zeros(1, 2))
    nc.solve_cde(path, field, values.new_zeros(1, 2)).last.sum().backward()
    plain = nc.linear(
        nc.IrregularSeries.from_list([([0.0, 1.0, 2.5, 3.0], values.detach())], dtype=torch.float64).with_channels()
    )
    torch.func.grad(lambda z0: nc.solve_cde(plain, field, z0).last.sum())(torch.zeros(1, 2, dtype=torch.float64))
    assert len(pickle.loads(pickle.dumps(copy.deepcopy(plain)))) == 1
