"""What a forward pass read, held for the pass that repeats it to differentiate it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor, nn
from torch.func import functional_call


class ModuleBundle(nn.Module):
    """Several modules as one, so that a parameter they share is one parameter."""

    def __init__(self, parts: Sequence[nn.Module]):
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """What the function gives."""
        return function(*arguments)

    def call_with(self, parameters: Mapping[str, Tensor], function: Callable[..., Any], *arguments: Any) -> Any:
        """What the function gives while the modules have these parameters."""
        return functional_call(self, dict(parameters), (function, *arguments))


class ParameterSnapshot:
    """The parameters of some modules and other tensors, as they are now.

    Whoever repeats a computation for its gradient must find them as they were, also where the modules got others since
    (`torch.func.functional_call`), and must not go on where one was changed in place.
    """

    def __init__(self, parts: Sequence[nn.Module], others: Sequence[Tensor]):
        self.together = ModuleBundle(parts)
        self.parameters = dict(self.together.named_parameters())
        self.tensors = [*self.parameters.values(), *others]
        self.versions = self._versions()

    def repeat(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """What the function gives with the tensors held."""
        if self._versions() != self.versions:
            raise RuntimeError(
                "a parameter, the path or the inputs of a jump have been modified by an inplace operation since they were "
                "solved with; compute the gradient first, or solve again."
            )
        return self.together.call_with(self.parameters, function, *arguments)

    def _versions(self) -> list[int]:
        return [-1 if tensor.is_inference() else tensor._version for tensor in self.tensors]
