"""The signature of a path, computed by solving a linear CDE."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from ..fields import SignatureField
from ..paths import ControlPath
from .picard import picard
from .solve import solve_cde
from .solvers import Solver, as_solver, dopri5
from .steps import AtKnots, Steps


def signature(
    path: ControlPath, depth: int, *, solver: str | Solver | None = None, steps: Steps | None = None
) -> Float[Tensor, "series words"]:
    r"""The signature of every path up to `depth`: iterated integrals over words of at most `depth` channels.

    $$S^{i_1 \ldots i_k}
      = \int_{t_0 < s_1 < \cdots < s_k < t_n} \mathrm{d}X^{i_1}_{s_1} \cdots \mathrm{d}X^{i_k}_{s_k}$$

    Together they solve the linear CDE of appendix B, $\mathrm{d}S = S \otimes \mathrm{d}X$ with initial value $S = 1$.
    That is how they are computed: by `solve_cde` with a `SignatureField`, on the native engine if possible. Linear maps
    of the signature approximate every continuous function of paths that start at 0 and have time as a channel, to any
    accuracy as the depth grows (theorem B.6).

    Parameters
    ----------
    path
        A batch of paths, with c channels.
    depth
        N, the length of the longest words, at least 1.
    solver
        None for a method that is exact on every piece; or a solver as in `solve_cde`.
    steps
        As in `solve_cde`. None means one step per piece.

    Returns
    -------
    Tensor
        Shape (series, $c + c^2 + \cdots + c^N$): words of length 1, then of length 2, and so on, each length in
        lexicographic order. The empty word, whose integral is 1, is left out. The dtype is that of the path. The result
        is differentiable (once) in the coefficients of the path, and so in the data.

    Raises
    ------
    ValueError
        For a depth below 1, and for more than a million words.

    Notes
    -----
    On a piece of the path, the words are polynomials in the time of the piece. They are integrated exactly, up to
    rounding, with as many stages as that takes: at most 6 on linear pieces up to depth 5; 6, 14 and 24 on cubic
    pieces for depth 2, 3 and 4. With a solver of order p, words of length up to p are exact on linear pieces; all
    others have the error of the solver, which on a cubic path over very uneven gaps is large.

    Cost: stages x steps outer products of $c + \cdots + c^N$ multiplications per series, and as many numbers in
    memory per series and stage. The signature depends on time only if time is a channel, and on the starting point
    only if that is part of the path: as a straight line from 0 to it in front of the path, or as the channels of
    `series.with_channels(start=True)` (sections 6.1 and B).

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
    field = SignatureField(path.channels, depth)
    if solver is not None:
        chosen = as_solver(solver)
    else:
        chosen = dopri5 if path.degree == 1 and depth <= dopri5.order else picard(path.degree, depth)
    start = path.coefficients.new_zeros(len(path), field.hidden)
    start[:, 0] = 1.0
    return solve_cde(path, field, start, solver=chosen, steps=steps or AtKnots()).last[:, 1:]
