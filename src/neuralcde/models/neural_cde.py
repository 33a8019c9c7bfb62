"""The Neural CDE model."""

from __future__ import annotations

from typing import Any

from jaxtyping import Float
from torch import Tensor

from ..fields import make_field
from ..paths import ControlPath
from ..series import IrregularSeries
from ..solve import ControlTerm, Term, channel_contributions
from .initial_state import Initial
from .readout import LinearReadout
from .solved_model import SolvedModel


class NeuralCDE(SolvedModel, name="neural_cde"):
    r"""The paper's model (section 3): the path X drives the state z through a vector field f.

    $$z(t_0) = \zeta(X(t_0), \text{static}), \qquad z(t) = z(t_0) + \int_{t_0}^t f(z_s)\, \mathrm{d}X_s, \qquad
      \text{output} = \ell(z)$$

    By default f is a feedforward network that ends in tanh (`MLPField`), and the readout $\ell$ is a linear map.

    Parameters
    ----------
    channels, outputs, hidden, static, pool, time_channel, encoder, scheme, readout, solver, steps, gradient
        As in `SolvedModel`.
    width, depth, initial_scale
        Options of the field: `depth` hidden layers of `width` units, and a factor on the initial weights of its last
        layer.
    field
        The vector field f: "mlp"; the name or class of another `VectorField`; a class with options, such as
        `nc.LowRankField.with_options(rank=4)`; or a function or module, as in `solve_cde`.
    initial
        Initial state. "linear": a linear map of X(t0), as in the paper's CharacterTrajectories and speech
        experiments; the default without static features. "static": a network on the static
        features, as in its sepsis experiment. "both": the sum of these two; the default with static features.
        "zero": 0.

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

    title = "Neural CDE"

    def __init__(
        self,
        channels: int,
        outputs: int,
        *,
        hidden: int = 32,
        width: int = 32,
        depth: int = 3,
        initial_scale: float = 1.0,
        field: Any = "mlp",
        static: int = 0,
        initial: Initial | None = None,
        **options: Any,
    ):
        initial = ("both" if static else "linear") if initial is None else initial
        super().__init__(channels, outputs, hidden=hidden, static=static, initial=initial, **options)
        self.field = make_field(
            field, self.path_channels, hidden, width=width, depth=depth, initial_scale=initial_scale
        )

    def flow(self) -> Term:
        """f(z) dX."""
        return ControlTerm(self.field)

    def contributions(
        self, path: ControlPath | IrregularSeries
    ) -> tuple[Float[Tensor, "series outputs"], Float[Tensor, "rows channels outputs"]]:
        r"""The outputs as exact sums over gaps and channels, see `channel_contributions`; for research.

        Parameters
        ----------
        path
            As in a call of the model.

        Returns
        -------
        start
            The outputs that the initial states would give.
        parts
            What each channel of the path added in the gap that ends at each row. `model(path)` is `start` plus the sum
            of the parts over the rows and channels of a series.

        Raises
        ------
        ValueError
            If the readout is not linear, or reads a mean over time.
        """
        if not isinstance(self.readout, LinearReadout) or self.pool != "last":
            raise ValueError(
                f"the output is a sum over channels only for a linear readout of the last state, not for "
                f"{type(self.readout).__name__} and pool={self.pool!r}; make the model with readout='linear', "
                "pool='last'."
            )
        driving = self.driving_path(path)
        z0 = self.initial(driving)
        parts = channel_contributions(driving, self.field, z0, solver=self.solver, steps=self.steps)
        return self.readout.linear(z0), parts @ self.readout.linear.weight.T
