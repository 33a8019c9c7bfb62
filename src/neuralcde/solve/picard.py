"""A Runge-Kutta method that is exact for the signature of a piecewise polynomial path."""

from __future__ import annotations

import functools

import numpy as np
from numpy.polynomial import legendre
from numpy.typing import NDArray

from .solvers import Tableau


@functools.cache
def picard(degree: int, depth: int) -> Tableau:
    r"""The explicit method that is exact for words of length up to `depth` along pieces of this degree.

    $\mathrm{d}S^{k} = S^{k-1} \otimes \mathrm{d}X$ is nilpotent: Picard iteration,
    $S \leftarrow S(0) + \int S \otimes \mathrm{d}X$, is exact for words of length k after k sweeps. On a piece of
    degree d, $S^{k-1} X'$ is a polynomial of degree $d k - 1$. Sweep k therefore evaluates it at $d k$ nodes and
    integrates the interpolating polynomial; the last sweep only needs the integral over the whole piece, for which
    half as many Gauss-Legendre nodes are enough. Every sweep depends on the one before only: the method is explicit.
    """
    sizes = [degree * sweep for sweep in range(1, depth)] + [-(-degree * depth // 2)]
    nodes = [_gauss(size) for size in sizes]
    a: list[tuple[float, ...]] = []
    before = 0  # stages of all sweeps before the last one
    for sweep, (places, _) in enumerate(nodes):
        if sweep == 0:
            a += [(0.0,) * stage for stage in range(len(places))]
            continue
        weights = _integrals(nodes[sweep - 1][0], places)
        for row in weights:
            a.append((0.0,) * before + tuple(map(float, row)) + (0.0,) * (len(a) - before - len(row)))
        before += weights.shape[1]
    b = (0.0,) * before + tuple(map(float, nodes[-1][1]))
    c = tuple(float(place) for places, _ in nodes for place in places)
    return Tableau(f"picard, degree {degree}, depth {depth}", depth, "Picard 1890, Gauss 1814", a, b, c)


def _gauss(count: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Nodes and weights of Gauss-Legendre quadrature on [0, 1]."""
    nodes, weights = legendre.leggauss(count)
    return (nodes + 1) / 2, weights / 2


def _integrals(nodes: NDArray[np.float64], ends: NDArray[np.float64]) -> NDArray[np.float64]:
    r"""For each end, the integrals from 0 to it of the Lagrange polynomials of the Gauss nodes.

    In Legendre polynomials, because powers lose a digit with every two nodes: the quadrature gives their coefficients,
    $l_i = w_i \sum_k (k + 1/2) P_k(x_i) P_k$, and $(2 k + 1) P_k$ is the derivative of $P_{k+1} - P_{k-1}$.
    """
    count = len(nodes)
    at_nodes, at_ends = legendre.legvander(2 * nodes - 1, count - 1), legendre.legvander(2 * ends - 1, count)
    below = np.column_stack([-np.ones_like(ends), at_ends[:, : count - 1]])
    found: NDArray[np.float64] = (at_ends[:, 1:] - below) @ at_nodes.T * (_gauss(count)[1] / 2)
    return found
