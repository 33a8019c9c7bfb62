"""Appendix A: the gradient to the initial time, as in the paper (equation 6) and as in the package."""

import numpy as np
import torch

import neuralcde as nc
from ragged_cases import random_series

A = torch.tensor([[0.1, -0.5], [0.7, -0.2]], dtype=torch.float64)


def test_the_two_forms_of_the_gradient_to_the_initial_time():
    r"""For dz = A z dX with one channel, z and its adjoint a are known at all times, so the integral can be computed.

    $$-a_{t_0} f(z_{t_0}) X'(t_0) = -a_{t_n} f(z_{t_n}) X'(t_n) + \int_{t_0}^{t_n} a_s f(z_s) X''(s)\, \mathrm{d}s.$$
    """
    path = nc.natural_cubic(random_series(3, count=1, rows=(6, 6), channels=1, missing=0))
    z0 = torch.tensor([[1.0, -0.4]], dtype=torch.float64, requires_grad=True)
    weights = torch.tensor([0.3, 1.1], dtype=torch.float64)
    low, high = path.interval[0]

    def field(t, z):
        return (z @ A.T)[..., None]

    solved = nc.solve_cde(path, field, z0, solver="tsit5", steps=nc.AtKnots(substeps=40)).last
    (adjoint,) = torch.autograd.grad((solved * weights).sum(), z0)
    said = -(adjoint @ A @ z0.detach().T * path.derivative(low)).item()

    def state(s):
        return torch.linalg.matrix_exp(A * path.increment(low, s).item()) @ z0.detach()[0]

    def costate(s):
        return torch.linalg.matrix_exp(A * path.increment(s, high).item()).T @ weights

    nodes, shares = np.polynomial.legendre.leggauss(12)
    integral = 0.0
    for first, last in zip(path.knots[:-1], path.knots[1:], strict=True):  # X'' has a kink at every knot
        for node, share in zip(nodes, shares, strict=True):
            s = first + (last - first) * (node + 1) / 2
            slope = path.derivative(s, order=2).item() * float(last - first) / 2
            integral += share * slope * float(costate(s) @ A @ state(s))
    to_the_end = float(weights @ A @ state(high)) * path.derivative(high).item()
    assert abs(said - (integral - to_the_end)) < 1e-7
    assert min(abs(said), abs(integral), abs(to_the_end)) > 0.01  # no term is 0 by chance
