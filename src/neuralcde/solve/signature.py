"""The signature of a path, by solving its equation."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from ..fields import SignatureField
from ..paths import ControlPath
from .solve import solve_cde
from .solvers import Tableau, as_solver
from .steps import AtKnots, Steps

SUBSTEPS = 8  # of a piece on which one step is not exact


def signature(
    path: ControlPath, depth: int, *, solver: str | Tableau = "dopri5", steps: Steps | None = None
) -> Float[Tensor, "series words"]:
    r"""The signature of every path, truncated to `depth`: its iterated integrals over words of at most `depth` channels.

    $$S^{i_1 \ldots i_k} = \int_{t_0 < s_1 < \cdots < s_k < t_n} \mathrm{d}X^{i_1}_{s_1} \cdots \mathrm{d}X^{i_k}_{s_k}$$

    All of them together solve the linear CDE of appendix B, $\mathrm{d}S = S \otimes \mathrm{d}X$ from $S = 1$, and that is how they
    are computed: `solve_cde` with a `SignatureField`, on the native engine where there is one. Linear maps of the signature
    approximate every continuous function of a path that starts at 0 and has time among its channels, the better the
    deeper (theorem B.6).

    Parameters
    ----------
    path
        A batch of paths, with c channels.
    depth
        N, the length of the longest words, at least 1.
    solver
        As in `solve_cde`.
    steps
        As in `solve_cde`. None for one step per piece where that is exact, else for `AtKnots(substeps=8)`.

    Returns
    -------
    Tensor
        (series, $c + c^2 + \cdots + c^N$): words of length 1, of length 2, ..., each length in lexicographic order; without the
        empty word, whose integral is 1. In the precision of the path; differentiable (once) in its coefficients, and so in the
        data.

    Raises
    ------
    ValueError
        For a depth below 1, and for more than a million words.

    Notes
    -----
    On a straight piece with increment x level k grows by $x^{\otimes k} / k!$ and mixed terms, a polynomial that one step of a
    solver of order p gets right for all levels up to p: exact to rounding on `linear` and `rectilinear` paths for
    depth <= 5 with "dopri5", <= 4 with "rk4". Deeper levels, and levels from 2 on of cubic paths, have the error of the solver and
    get better with more substeps.

    Cost: stages x steps outer products of $c + \cdots + c^N$ multiplications for each series, and as much memory a series for
    each stage. Time is seen only where it is a channel, and so is the starting point (a straight line from 0 to it, put in front
    of the path, or a channel of `series.with_channels(start=True)`): sections 6.1 and B.

    Examples
    --------
    >>> import neuralcde as nc
    >>> corner = nc.IrregularSeries.from_list([([0.0, 1.0, 2.0], [[0.0, 0.0], [3.0, 0.0], [3.0, 2.0]])])
    >>> [round(word, 4) for word in nc.signature(nc.linear(corner), depth=2)[0].tolist()]  # 1, 2, 11, 12, 21, 22
    [3.0, 2.0, 4.5, 6.0, 0.0, 2.0]
    """
    if not isinstance(path, ControlPath):
        raise TypeError(
            f"path must be a ControlPath, got {type(path).__name__}; build one with e.g. nc.linear(series)."
        )
    field, tableau = SignatureField(path.channels, depth), as_solver(solver)
    if steps is None:
        exact = path.degree == 1 and depth <= tableau.order
        steps = AtKnots() if exact else AtKnots(substeps=SUBSTEPS)
    start = path.coefficients.new_zeros(len(path), field.hidden)
    start[:, 0] = 1.0
    return solve_cde(path, field, start, solver=tableau, steps=steps).last[:, 1:]
