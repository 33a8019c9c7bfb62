"""Tile programs: short lists of operations that compute one evaluation of a flow, or one jump."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .._native import kernels


def _numbered(names: str) -> dict[str, int]:
    """What the compiled engine calls its codes or functions, each with its number; without kernels there are none."""
    return {} if kernels is None else {name: number for number, name in enumerate(getattr(kernels, names))}


CODES, FUNCTIONS = _numbered("CODES"), _numbered("FUNCTIONS")


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
    """A finished program: its operations, the size of its workspace, and the parameters it reads."""

    ops: Tensor
    numbers: Tensor
    features: int
    input: int
    output: int
    outputs: int
    parameters: tuple[Tensor, ...]

    @functools.cached_property
    def native(self) -> Any:
        """As the kernels take it."""
        assert kernels is not None
        return kernels.Program(self.ops, self.numbers, self.features, self.input, self.output)


class ProgramBuilder:
    """Writes a program one operation at a time; every result is a new region, so nothing is ever overwritten.

    `state` and `input` are where the engine puts z and what drives it: dX (or X), or the features of a row. Layers that
    are applied to rows have no state (`hidden=0`), and their result may have any size.
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
        """function(weight @ source + bias + onto); the result takes the place of `onto`, where it is given.

        `outputs` are the first output and the one after the last, where not all of the layer is computed.
        `onto` must be what a linear operation without a function gave, and nothing may have read it since: on the way
        back its old value is gone.
        """
        if function == "silu":  # its slope needs the argument, which a fused function overwrites
            return self.apply("silu", self.linear(source, weight, bias, onto=onto, outputs=outputs))
        first, last = outputs or (0, weight.shape[0])
        rows, columns = last - first, weight.shape[1]
        if columns != source.count:
            raise ValueError(f"a weight of shape {tuple(weight.shape)} does not fit {source.count} inputs")
        if onto is not None and (onto.count != rows or not self._can_add_onto(onto) or onto.overlaps(source)):
            raise ValueError(
                f"onto must hold {rows} results of a linear operation without a function that nothing has read yet"
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
        """A * b, feature by feature."""
        return self._binary("multiply", a, b)

    def add(self, a: Region, b: Region) -> Region:
        """A + b."""
        return self._binary("add", a, b)

    def subtract(self, a: Region, b: Region) -> Region:
        """A - b."""
        return self._binary("subtract", a, b)

    def affine(self, source: Region, scale: float, shift: float = 0.0) -> Region:
        """Scale * source + shift."""
        out = self._new(source.count)
        self._add("affine", "identity", out, source, rows=source.count, numbers=(scale, shift))
        return out

    def contract(self, matrix: Region, vector: Region) -> Region:
        """Matrix times vector, both features of the tile; the matrix is stored row by row."""
        rows, rest = divmod(matrix.count, vector.count)
        if rest:
            raise ValueError(f"a matrix of {matrix.count} entries does not fit a vector of {vector.count}")
        out = self._new(rows)
        self._add("contract", "identity", out, matrix, vector, rows=rows, columns=vector.count)
        return out

    def outer(self, a: Region, b: Region) -> Region:
        """Every feature of a times every feature of b, stored row by row."""
        out = self._new(a.count * b.count)
        self._add("outer", "identity", out, a, b, rows=a.count, columns=b.count)
        return out

    def finish(self, output: Region) -> Program:
        """The program whose result is `output`."""
        if not self._ops:  # the engine takes a program without operations for no program
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
        region = Region(self._features, count)
        self._features += count
        return region

    def _can_add_onto(self, region: Region) -> bool:
        for code, function, out, read in reversed(self._touched):
            if any(region.overlaps(part) for part in read):
                return False
            if region.overlaps(out):
                inside = out.start <= region.start and region.start + region.count <= out.start + out.count
                return inside and code == "linear" and function == "identity"
        return False

    def _parameter(self, value: Tensor) -> int:
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
        """One operation: its integers by the names that the engine gives its columns, then scale and shift."""
        self._touched.append((code, function, out, [a] if b is None else [a, b]))
        known = {"code": CODES[code], "function": FUNCTIONS[function], "out": out.start, "a": a.start}
        known |= {"b": 0 if b is None else b.start, "columns": 0, "weight": -1, "bias": -1}
        known |= {"weight_start": 0, "bias_start": 0, "accumulate": 0} | integers
        assert kernels is not None
        self._ops.append([known[name] for name in kernels.OP_COLUMNS])
        self._numbers.append(list(numbers))
