"""Programs of the native engine: short lists of operations for one evaluation of a field, or one update of a cell.

A program runs on a tile of several series at once. Its workspace holds a number of features per series; every operation
reads some ranges of features and writes another.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from .._native import kernels


def _numbered(names: str) -> dict[str, int]:
    """The compiled engine's list of operation codes or functions, as a dictionary to numbers; empty without kernels."""
    return {} if kernels is None else {name: number for number, name in enumerate(getattr(kernels, names))}


Array = NDArray[Any]
CODES, FUNCTIONS = _numbered("CODES"), _numbered("FUNCTIONS")


def array_of(tensor: Tensor) -> Array:
    """The numbers of a tensor for the compiled module, without a copy if they are contiguous.

    As an array of numpy, because the module takes ten times as long to read a tensor of torch.
    """
    return tensor.detach().contiguous().numpy()


@dataclass(frozen=True)
class Region:
    """A range of features of the workspace."""

    start: int
    count: int

    def part(self, start: int, count: int) -> Region:
        """A range within the region."""
        if start < 0 or count < 0 or start + count > self.count:
            raise ValueError(f"a part {start} .. {start + count} does not fit a region of {self.count} features")
        return Region(self.start + start, count)

    def overlaps(self, other: Region) -> bool:
        """Whether the two share a feature."""
        return self.start < other.start + other.count and other.start < self.start + self.count


@dataclass(frozen=True, eq=False)
class Program:
    """A finished program.

    Parameters
    ----------
    ops, numbers
        The operations: integers, one row per operation, and two floats (scale and shift) per operation.
    features
        Size of the workspace per series.
    input
        Number of input features, which follow the state.
    output, outputs
        Start and size of the result in the workspace.
    parameters
        The tensors that the operations read.
    """

    ops: Tensor
    numbers: Tensor
    features: int
    input: int
    output: int
    outputs: int
    parameters: tuple[Tensor, ...]

    @functools.cached_property
    def native(self) -> Any:
        """The program as an object of the compiled module."""
        assert kernels is not None
        return kernels.Program(self.ops, self.numbers, self.features, self.input, self.output)

    @property
    def values(self) -> list[Array]:
        """The numbers of the parameters, for the compiled module."""
        places = [(value.data_ptr(), value.dtype, value.is_contiguous()) for value in self.parameters]
        known, arrays = self._values
        if places != known:
            arrays = [array_of(value) for value in self.parameters]
            # Not copies, which would go stale. The arrays hold their memory, so no other tensor comes to lie there.
            if all(contiguous for _, _, contiguous in places):
                object.__setattr__(self, "_values", (places, arrays))
        return arrays

    _values: tuple[list[Any], list[Array]] = field(default=([], []), init=False, repr=False)


class ProgramBuilder:
    """Builds a program operation by operation.

    Every operation writes its result to a new region (except `linear` with `onto`), so that the backward pass finds all
    intermediate values. The engine stores z in the region `state`, and dX, X or the inputs of a row in the region
    `input`. Layers that are applied to rows have no state (`hidden=0`); their result may have any size.

    Parameters
    ----------
    hidden, inputs
        Size of the state and of the input.
    """

    def __init__(self, hidden: int, inputs: int):
        self.state = Region(0, hidden)
        self.input = Region(hidden, inputs)
        self._features = hidden + inputs
        self._ops: list[list[int]] = []
        self._touched: list[tuple[str, str, Region, list[Region]]] = []
        self._numbers: list[list[float]] = []
        self._parameters: list[Tensor] = []

    def linear(
        self,
        source: Region,
        weight: Tensor,
        bias: Tensor | None,
        function: str = "identity",
        *,
        onto: Region | None = None,
        outputs: tuple[int, int] | None = None,
    ) -> Region:
        """function(weight @ source + bias + onto).

        Parameters
        ----------
        source
            Input of the layer.
        weight, bias
            As in `torch.nn.Linear`.
        function
            Activation, fused into the operation.
        onto
            A region to add to, which the result overwrites. It must be the result of a linear operation without an
            activation, and no operation may have read it: the backward pass does not have its old value.
        outputs
            Range (first, last + 1) of the outputs to compute; None for all.
        """
        if function == "silu":  # its derivative needs the argument, which a fused function would overwrite
            return self.apply("silu", self.linear(source, weight, bias, onto=onto, outputs=outputs))
        first, last = outputs or (0, weight.shape[0])
        rows, columns = last - first, weight.shape[1]
        if columns != source.count:
            raise ValueError(f"a weight of shape {tuple(weight.shape)} does not fit {source.count} inputs")
        if onto is not None and (onto.count != rows or not self._can_add_onto(onto) or onto.overlaps(source)):
            raise ValueError(
                f"onto must hold {rows} results of a linear operation without an activation that nothing has read yet"
            )
        out = onto or self._new(rows)
        self._add(
            "linear",
            function,
            out,
            source,
            rows=rows,
            columns=columns,
            weight=self._parameter(weight),
            bias=-1 if bias is None else self._parameter(bias),
            weight_start=first * columns,
            bias_start=first,
            accumulate=int(onto is not None),
        )
        return out

    def apply(self, function: str, source: Region) -> Region:
        """function(source)."""
        out = self._new(source.count)
        self._add("unary", function, out, source, rows=source.count)
        return out

    def multiply(self, a: Region, b: Region) -> Region:
        """Elementwise product a * b."""
        return self._binary("multiply", a, b)

    def add(self, a: Region, b: Region) -> Region:
        """Elementwise sum a + b."""
        return self._binary("add", a, b)

    def subtract(self, a: Region, b: Region) -> Region:
        """Elementwise difference a - b."""
        return self._binary("subtract", a, b)

    def affine(self, source: Region, scale: float, shift: float = 0.0) -> Region:
        """Scale * source + shift."""
        out = self._new(source.count)
        self._add("affine", "identity", out, source, rows=source.count, numbers=(scale, shift))
        return out

    def contract(self, matrix: Region, vector: Region) -> Region:
        """Matrix-vector product of two regions; the matrix is row-major."""
        rows, rest = divmod(matrix.count, vector.count)
        if rest:
            raise ValueError(f"a matrix of {matrix.count} entries does not fit a vector of {vector.count}")
        out = self._new(rows)
        self._add("contract", "identity", out, matrix, vector, rows=rows, columns=vector.count)
        return out

    def outer(self, a: Region, b: Region) -> Region:
        """Outer product of a and b, row-major."""
        out = self._new(a.count * b.count)
        self._add("outer", "identity", out, a, b, rows=a.count, columns=b.count)
        return out

    def finish(self, output: Region) -> Program:
        """The program whose result is `output`."""
        if not self._ops:  # to the engine, a program without operations means that there is no program
            output = self.affine(output, 1.0)
        if self.state.count and output.count != self.state.count:
            raise ValueError(f"the result has {output.count} features, but the state has {self.state.count}")
        return Program(
            torch.tensor(self._ops, dtype=torch.int64),
            torch.tensor(self._numbers, dtype=torch.float64),
            self._features,
            self.input.count,
            output.start,
            output.count,
            tuple(self._parameters),
        )

    def _new(self, count: int) -> Region:
        """Allocate a region at the end of the workspace."""
        region = Region(self._features, count)
        self._features += count
        return region

    def _can_add_onto(self, region: Region) -> bool:
        """Whether a linear operation without an activation wrote the region last, and nothing has read it since."""
        for code, function, out, read in reversed(self._touched):
            if any(region.overlaps(part) for part in read):
                return False
            if region.overlaps(out):
                inside = out.start <= region.start and region.start + region.count <= out.start + out.count
                return inside and code == "linear" and function == "identity"
        return False

    def _parameter(self, value: Tensor) -> int:
        """Index of the tensor among the parameters; a tensor that is used twice is listed once."""
        for position, known in enumerate(self._parameters):
            if known is value:
                return position
        self._parameters.append(value)
        return len(self._parameters) - 1

    def _binary(self, code: str, a: Region, b: Region) -> Region:
        if a.count != b.count:
            raise ValueError(f"operands of {a.count} and {b.count} features do not match")
        out = self._new(a.count)
        self._add(code, "identity", out, a, b, rows=a.count)
        return out

    def _add(
        self,
        code: str,
        function: str,
        out: Region,
        a: Region,
        b: Region | None = None,
        *,
        numbers: tuple[float, float] = (0.0, 0.0),
        **integers: int,
    ) -> None:
        """Append one operation. `integers` are named like the engine's columns; `numbers` are scale and shift."""
        self._touched.append((code, function, out, [a] if b is None else [a, b]))
        known = {"code": CODES[code], "function": FUNCTIONS[function], "out": out.start, "a": a.start}
        known |= {"b": 0 if b is None else b.start, "columns": 0, "weight": -1, "bias": -1}
        known |= {"weight_start": 0, "bias_start": 0, "accumulate": 0} | integers
        assert kernels is not None
        self._ops.append([known[name] for name in kernels.OP_COLUMNS])
        self._numbers.append(list(numbers))
