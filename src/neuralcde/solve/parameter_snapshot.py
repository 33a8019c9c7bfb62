"""A snapshot of the tensors that a forward pass used, for the recomputation in the backward pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor, nn
from torch.func import functional_call


class ModuleBundle(nn.Module):
    """Several modules as one, in which a shared parameter occurs only once."""

    def __init__(self, parts: Sequence[nn.Module]):
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call the function."""
        return function(*arguments)

    def call_with(self, parameters: Mapping[str, Tensor], function: Callable[..., Any], *arguments: Any) -> Any:
        """Call the function while the modules have these parameters."""
        return functional_call(self, dict(parameters), (function, *arguments))


class ParameterSnapshot:
    """The parameters of some modules, and other tensors, at the time of the forward pass.

    A recomputation must use the same tensors as the forward pass, even if the modules have other parameters by then (as
    after `torch.func.functional_call`). It must raise an error if one of them was modified in place.
    """

    def __init__(self, parts: Sequence[nn.Module], others: Sequence[Tensor]):
        self.together = ModuleBundle(parts)
        self.parameters = dict(self.together.named_parameters())
        self.tensors = [*self.parameters.values(), *others]
        self.versions = self._versions()

    def repeat(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call the function with the parameters of the snapshot."""
        if self._versions() != self.versions:
            raise RuntimeError(
                "a parameter, the path or the inputs of a jump have been modified by an inplace operation since the "
                "solve; compute the gradient first, or solve again."
            )
        return self.together.call_with(self.parameters, function, *arguments)

    def _versions(self) -> list[int]:
        return [-1 if tensor.is_inference() else tensor._version for tensor in self.tensors]
