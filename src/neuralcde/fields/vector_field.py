"""The base class of vector fields, and wrappers for functions and modules that compute one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from jaxtyping import Float
from torch import Tensor, nn

from ..contracts import Named, Recipe, Registry


class VectorField(nn.Module, Named):
    r"""The f of $\mathrm{d}z = f(t, z)\, \mathrm{d}X$: for every state a matrix of shape (hidden, channels).

    A subclass defines `forward`. It may also define `prod`, if the product with dX is cheaper without forming the
    matrix. A subclass with a constructor (channels, hidden, *, ...) can be registered under a name, by which users
    choose it: `class Mine(VectorField, name="mine")`.

    Examples
    --------
    >>> import torch, neuralcde as nc
    >>> class Rotation(nc.VectorField):
    ...     def forward(self, t, z):
    ...         return torch.stack([-z[..., 1], z[..., 0]], dim=-1).unsqueeze(-1)
    >>> Rotation().prod(torch.zeros(1), torch.tensor([[1.0, 0.0]]), torch.tensor([[0.5]])).tolist()
    [[0.0, 0.5]]
    """

    registry: ClassVar[Registry[type[VectorField]]]

    def forward(
        self, t: Float[Tensor, "batch"], z: Float[Tensor, "batch hidden"]
    ) -> Float[Tensor, "batch hidden channels"]:
        """The matrix f(t, z); t is measured from the start of each series."""
        raise NotImplementedError(f"{type(self).__name__} must define forward(t, z) -> (batch, hidden, channels)")

    def prod(
        self, t: Float[Tensor, "batch"], z: Float[Tensor, "batch hidden"], dx: Float[Tensor, "batch channels"]
    ) -> Float[Tensor, "batch hidden"]:
        """The product f(t, z) dX."""
        matrix = self(t, z)
        if matrix.shape[-2:] != (z.shape[-1], dx.shape[-1]):  # a constant matrix may omit the batch dimension
            raise ValueError(
                f"{self._display_name()} must return shape (batch, hidden, channels) = {(*z.shape, dx.shape[-1])}, "
                f"got {tuple(matrix.shape)}."
            )
        return multiply(matrix, dx)

    def _display_name(self) -> str:
        return type(self).__name__


VectorField.registry = Registry("field", VectorField)


class FunctionField(VectorField):
    """Wraps a function of (t, z), or an `nn.Sequential` of z alone, as a vector field."""

    def __init__(self, function: Callable[..., Any]):
        super().__init__()
        self.function = function
        self.autonomous = isinstance(function, nn.Sequential)

    def forward(self, t: Tensor, z: Tensor) -> Tensor:
        """The value of the wrapped function, of shape (batch, hidden, channels)."""
        return self.function(z) if self.autonomous else self.function(t, z)  # type: ignore[no-any-return]

    def _display_name(self) -> str:
        return getattr(self.function, "__name__", type(self.function).__name__)


def as_field(field: VectorField | Callable[..., Any]) -> VectorField:
    """Return a `VectorField` unchanged; wrap a function f(t, z) or an `nn.Sequential` of z in a `FunctionField`."""
    if isinstance(field, VectorField):
        return field
    if not callable(field):
        raise TypeError(
            f"field must be a VectorField, an nn.Module or a function of (t, z), got {type(field).__name__}."
        )
    return FunctionField(field)


def make_field(given: Any, channels: int, hidden: int, **options: Any) -> VectorField:
    """Build a field from a registered name, a class or a recipe; anything else is passed to `as_field`.

    Options that the field's constructor does not take are ignored.
    """
    if isinstance(given, str | Recipe) or (isinstance(given, type) and issubclass(given, VectorField)):
        made: VectorField = Recipe.of(given, VectorField.registry).build(channels, hidden, **options)
        return made
    return as_field(given)


def multiply(
    matrix: Float[Tensor, "*#batch hidden channels"], dx: Float[Tensor, "*#batch channels"]
) -> Float[Tensor, "*batch hidden"]:
    """Batched matrix-vector product; a constant matrix may omit the batch dimension."""
    return (matrix @ dx.unsqueeze(-1)).squeeze(-1)
