"""The paper's vector field: a feedforward network."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from ..contracts import check_sizes
from .vector_field import VectorField

activations: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
    "softplus": nn.Softplus,
    "silu": nn.SiLU,
    "identity": nn.Identity,
}


class MLPField(VectorField, name="mlp"):
    r"""The paper's f: a feedforward network with ReLU and a final tanh, its output reshaped to (hidden, channels).

    $$f(z) = \tanh\bigl(\mathrm{reshape}(W_{d+1}\, \rho(W_d \cdots \rho(W_1 z + b_1) \cdots + b_d) + b_{d+1})\bigr)$$

    The final tanh bounds the rate of change of z (section 6.2).

    Parameters
    ----------
    channels, hidden
        Size of X and of z.
    width, depth
        `depth` hidden layers of `width` units. Depth 1 is Linear(hidden, width), activation,
        Linear(width, hidden x channels), final activation.
    activation, final
        "relu", "tanh", "sigmoid", "softplus", "silu" or "identity".
    initial_scale
        Factor on the last layer's initial weights and biases. With a small factor z hardly moves at first.

    Examples
    --------
    >>> import neuralcde as nc
    >>> field = nc.MLPField(channels=4, hidden=32, width=32, depth=3)
    >>> sum(p.numel() for p in field.parameters())
    7392
    """

    def __init__(
        self,
        channels: int,
        hidden: int,
        *,
        width: int = 32,
        depth: int = 3,
        activation: str = "relu",
        final: str = "tanh",
        initial_scale: float = 1.0,
    ):
        super().__init__()
        check_sizes(channels=channels, hidden=hidden, width=width, depth=depth)
        self.channels, self.hidden = channels, hidden
        self.layers = feedforward(
            hidden, hidden * channels, width=width, depth=depth, activation=activation, final=final
        )
        scale_last_layer(self.layers, initial_scale)

    def forward(
        self, t: Float[Tensor, "batch"], z: Float[Tensor, "batch hidden"]
    ) -> Float[Tensor, "batch hidden channels"]:
        """The matrix f(z); f does not depend on t."""
        matrix: Tensor = self.layers(z).unflatten(-1, (self.hidden, self.channels))
        return matrix


def feedforward(inputs: int, outputs: int, *, width: int, depth: int, activation: str, final: str) -> nn.Sequential:
    """`depth` hidden layers, then a linear layer and the `final` activation."""
    for name, kind in (("activation", activation), ("final", final)):
        if kind not in activations:
            raise ValueError(f"{name}={kind!r} is not one of {list(activations)}.")
    layers: list[nn.Module] = []
    for position in range(depth):
        layers += [nn.Linear(inputs if position == 0 else width, width), activations[activation]()]
    return nn.Sequential(*layers, nn.Linear(width, outputs), activations[final]())


def scale_last_layer(layers: nn.Sequential, scale: float) -> None:
    """Multiply the initial weights and biases of the last linear layer by `scale`, in place."""
    last = [layer for layer in layers if isinstance(layer, nn.Linear)][-1]
    last.weight.data *= scale
    last.bias.data *= scale
