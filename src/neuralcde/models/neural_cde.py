"""The Neural CDE."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..fields import MLPField, VectorField, as_field
from ..solve import ControlTerm, Gradient, Steps, Tableau, Term
from .initial_state import Initial
from .path_model import PathModel, Pool


class NeuralCDE(PathModel):
    r"""The paper's model (section 3): a state driven by the path through a vector field.

    $$z(t_0) = \zeta(X(t_0), \text{static}), \qquad z(t) = z(t_0) + \int_{t_0}^t f(z_s)\, \mathrm{d}X_s, \qquad
      \text{output} = \ell(z)$$

    f is a feedforward network that ends in tanh (`MLPField`), $\ell$ a linear map.

    Parameters
    ----------
    channels, outputs, hidden, static, pool, time_channel, solver, steps, gradient
        As in `PathModel`.
    width, depth, initial_scale
        Of the field: `depth` hidden layers of `width` units; factor on the initial weights of its last layer.
    field
        Another f in its place: a `VectorField`, or what `solve_cde` takes for one.
    initial
        "linear" in X(t0) (the paper's for CharacterTrajectories and speech; the default without static features), "static" (its
        one for sepsis), "both" (the default with static features), "zero".

    Examples
    --------
    >>> import torch, neuralcde as nc
    >>> series = nc.IrregularSeries.from_list([([0.0, 1.0, 3.0], torch.randn(3, 3)), ([0.0, 0.5], torch.randn(2, 3))])
    >>> model = nc.NeuralCDE(channels=4, outputs=20)
    >>> model(nc.linear(series.with_channels())).shape
    torch.Size([2, 20])
    >>> sum(p.numel() for p in model.parameters())
    8212
    """

    def __init__(
        self,
        channels: int,
        outputs: int,
        *,
        hidden: int = 32,
        width: int = 32,
        depth: int = 3,
        initial_scale: float = 1.0,
        field: VectorField | Callable[..., Any] | None = None,
        static: int = 0,
        initial: Initial | None = None,
        pool: Pool = "last",
        time_channel: bool = True,
        solver: str | Tableau = "rk4",
        steps: Steps | None = None,
        gradient: str | Gradient = "checkpoint",
    ):
        super().__init__(
            channels,
            outputs,
            hidden=hidden,
            static=static,
            initial=("both" if static else "linear") if initial is None else initial,
            pool=pool,
            time_channel=time_channel,
            solver=solver,
            steps=steps,
            gradient=gradient,
        )
        if field is None:
            field = MLPField(channels, hidden, width=width, depth=depth, initial_scale=initial_scale)
        self.field = as_field(field)

    def flow(self) -> Term:
        """f(z) dX."""
        return ControlTerm(self.field)
